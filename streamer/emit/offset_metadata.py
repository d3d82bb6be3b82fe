"""What travels beside a committed offset: how often the record there was begun.

Attempts kept in memory die with the process, and the record that kills a process is replayed first.
So the count stands in the offset metadata: a partition that is assigned again at the same offset
was begun and not finished.

    committed 40, metadata {offset 40, attempts 0}   begun once, not finished   -> attempts 1
    committed 52, metadata {offset 40, attempts 3}   moved on since             -> attempts 0

The text is versioned, readable with Kafka's own tools and far below the broker's 4,096 bytes.
Whatever cannot be read counts as nothing known: metadata is a hint and never decides correctness.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeGuard

VERSION = 1
METADATA_BYTES_MAX = 4_096
_COUNT_MAX = 1 << 31
_OFFSET_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMetadata:
    """The attempts at one offset of a partition.

    Attributes:
        attempts: begun and unfinished runs before this one.
        offset: the committed offset the count belongs to.
        rows: first row and one past the last row under suspicion in the record at ``offset``;
            None = all of them.
    """

    attempts: int
    offset: int
    rows: tuple[int, int] | None = None


def encode_metadata(metadata: OffsetMetadata) -> str:
    """The text to commit beside the offset."""
    fields: dict[str, object] = {
        "v": VERSION,
        "attempts": min(metadata.attempts, _COUNT_MAX),
        "offset": metadata.offset,
    }
    if metadata.rows is not None:
        fields["rows"] = list(metadata.rows)
    return json.dumps(fields, separators=(",", ":"))


def parse_metadata(text: str) -> OffsetMetadata | None:
    """What ``text`` says, or None when it is empty, foreign, of a later version or garbled."""
    if not text or len(text) > METADATA_BYTES_MAX:
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or fields.get("v") != VERSION:
        return None
    attempts, offset = fields.get("attempts"), fields.get("offset")
    if not _is_count(attempts, _COUNT_MAX) or not _is_count(offset, _OFFSET_MAX):
        return None
    rows = _rows(fields.get("rows"))
    return OffsetMetadata(attempts=attempts, offset=offset, rows=rows)


def at_assignment(offset: int, text: str) -> OffsetMetadata:
    """What to commit before the first launch of a partition that starts at ``offset``."""
    known = parse_metadata(text)
    if known is None or known.offset != offset:
        return OffsetMetadata(attempts=0, offset=offset)
    return OffsetMetadata(attempts=known.attempts + 1, offset=offset, rows=known.rows)


def _is_count(value: object, highest: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= highest


def _rows(value: object) -> tuple[int, int] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    first, last = value
    if not _is_count(first, _COUNT_MAX) or not _is_count(last, _COUNT_MAX) or first >= last:
        return None
    return first, last
