"""Progress on stderr: a bar on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

_WINDOW_S = 10.0
_LINE_EVERY_S = 5.0


class Rate:
    """Items a second over the last seconds."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def note(self, at_s: float, count: int) -> float:
        """Note that ``count`` items are done at ``at_s``; the rate since the window began."""
        self._points.append((at_s, count))
        while len(self._points) > 2 and at_s - self._points[0][0] > _WINDOW_S:
            self._points.popleft()
        first_s, first = self._points[0]
        return (count - first) / (at_s - first_s) if at_s > first_s else 0.0


def eta_text(left: int, rate: float) -> str:
    """Time left, as ``1:02:03`` or ``-`` while nobody knows."""
    if rate <= 0 or left < 0:
        return "-"
    seconds = int(left / rate + 0.999)
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class JobProgress:
    """How far a job is, for people.

    Args:
        title: what is shown before the bar.
        total: items; -1 while nobody knows.
        quiet: show nothing.
    """

    def __init__(self, title: str, total: int, *, quiet: bool = False) -> None:
        self._title = title
        self._total = total
        self._quiet = quiet
        self._rate = Rate()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._said_at = 0.0

    def __enter__(self) -> Self:
        self._said_at = time.monotonic()
        if not self._quiet and sys.stderr.isatty():
            self._bar = Progress(
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]:.0f} items/s  ETA {task.fields[eta]}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                expand=True,
            )
            total = self._total if self._total >= 0 else None
            self._task = self._bar.add_task(self._title, total=total, rate=0.0, eta="-")
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, final: int, note: str = "") -> None:
        """``final`` rows are final; ``note`` stands behind a plain line."""
        now = time.monotonic()
        rate = self._rate.note(now, final)
        eta = eta_text(self._total - final, rate)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=final, rate=rate, eta=eta)
        elif not self._quiet and now - self._said_at >= _LINE_EVERY_S:
            self._said_at = now
            total = str(self._total) if self._total >= 0 else "?"
            print(
                f"{self._title}: {final}/{total} final, {rate:.0f} items/s, ETA {eta}{note}",
                file=sys.stderr,
                flush=True,
            )
