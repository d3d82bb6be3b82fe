"""Named places at which a test lets a process die, as if the machine had gone.

``STREAMER_CRASH_AT=work.bulk.after_produce:3`` kills the process (SIGKILL, nothing is flushed) when
the loop ``work.bulk`` reaches ``after_produce`` for the third time; several are separated by
commas, ``:1`` may be left out. ``STREAMER_CRASH_ONCE=FILE`` makes each point kill once only: the
file ``FILE.<loop>.<point>`` is made just before, and where it exists nothing happens, so that a
supervised process lives on.

Points of a loop, in order: ``after_poll before_produce after_produce after_offsets before_commit
in_commit after_commit``, and ``in_revoke``. ``in_commit`` dies from a second thread while the
commit call runs. Points of an emission count only emissions that carry records.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

POINTS: Final = (
    "after_poll",
    "before_produce",
    "after_produce",
    "after_offsets",
    "before_commit",
    "in_commit",
    "after_commit",
    "in_revoke",
)
_IN_COMMIT_S: Final = 0.001  # a commit takes 2 to 5 ms on a local broker


def crash_points(name: str, environ: Mapping[str, str] = os.environ) -> Callable[[str], None]:
    """What the loop ``name`` calls at each point; does nothing unless a test asked for it."""
    wanted: dict[str, int] = {}
    for word in environ.get("STREAMER_CRASH_AT", "").split(","):
        place, _, nth = word.strip().partition(":")
        loop, _, point = place.rpartition(".")
        if loop == name and point in POINTS:
            wanted[point] = int(nth or 1)
    if not wanted:
        return no_crash
    once = environ.get("STREAMER_CRASH_ONCE")
    return _Countdown(wanted, f"{once}.{name}" if once else None)


def no_crash(point: str) -> None:
    """Nobody asked for a crash."""
    del point


class _Countdown:
    def __init__(self, wanted: dict[str, int], once: str | None) -> None:
        self._left = wanted
        self._once = once
        self._lock = threading.Lock()

    def __call__(self, point: str) -> None:
        with self._lock:
            if point not in self._left:
                return
            self._left[point] -= 1
            if self._left[point] != 0 or not self._may_die(point):
                return
        if point == "in_commit":
            threading.Thread(target=_die_soon, daemon=True).start()
        else:
            _die()

    def _may_die(self, point: str) -> bool:
        if self._once is None:
            return True
        try:
            Path(f"{self._once}.{point}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_soon() -> None:
    time.sleep(_IN_COMMIT_S)
    _die()
