"""One results record while rows of it wait: the decoded columns and where each answer lies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamer.event.codes import SUCCEEDED
from streamer.event.records import ItemError, ResultRecord


class RunHead(NamedTuple):
    """What all rows of an output run share."""

    model: str
    task: str
    form: str
    encoding: str
    origin_topic: str
    labels: tuple[str, ...] | None


class RunShape(NamedTuple):
    """What all answers of an output run share."""

    kind: str
    dtype: str
    row_shape: tuple[int, ...]


class Columns(NamedTuple):
    """Rows of a record as plain lists: single numbers out of arrays cost ten times as much.

    The answer of row i is ``data[starts[i] : starts[i + 1]]``.
    """

    status: list[int]
    starts: list[int]
    data: memoryview
    digests: bytes
    origin_partition: list[int]
    origin_offset: list[int]


class Held:
    """A record and what it still holds.

    Attributes:
        record: as decoded.
        size: bytes of the record's value, for the bound on waiting bytes.
        head: what all rows of an output run must share.
        shape: what all its answers must share; None when no row succeeded.
    """

    __slots__ = ("_columns", "_errors", "head", "record", "shape", "size")

    def __init__(self, record: ResultRecord, size: int) -> None:
        self.record = record
        self.size = size
        self.head = RunHead(
            record.model, record.task, record.form, record.encoding, record.origin_topic,
            record.labels,
        )  # fmt: skip
        out = record.outputs
        self.shape = None if out is None else RunShape(out.kind, out.dtype, out.row_shape)
        self._columns: Columns | None = None
        self._errors: dict[int, ItemError] | None = None

    @property
    def columns(self) -> Columns:
        """What release looks at row by row, as plain lists; made when the first row leaves."""
        if self._columns is None:
            self._columns = _columns_of(self.record)
        return self._columns

    def error(self, row: int) -> ItemError | None:
        """Why item ``row`` has no answer."""
        if self._errors is None:
            self._errors = {error.row: error for error in self.record.errors}
        return self._errors.get(row)


def _columns_of(record: ResultRecord) -> Columns:
    items, outputs = record.items, record.outputs
    status = record.status.tolist()
    if outputs is None:
        ends = [0] * len(items)
        data = memoryview(b"")
    else:
        texts = np.where(record.status == SUCCEEDED, items.rows, 0).astype(np.int64)
        ends = (np.cumsum(texts) * outputs.row_bytes).tolist()
        data = memoryview(outputs.data)
    return Columns(
        status=status,
        starts=[0, *ends],
        data=data,
        digests=items.input_digest,
        origin_partition=items.origin_partition.tolist(),
        origin_offset=items.origin_offset.tolist(),
    )
