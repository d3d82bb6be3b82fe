"""Rows of one job, taken from many result records, become contiguous output runs.

A run is cut at ``items_max`` and ``bytes_max``, and where something changes that all rows of a run
share (model, task, form, encoding, labels, kind, dtype and shape of the answers). The running
digest is carried through row by row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamer.event.codes import ENCODINGS, FORMS, STATUSES, SUCCEEDED
from streamer.event.digest import running_digest
from streamer.event.records import (
    DIGEST_BYTES,
    ItemError,
    OutputRun,
    Outputs,
)
from streamer.reassemble.columns import gather
from streamer.reassemble.held import Held, RunHead, RunShape
from streamer.reassemble.job import Job

NO_DIGEST = bytes(DIGEST_BYTES)
NO_REASON = ItemError(row=0, code="corrupt_record", message="the reason was not recorded")
# Fixed columns of a row in the encoded run: 49 bytes, its receipt's number and length prefixes.
ROW_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """Bounds of one output run."""

    items_max: int
    bytes_max: int


class RunBuilder:
    """Takes a job's rows in index order and yields runs; advances the job as it goes.

    Args:
        job: its next index, digest, counts and origins move with every row.
        lane: fast or bulk.
        limits: where runs are cut.
    """

    def __init__(self, job: Job, *, lane: str, limits: RunLimits) -> None:
        self._job = job
        self._lane = lane
        self._limits = limits
        self.runs: list[OutputRun] = []
        self.bytes = 0
        self._clear()

    def _clear(self) -> None:
        self._first = self._job.next_index
        self._from: list[Held | None] = []
        self._row: list[int] = []
        self._status: list[int] = []
        self._answers: list[memoryview] = []
        self._digests: list[bytes] = []
        self._errors: list[ItemError] = []
        self._run_bytes = 0
        self._head: RunHead | None = None
        self._shape: RunShape | None = None

    def add(self, held: Held, row: int) -> None:
        """The next row is item ``row`` of ``held``."""
        columns = held.columns
        status = columns.status[row]
        answer = columns.data[columns.starts[row] : columns.starts[row + 1]]
        error = None if status == SUCCEEDED else held.error(row) or NO_REASON
        size = len(answer) + _names_bytes(held, row) + _error_bytes(error)
        if self._must_cut(held, status, size):
            self.cut()
        job = self._job
        if not job.form:
            job.form, job.encoding = held.head.form, held.head.encoding
        self._head = held.head
        if error is None:
            self._shape = held.shape
            self._answers.append(answer)
        else:
            self._note_error(error)
        partition, offset = columns.origin_partition[row], columns.origin_offset[row]
        if offset > job.released_origin.get(partition, -1):
            job.released_origin[partition] = offset
        digest = columns.digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES]
        self._run_bytes += size
        self._append(held, row, status, digest, answer)

    def add_hole(self, status: int, error: ItemError) -> None:
        """The next row has no result: it ends with ``status`` and without an answer."""
        size = ROW_BYTES + _error_bytes(error)
        if self._is_full(size):
            self.cut()
        if self._head is None:
            self._head = self._hole_head()
        self._note_error(error)
        self._run_bytes += size
        self._append(None, 0, status, NO_DIGEST, memoryview(b""))

    def _is_full(self, size: int) -> bool:
        rows, limits = len(self._row), self._limits
        return rows > 0 and (rows >= limits.items_max or self._run_bytes + size > limits.bytes_max)

    def _must_cut(self, held: Held, status: int, size: int) -> bool:
        if not self._row:
            return False
        if self._is_full(size) or (self._head is not held.head and self._head != held.head):
            return True
        return status == SUCCEEDED and self._shape is not None and self._shape != held.shape

    def _hole_head(self) -> RunHead:
        """What a run says of rows that nobody answered: what the job's other rows say."""
        job = self._job
        known = job.head or RunHead(job.model, "", "", "", "", None)
        return known._replace(
            form=job.form or job.descriptor_form or known.form or job.said_form or FORMS[0],
            encoding=job.encoding or known.encoding or ENCODINGS[0],
        )

    def _note_error(self, error: ItemError) -> None:
        at = len(self._row)
        self._errors.append(
            ItemError(row=at, code=error.code, message=error.message, retryable=error.retryable)
        )

    def _append(
        self, held: Held | None, row: int, status: int, digest: bytes, answer: memoryview
    ) -> None:
        job = self._job
        self._from.append(held)
        self._row.append(row)
        self._status.append(status)
        self._digests.append(digest)
        job.digest = running_digest(job.digest, job.next_index, status, digest, answer)
        job.counts[status if status < len(STATUSES) else 1] += 1
        job.next_index += 1

    def cut(self) -> None:
        """End the run under way, if it has rows."""
        if self._head is None:
            return
        model, task, form, encoding, origin_topic, labels = self._head
        items, input_tokens, receipts, receipt_at = gather(
            self._from, self._row, first=self._first, digests=self._digests
        )
        self.runs.append(
            OutputRun(
                lane=self._lane,
                tenant=self._job.tenant,
                job_id=self._job.job_id,
                model=model,
                task=task,
                form=form,
                encoding=encoding,
                origin_topic=origin_topic,
                first_index=self._first,
                items=items,
                status=np.array(self._status, dtype=np.uint8),
                outputs=self._outputs(),
                errors=tuple(self._errors),
                input_tokens=input_tokens,
                labels=labels,
                receipts=receipts,
                receipt_at=receipt_at,
                digest=self._job.digest,
            )
        )
        self.bytes += self._run_bytes
        self._clear()

    def _outputs(self) -> Outputs | None:
        if self._shape is None:
            return None
        kind, dtype, row_shape = self._shape
        return Outputs(kind=kind, dtype=dtype, row_shape=row_shape, data=b"".join(self._answers))


def _names_bytes(held: Held, row: int) -> int:
    """Bytes of a row besides its answer and error."""
    items = held.record.items
    size = ROW_BYTES + _text_bytes(items.custom_id[row])
    metadata = None if items.metadata is None else items.metadata[row]
    return size if metadata is None else size + _text_bytes(metadata)


def _error_bytes(error: ItemError | None) -> int:
    return 0 if error is None else 16 + len(error.code) + _text_bytes(error.message)


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
