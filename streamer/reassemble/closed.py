"""Jobs that have ended: a small mark each, so that what arrives for them is known.

A mark is packed bytes (16 + 12 for every requests partition), because a million one-item jobs may
be remembered for days. It goes, with a tombstone, when the time is over *and* the committed mark
has passed the last result of the job; else a replay would open the job again.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping

_HEAD = struct.Struct("<qq")  # closed_at_ms, last_offset
_ORIGIN = struct.Struct("<iq")  # requests partition, highest released origin offset


class ClosedMarks:
    """The closed marks of one partition, oldest first."""

    __slots__ = ("_marks", "_order")

    def __init__(self) -> None:
        self._marks: dict[bytes, bytes] = {}
        self._order: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._marks)

    def __contains__(self, key: bytes) -> bool:
        return key in self._marks

    def add(
        self, key: bytes, *, closed_at_ms: int, last_offset: int, origins: Mapping[int, int]
    ) -> None:
        """Remember the ended job ``key``; marks come in order of ``closed_at_ms``."""
        packed = b"".join(_ORIGIN.pack(*pair) for pair in origins.items())
        if key not in self._marks:
            self._order.append(key)
        self._marks[key] = _HEAD.pack(closed_at_ms, last_offset) + packed

    def is_repeat_of_released(self, key: bytes, *, partition: int, offset: int) -> bool:
        """Whether a row of that origin may have been released by the job."""
        packed = self._marks[key]
        for at in range(_HEAD.size, len(packed), _ORIGIN.size):
            known, highest = _ORIGIN.unpack_from(packed, at)
            if known == partition:
                return bool(offset <= highest)
        return False

    def saw_result(self, key: bytes, offset: int) -> None:
        """Note that a result of the ended job lies at ``offset``."""
        packed = self._marks[key]
        closed_at_ms, last_offset = _HEAD.unpack_from(packed)
        if offset > last_offset:
            head = _HEAD.pack(closed_at_ms, offset)
            self._marks[key] = head + packed[_HEAD.size :]

    def is_due(self, *, wall_ms: int, keep_ms: int, mark: int) -> bool:
        """Whether the oldest mark may go: kept long enough and below the committed ``mark``."""
        if not self._order:
            return False
        closed_at_ms, last_offset = _HEAD.unpack_from(self._marks[self._order[0]])
        return bool(closed_at_ms + keep_ms <= wall_ms and last_offset < mark)

    def take_oldest(self) -> bytes:
        """Forget the oldest mark and return its job key."""
        key = self._order.popleft()
        del self._marks[key]
        return key

    def next_ms(self, keep_ms: int) -> int | None:
        """Unix ms at which the oldest mark has been kept long enough."""
        if not self._order:
            return None
        closed_at_ms, _ = _HEAD.unpack_from(self._marks[self._order[0]])
        return int(closed_at_ms) + keep_ms
