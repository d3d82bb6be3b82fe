"""One results record while rows of it wait: the decoded columns and where each answer lies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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


class Held:
    """A record and what it still holds.

    Attributes:
        record: as decoded.
        size: bytes of the record's value, for the bound on waiting bytes.
        head: what all rows of an output run must share.
        shape: what all its answers must share; None when no row succeeded.
    """

    __slots__ = ("_ends", "_errors", "head", "record", "shape", "size")

    def __init__(self, record: ResultRecord, size: int) -> None:
        self.record = record
        self.size = size
        self.head = RunHead(
            record.model, record.task, record.form, record.encoding, record.origin_topic,
            record.labels,
        )  # fmt: skip
        out = record.outputs
        self.shape = None if out is None else RunShape(out.kind, out.dtype, out.row_shape)
        self._ends: NDArray[np.int64] | None = None
        self._errors: dict[int, ItemError] | None = None

    def answer(self, row: int) -> memoryview:
        """The answer bytes of item ``row``; empty for one that did not succeed."""
        outputs = self.record.outputs
        if outputs is None:
            return memoryview(b"")
        if self._ends is None:
            self._ends = answer_ends(self.record)
        end = int(self._ends[row])
        start = int(self._ends[row - 1]) if row else 0
        return memoryview(outputs.data)[start:end]

    def error(self, row: int) -> ItemError | None:
        """Why item ``row`` has no answer."""
        if self._errors is None:
            self._errors = {error.row: error for error in self.record.errors}
        return self._errors.get(row)


def answer_ends(record: ResultRecord) -> NDArray[np.int64]:
    """int64 [n]: where the answer bytes of each item end in ``outputs.data``."""
    assert record.outputs is not None
    texts = np.where(record.status == SUCCEEDED, record.items.rows, 0).astype(np.int64)
    ends: NDArray[np.int64] = np.cumsum(texts) * record.outputs.row_bytes
    return ends
