"""Rows that wait for their turn: 8 bytes each, found by index.

A row's *place* is one integer: results offset shifted by 16, plus the row in that record. The
indices of a job fill chunks of 64 places, so a dense window costs about 11 bytes a row and a
single far-away index about 700.

    index    64  65  66  67 …
    place    -1  (812 << 16 | 3)  -1  (807 << 16 | 0) …
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

ROWS_MAX: Final = 1 << 16
ROW_BITS: Final = 16
ROW_MASK: Final = ROWS_MAX - 1
_SHIFT: Final = 6
_CHUNK: Final = 1 << _SHIFT
_LAST: Final = _CHUNK - 1
_EMPTY: Final = array("q", [-1]) * _CHUNK


class WaitingRows:
    """The places of one job's waiting rows.

    Attributes:
        count: rows waiting.
        highest: highest index that ever waited, -1 without any.
    """

    __slots__ = ("_chunks", "count", "highest")

    def __init__(self) -> None:
        self._chunks: dict[int, array[int]] = {}
        self.count = 0
        self.highest = -1

    def __len__(self) -> int:
        return self.count

    def place_of(self, index: int) -> int:
        """The place of the row ``index``, -1 when it does not wait."""
        chunk = self._chunks.get(index >> _SHIFT)
        return -1 if chunk is None else chunk[index & _LAST]

    def put(self, index: int, place: int) -> int:
        """Let the row wait; a row that already waits under this index stays.

        Returns:
            -1, or the place of the row that already waits.
        """
        number = index >> _SHIFT
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = _EMPTY[:]
        before = chunk[index & _LAST]
        if before >= 0:
            return before
        chunk[index & _LAST] = place
        self.count += 1
        if index > self.highest:
            self.highest = index
        return -1

    def pop_run(self, start: int, count_max: int) -> list[int]:
        """Take the places of ``start``, ``start + 1``, … up to the first hole."""
        places: list[int] = []
        index = start
        end = start + count_max
        while index < end:
            chunk = self._chunks.get(index >> _SHIFT)
            if chunk is None:
                break
            place = chunk[index & _LAST]
            if place < 0:
                break
            places.append(place)
            index += 1
            if index & _LAST == 0:
                # Everything in and below this chunk is released: indices leave in order.
                del self._chunks[(index - 1) >> _SHIFT]
            else:
                chunk[(index - 1) & _LAST] = -1
        self.count -= len(places)
        if self.count == 0:
            self._chunks.clear()
        return places

    def passed(self, start: int, end: int) -> None:
        """Note that the holes from ``start`` to ``end`` are filled: nothing waits there."""
        if start >> _SHIFT != end >> _SHIFT:
            self._chunks.pop(start >> _SHIFT, None)

    def reach(self, start: int, holes_max: int) -> tuple[int, int]:
        """How far rows lie from ``start`` on with no more than ``holes_max`` holes before them.

        Returns:
            One past the last such row (or ``start``), and the holes below it.
        """
        end, holes = start, 0
        if self.highest + 1 - start - self.count <= holes_max:
            end = max(start, self.highest + 1)
            return end, max(0, end - start - self.count)
        for index, _ in self:
            if holes + index - end > holes_max:
                break
            holes += index - end
            end = index + 1
        return end, holes

    def pop_from(self, start: int) -> list[tuple[int, int]]:
        """Take every (index, place) at or above ``start``, in index order."""
        taken: list[tuple[int, int]] = []
        for number in sorted(number for number in self._chunks if number >= start >> _SHIFT):
            chunk = self._chunks[number]
            base = number << _SHIFT
            for at in range(max(0, start - base), _CHUNK):
                if chunk[at] >= 0:
                    taken.append((base + at, chunk[at]))
                    chunk[at] = -1
        self.count -= len(taken)
        if self.count == 0:
            self._chunks.clear()
        self.highest = min(self.highest, start - 1)
        return taken

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for number in sorted(self._chunks):
            for at, place in enumerate(self._chunks[number]):
                if place >= 0:
                    yield (number << _SHIFT) + at, place
