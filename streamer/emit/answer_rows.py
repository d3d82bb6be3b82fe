"""The rows of a finished work record: checked, encoded, measured. Pure.

Rows are checked, never trusted: every value must be finite, before and after encoding, and one item
too large for a record of its own is refused alone. Bytes exist for succeeded rows only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.emit.encoding import encoded, finite_rows, row_shape_of, shaped
from streamer.event import codes
from streamer.event.records import ItemError, Receipt, WorkRecord

# Columns of one item besides its names and its answer: index, origin, digest, flags, times.
_ITEM_BYTES = 96


@dataclass(slots=True, kw_only=True)
class Answers:
    """What is known of a work record's items; filled while batches come back.

    Attributes:
        status: uint8 [n] of ``codes.STATUSES`` positions.
        errors: item -> why it has no answer, for every item that did not succeed.
        values: float32 [texts, ...] in the order of the record's texts, None before the first
            answer; only rows of succeeded items mean anything.
        kind: ``embedding``, ``scores``, ``labels``; "" while unknown.
        labels: class names of the last axis, when there are any.
        culprits: items that made the engine fail.
    """

    work: WorkRecord
    status: NDArray[np.uint8]
    receipt: Receipt
    errors: dict[int, ItemError] = field(default_factory=dict)
    values: NDArray[np.float32] | None = None
    kind: str = ""
    labels: tuple[str, ...] | None = None
    culprits: set[int] = field(default_factory=set)

    def fail(self, row: int, code: str, message: str, *, retryable: bool = False) -> None:
        """Item ``row`` ends without an answer."""
        self.status[row] = codes.EXPIRED if code == "expired" else codes.ERRORED
        self.errors[row] = ItemError(row=row, code=code, message=message, retryable=retryable)


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """All items of a work record, encoded; the records are cut from it.

    ``data`` holds the texts of the succeeded items only, ``first`` where each item begins in it.
    """

    data: NDArray[Any]
    dtype: str
    first: NDArray[np.int64]
    sizes: NDArray[np.int64]
    tokens: NDArray[np.int32]


def encode_rows(answers: Answers, bytes_max: int) -> EncodedRows:
    """Encode what succeeded; items that turn out wrong on the way are errored in ``answers``.

    Args:
        answers: of a record whose items have all ended.
        bytes_max: of one item with everything that goes with it.
    """
    return _refuse_large(answers, _encode(answers), bytes_max)


def text_bounds(rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """Where each item's texts begin and the last one's end: int64 [n + 1]."""
    bounds = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(rows, out=bounds[1:])
    return bounds


def tokens_per_item(work: WorkRecord) -> NDArray[np.int32]:
    """Tokens of all texts of each item: int32 [n]."""
    ends = np.zeros(len(work.lengths) + 1, dtype=np.int64)
    np.cumsum(work.lengths, out=ends[1:])
    bounds = text_bounds(work.items.rows)
    return (ends[bounds[1:]] - ends[bounds[:-1]]).astype(np.int32)


def _encode(answers: Answers) -> EncodedRows:
    """Check and encode; items with a value that is not finite are errored on the way."""
    work = answers.work
    bounds = text_bounds(work.items.rows)
    tokens = tokens_per_item(work)
    values = answers.values
    if values is None:
        values = np.zeros((int(bounds[-1]), 0), dtype=np.float32)
    _refuse_non_finite(answers, finite_rows(values), bounds)
    # Rows without an answer may hold anything; zeros keep the arithmetic below quiet.
    succeeded = np.repeat(answers.status == codes.SUCCEEDED, work.items.rows)
    kept = values if succeeded.all() else values[succeeded]
    dtype, data = encoded(
        shaped(kept, row_shape_of(work.params), answers.kind), work.encoding, answers.kind
    )
    finite = finite_rows(data)
    if not finite.all():
        whole = np.ones(len(values), dtype=np.bool_)
        whole[succeeded] = finite
        _refuse_non_finite(answers, whole, bounds)
        still = np.repeat(answers.status == codes.SUCCEEDED, work.items.rows)
        data = data[still[succeeded]]
    counts = np.where(answers.status == codes.SUCCEEDED, work.items.rows, 0)
    first = text_bounds(counts.astype(np.int32))
    row_bytes = data[:1].nbytes
    return EncodedRows(data, dtype, first, counts * row_bytes + _overhead(work), tokens)


def _refuse_non_finite(
    answers: Answers, finite: NDArray[np.bool_], bounds: NDArray[np.int64]
) -> None:
    if finite.all():
        return
    bad = np.searchsorted(bounds, np.flatnonzero(~finite), side="right") - 1
    for row in np.unique(bad).tolist():
        if answers.status[row] == codes.SUCCEEDED:
            answers.fail(
                row, "non_finite_output",
                "the model answered NaN or infinity; check the input, or try another "
                "encoding_format or model",
            )  # fmt: skip


def _overhead(work: WorkRecord) -> NDArray[np.int64]:
    """Predicted bytes of each item beside its answer: int64 [n]."""
    sizes = [len(name) * 4 + _ITEM_BYTES for name in work.items.custom_id]
    if work.items.metadata is not None:
        sizes = [
            size + (0 if text is None else len(text.encode()))
            for size, text in zip(sizes, work.items.metadata, strict=True)
        ]
    return np.asarray(sizes, dtype=np.int64)


def _refuse_large(answers: Answers, rows: EncodedRows, bytes_max: int) -> EncodedRows:
    """Error every item that is too large for a record of its own."""
    if int(rows.sizes.max(initial=0)) <= bytes_max:
        return rows
    items = answers.work.items
    large = np.flatnonzero(rows.sizes > bytes_max).tolist()
    before = answers.status == codes.SUCCEEDED
    for row in large:
        if before[row]:
            answers.fail(
                row, "result_too_large",
                f"the answer of {int(rows.sizes[row])} bytes is above the limit of {bytes_max}; "
                "send fewer texts an item, or ask for fewer dimensions or a smaller "
                "encoding_format",
            )  # fmt: skip
    if items.metadata is not None:
        # Metadata that fills a record by itself cannot be echoed; the item is still answered.
        plain = _overhead(answers.work)
        metadata = [
            None if plain[row] > bytes_max else text for row, text in enumerate(items.metadata)
        ]
        answers.work = replace(answers.work, items=replace(items, metadata=metadata))
    after = answers.status == codes.SUCCEEDED
    texts_before = np.where(before, items.rows, 0)
    counts = np.where(after, items.rows, 0)
    data = rows.data[np.repeat(after, texts_before)]
    sizes = counts * rows.data[:1].nbytes + _overhead(answers.work)
    return EncodedRows(data, rows.dtype, text_bounds(counts.astype(np.int32)), sizes, rows.tokens)
