"""Columns of n items to and from little-endian bytes, and whether they agree with each other.

Shared by work, result and output. :class:`Inconsistent` at encoding is our bug; at decoding the
codec turns it into a dead letter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from streamer.event.codes import SUCCEEDED
from streamer.event.records import DIGEST_BYTES, ItemColumns, ItemError, Outputs, Receipt

MAX_ITEMS: Final = 16_384
MAX_SIDE: Final = 1 << 20
KINDS: Final = ("embedding", "scores", "labels")
DTYPES: Final = {"f32": 4, "f16": 2, "i8": 1, "u1": 1}
_MAX_SHAPE = 4

_RECEIPT_FIELDS: Final = (
    "revision", "tokenizer_hash", "dtype", "batch_size", "padded_tokens", "attempt",
    "source_partition", "source_offset", "worker",
)  # fmt: skip


class Inconsistent(ValueError):
    """Columns of a record that contradict each other."""


def pack(values: ArrayLike, dtype: DTypeLike) -> bytes:
    """The bytes of a column."""
    return np.asarray(values, dtype=dtype).tobytes()


def unpack(data: bytes, dtype: DTypeLike, count: int, name: str) -> NDArray[Any]:
    """A column of ``count`` values; the array shares the bytes and is read-only."""
    kind = np.dtype(dtype)
    if len(data) != count * kind.itemsize:
        raise Inconsistent(f"column {name}: {len(data)} bytes for {count} values of {kind}")
    return np.frombuffer(data, dtype=kind)


def expect(holds: bool, message: str) -> None:
    """Raise :class:`Inconsistent` unless it holds."""
    if not holds:
        raise Inconsistent(message)


def total_of(counts: NDArray[np.int32], name: str) -> int:
    """The sum of a column of counts, none of them negative."""
    if len(counts) and int(counts.min()) < 0:
        raise Inconsistent(f"column {name}: negative value")
    return int(counts.sum(dtype=np.int64))


def items_datum(items: ItemColumns) -> dict[str, Any]:
    """The ``Items`` part of a record."""
    check_items(items)
    return {
        "index": pack(items.index, "<i8"),
        "custom_id": items.custom_id,
        "origin_partition": pack(items.origin_partition, "<i4"),
        "origin_offset": pack(items.origin_offset, "<i8"),
        "rows": pack(items.rows, "<i4"),
        "metadata": None if items.metadata is None else ("array", items.metadata),
        "input_digest": items.input_digest,
        "accepted_at_ms": pack(items.accepted_at_ms, "<i8"),
        "flags": pack(items.flags, "u1"),
    }


def items_of(datum: Mapping[str, Any]) -> ItemColumns:
    """The item columns of an ``Items`` part; lengths are checked."""
    count = len(datum["custom_id"])
    items = ItemColumns(
        index=unpack(datum["index"], "<i8", count, "index"),
        custom_id=datum["custom_id"],
        origin_partition=unpack(datum["origin_partition"], "<i4", count, "origin_partition"),
        origin_offset=unpack(datum["origin_offset"], "<i8", count, "origin_offset"),
        rows=unpack(datum["rows"], "<i4", count, "rows"),
        metadata=datum["metadata"],
        input_digest=datum["input_digest"],
        accepted_at_ms=unpack(datum["accepted_at_ms"], "<i8", count, "accepted_at_ms"),
        flags=unpack(datum["flags"], "u1", count, "flags"),
    )
    check_items(items)
    return items


def check_items(items: ItemColumns) -> None:
    """Raise :class:`Inconsistent` unless all columns have one entry an item."""
    count = len(items)
    expect(0 < count <= MAX_ITEMS, f"{count} items; 1 to {MAX_ITEMS} are possible")
    for column in (
        items.index, items.origin_partition, items.origin_offset, items.rows,
        items.accepted_at_ms, items.flags,
    ):  # fmt: skip
        if len(column) != count:
            raise Inconsistent(f"a column has {len(column)} entries for {count} items")
    expect(len(items.input_digest) == count * DIGEST_BYTES, "column input_digest: wrong length")
    if items.metadata is not None:
        expect(len(items.metadata) == count, "column metadata: wrong length")
    total_of(items.rows, "rows")


def outputs_datum(outputs: Outputs | None) -> tuple[str, dict[str, Any]] | None:
    """The ``Outputs`` part of a record, named so that the union needs no guessing."""
    if outputs is None:
        return None
    return "streamer.Outputs", {
        "kind": outputs.kind,
        "dtype": outputs.dtype,
        "row_shape": list(outputs.row_shape),
        "data": bytes(outputs.data),
    }


def outputs_of(datum: Mapping[str, Any] | None) -> Outputs | None:
    """The answers of an ``Outputs`` part."""
    if datum is None:
        return None
    return Outputs(
        kind=datum["kind"],
        dtype=datum["dtype"],
        row_shape=tuple(datum["row_shape"]),
        data=datum["data"],
    )


def check_answers(
    items: ItemColumns,
    status: NDArray[np.uint8],
    outputs: Outputs | None,
    errors: Sequence[ItemError],
    labels: Sequence[str] | None,
) -> None:
    """Raise :class:`Inconsistent` unless succeeded rows, and only they, have bytes."""
    expect(len(status) == len(items), "column status: wrong length")
    succeeded = status == SUCCEEDED
    answered = items.rows[succeeded]
    texts = int(answered.sum(dtype=np.int64))
    expect(bool((answered > 0).all()), "a succeeded item of no text")
    if outputs is None:
        expect(texts == 0, "succeeded items without outputs")
    else:
        _check_outputs(outputs, texts, labels)
    seen = set()
    for error in errors:
        expect(0 <= error.row < len(items), "an error names no item")
        expect(not succeeded[error.row], "an error names a succeeded item")
        expect(error.row not in seen, "two errors name one item")
        seen.add(error.row)


def _check_outputs(outputs: Outputs, texts: int, labels: Sequence[str] | None) -> None:
    shape = outputs.row_shape
    expect(outputs.kind in KINDS, "outputs: unknown kind")
    expect(outputs.dtype in DTYPES, "outputs: unknown dtype")
    expect(len(shape) <= _MAX_SHAPE, "outputs: too many dimensions")
    expect(outputs.kind != "labels" or len(shape) > 0, "outputs: labels without a column")
    expect(all(0 < side <= MAX_SIDE for side in shape), "outputs: impossible shape")
    expect(len(outputs.data) == texts * outputs.row_bytes, "outputs: wrong number of bytes")
    if labels is not None and shape:
        expect(len(labels) == shape[-1], "labels: not one a column")


def errors_datum(errors: Sequence[ItemError]) -> list[dict[str, Any]]:
    """The ``errors`` part of a record."""
    return [
        {"row": e.row, "code": e.code, "message": e.message, "retryable": e.retryable}
        for e in errors
    ]


def errors_of(datum: Sequence[Mapping[str, Any]]) -> tuple[ItemError, ...]:
    """The errors of an ``errors`` part."""
    expect(len(datum) <= MAX_ITEMS, "too many errors")
    return tuple(ItemError(**entry) for entry in datum)


def receipt_datum(receipt: Receipt) -> dict[str, Any]:
    """The ``Receipt`` part of a record."""
    datum: dict[str, Any] = {name: getattr(receipt, name) for name in _RECEIPT_FIELDS}
    datum["batch_ids"] = list(receipt.batch_ids)
    return datum


def receipt_of(datum: dict[str, Any]) -> Receipt:
    """The receipt of a ``Receipt`` part."""
    return Receipt(**{**datum, "batch_ids": tuple(datum["batch_ids"])})
