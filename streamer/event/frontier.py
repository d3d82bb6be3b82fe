"""The frontier of one partition: work finishes out of order, offsets move in order.

Only offsets that were *delivered* are tracked, so transaction markers and compaction gaps need no
special case. Keeps the invariant *prefix*: ``committable`` never passes an unfinished offset.

    delivered   3 4 7 8 9        (5 and 6 are markers)
    finished    3   7 8
    committable 4                (4 is delivered and not finished)
"""

from __future__ import annotations

from collections import deque


class Frontier:
    """Delivered and finished offsets of one partition in one epoch.

    Args:
        epoch: the assignment epoch; the caller drops what carries another one.
        start: the committed offset at which reading began.
    """

    def __init__(self, *, epoch: int, start: int) -> None:
        self.epoch = epoch
        self._start = start
        self._next = start
        self._open: deque[int] = deque()
        self._finished: set[int] = set()

    def track(self, offset: int) -> None:
        """Note a delivered offset; offsets arrive in ascending order."""
        if offset < self._next:
            raise AssertionError(f"offset {offset} delivered after {self._next - 1}")
        self._open.append(offset)
        self._next = offset + 1

    def finish(self, offset: int) -> None:
        """Note that the record at ``offset`` needs no more work."""
        self._finished.add(offset)

    def finished_prefix(self) -> list[int]:
        """The delivered offsets of the contiguous finished prefix, oldest first."""
        prefix = []
        for offset in self._open:
            if offset not in self._finished:
                break
            prefix.append(offset)
        return prefix

    def committable(self, upto: int | None = None) -> int:
        """The offset that covers the finished prefix (or the prefix up to offset ``upto``)."""
        covered = None
        for offset in self._open:
            if offset not in self._finished or (upto is not None and offset > upto):
                return offset
            covered = offset
        return self._start if covered is None and not self._open else self._next

    def advance(self, committed: int) -> None:
        """Forget everything below the committed offset."""
        while self._open and self._open[0] < committed:
            self._finished.discard(self._open.popleft())
        self._start = max(self._start, committed)

    @property
    def open_count(self) -> int:
        """Delivered offsets above the committed one, finished or not."""
        return len(self._open)

    @property
    def oldest_open(self) -> int | None:
        """The lowest delivered offset not yet advanced over."""
        return self._open[0] if self._open else None

    @property
    def position(self) -> int:
        """One past the highest delivered offset, or the start."""
        return self._next
