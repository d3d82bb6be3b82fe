"""Collects the columns of an output run out of the result records its rows lie in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.event.records import ItemColumns, Receipt
from streamer.reassemble.held import Held

Gathered = tuple[ItemColumns, NDArray[np.int32], tuple[Receipt, ...], NDArray[np.uint16]]


def gather(
    sources: Sequence[Held | None], rows: Sequence[int], *, first: int, digests: Sequence[bytes]
) -> Gathered:
    """The columns of the rows ``rows[i]`` of ``sources[i]``, one after another.

    Args:
        sources: None stands for a hole: a row that never had a result.
        rows: position of each row in its source.
        first: index of the first row in the job; the others follow without a gap.
        digests: 16 bytes a row.

    Returns:
        Items, input tokens (int32), the receipts, and the receipt of each row (uint16).
    """
    count = len(rows)
    origin_partition = np.full(count, -1, dtype=np.int32)
    origin_offset = np.full(count, -1, dtype=np.int64)
    texts = np.zeros(count, dtype=np.int32)
    accepted_at_ms = np.zeros(count, dtype=np.int64)
    flags = np.zeros(count, dtype=np.uint8)
    input_tokens = np.zeros(count, dtype=np.int32)
    receipt_at = np.zeros(count, dtype=np.uint16)
    receipts: dict[Receipt, int] = {}
    for source, to, at in _by_source(sources, rows):
        if source is None:
            receipt_at[to] = receipts.setdefault(Receipt(), len(receipts))
            continue
        items = source.record.items
        origin_partition[to] = items.origin_partition[at]
        origin_offset[to] = items.origin_offset[at]
        texts[to] = items.rows[at]
        accepted_at_ms[to] = items.accepted_at_ms[at]
        flags[to] = items.flags[at]
        input_tokens[to] = source.record.input_tokens[at]
        receipt_at[to] = receipts.setdefault(source.record.receipt, len(receipts))
    columns = ItemColumns(
        index=np.arange(first, first + count, dtype=np.int64),
        custom_id=[
            "" if source is None else source.record.items.custom_id[row]
            for source, row in zip(sources, rows, strict=True)
        ],
        origin_partition=origin_partition,
        origin_offset=origin_offset,
        rows=texts,
        metadata=_metadata(sources, rows),
        input_digest=b"".join(digests),
        accepted_at_ms=accepted_at_ms,
        flags=flags,
    )
    return columns, input_tokens, tuple(receipts), receipt_at


def _by_source(
    sources: Sequence[Held | None], rows: Sequence[int]
) -> list[tuple[Held | None, list[int], list[int]]]:
    """Each source once, with the positions its rows go to and come from."""
    groups: dict[int, tuple[Held | None, list[int], list[int]]] = {}
    for to, source in enumerate(sources):
        group = groups.get(id(source))
        if group is None:
            group = groups[id(source)] = (source, [], [])
        group[1].append(to)
        group[2].append(rows[to])
    return list(groups.values())


def _metadata(sources: Sequence[Held | None], rows: Sequence[int]) -> list[str | None] | None:
    if all(source is None or source.record.items.metadata is None for source in sources):
        return None
    return [
        None
        if source is None or source.record.items.metadata is None
        else source.record.items.metadata[row]
        for source, row in zip(sources, rows, strict=True)
    ]
