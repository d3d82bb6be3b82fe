"""Where reading must start again after a crash.

    mark = min(lowest offset that holds something, read position)

An offset holds while a row of its record waits, or while a dead letter of it is unwritten.
Released, late and repeated rows hold nothing. Holds the invariant *prefix*: what lies below the
mark is never needed again.
"""

from __future__ import annotations

from collections import deque


class LowMark:
    """What each read offset of one results partition still holds.

    Args:
        start: offset at which reading begins: the committed mark.
    """

    __slots__ = ("_left", "_order", "position")

    def __init__(self, start: int) -> None:
        self.position = start
        self._order: deque[int] = deque()
        self._left: dict[int, int] = {}

    def delivered(self, offset: int) -> None:
        """Note that the record at ``offset`` was read."""
        if offset < self.position:
            raise AssertionError(f"offset {offset} delivered after {self.position - 1}")
        self.position = offset + 1

    def moved_to(self, position: int) -> None:
        """Note the position the client reports; it steps over markers and never back."""
        self.position = max(self.position, position)

    def hold(self, offset: int, count: int) -> None:
        """The record at ``offset`` holds ``count`` rows or dead letters."""
        self._order.append(offset)
        self._left[offset] = count

    def let_go(self, offset: int) -> bool:
        """One row or dead letter of the record at ``offset`` is done.

        Returns:
            Whether it holds nothing any more.
        """
        left = self._left[offset] - 1
        if left:
            self._left[offset] = left
            return False
        del self._left[offset]
        return True

    def mark(self) -> int:
        """The offset to commit."""
        order = self._order
        while order and order[0] not in self._left:
            order.popleft()
        return order[0] if order else self.position

    def __len__(self) -> int:
        return len(self._left)
