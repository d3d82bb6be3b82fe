"""What the Kafka client logs, passed on without its repetitions.

The client writes a line for every attempt to connect, many a second while a broker is away, and
tells of broken connections nowhere else. ``ClientLog`` is what it takes for a logger.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from streamer.clock import Clock, SystemClock

# First words of the client's lines: a connection broke or could not be made, requests timed out.
_TROUBLE: Final = frozenset({"FAIL", "REQTMOUT"})
_AGAIN_NS: Final = 10_000_000_000


class ClientLog:
    """Passes each kind of line on at most once in 10 seconds, with the number left out.

    Args:
        log: where lines go.
        trouble: called for every line that tells of a broken connection or a lost request.
        clock: source of time.
    """

    def __init__(
        self,
        log: logging.Logger,
        *,
        trouble: Callable[[], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._log = log
        self._trouble = trouble
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[int, int]] = {}  # kind -> (last passed on, left out since)

    def log(self, level: int, message: str, *details: object) -> None:
        """The one method that the client calls."""
        kind = str(details[0]) if details else message.partition(" ")[0]
        if self._trouble is not None and kind in _TROUBLE:
            self._trouble()
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            last_ns, left_out = self._seen.get(kind, (now_ns - _AGAIN_NS, 0))
            if now_ns - last_ns < _AGAIN_NS:
                self._seen[kind] = (last_ns, left_out + 1)
                return
            self._seen[kind] = (now_ns, 0)
        text = message % details if details else message
        self._log.log(level, "kafka client", extra={"line": text, "left_out": left_out})
