"""The only reader of time: everything pure takes ``now_ns`` (monotonic) or ``now_ms`` (wall)."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks that must not be mixed up: monotonic for waiting, wall for deadlines."""

    def monotonic_ns(self) -> int:
        """Nanoseconds of a clock that never steps; only differences mean anything."""
        ...

    def wall_ms(self) -> int:
        """Unix time in milliseconds, comparable with LogAppendTime of the brokers."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    def monotonic_ns(self) -> int:
        """See :class:`Clock`."""
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        """See :class:`Clock`."""
        return time.time_ns() // 1_000_000
