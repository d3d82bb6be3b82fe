"""Result records and job entries with defaults; a test says only what matters to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamer.event.codes import SUCCEEDED
from streamer.event.digest import input_digest
from streamer.event.records import (
    ItemColumns,
    ItemError,
    JobEntry,
    Outputs,
    Receipt,
    ResultRecord,
)

LANE = "bulk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One item's result; ``value`` stands for its answer, ``text`` for its input."""

    index: int
    value: float = 0.0
    text: str = ""
    origin: tuple[int, int] = (0, -1)
    status: int = SUCCEEDED
    texts: int = 1
    metadata: str | None = None

    @property
    def custom_id(self) -> str:
        """Names the row and its origin, so that a mix-up shows."""
        return f"c{self.index}@{self.origin[0]}:{self.origin[1]}"

    @property
    def digest(self) -> bytes:
        """Of the input."""
        return input_digest("embed", (self.text or f"text {self.index}").encode(), "{}")

    @property
    def answer(self) -> bytes:
        """Bytes of the answer."""
        if self.status != SUCCEEDED:
            return b""
        return np.full(2 * self.texts, self.value, dtype="<f4").tobytes()


def rows(*indices: int, value: float = 0.0, origin: int | None = None) -> list[Row]:
    """Rows of these indices; the request of index i lay at offset ``i`` (or ``origin``)."""
    return [Row(index=i, value=value, origin=(0, i if origin is None else origin)) for i in indices]


def a_result(
    items: Sequence[Row], *, job_id: str | None = "job", tenant: str = "default",
    lane: str = LANE, form: str = "avro", model: str = "m", kind: str = "embedding",
    encoding: str = "float", worker: str = "w0",
) -> ResultRecord:  # fmt: skip
    """A result record of these rows."""
    succeeded = [item for item in items if item.status == SUCCEEDED]
    has_metadata = any(item.metadata is not None for item in items)
    return ResultRecord(
        lane=lane,
        tenant=tenant,
        job_id=job_id,
        model=model,
        task="embed",
        form=form,
        encoding=encoding,
        origin_topic=f"requests.{lane}",
        items=ItemColumns(
            index=np.array([item.index for item in items], dtype=np.int64),
            custom_id=[item.custom_id for item in items],
            origin_partition=np.array([item.origin[0] for item in items], dtype=np.int32),
            origin_offset=np.array([item.origin[1] for item in items], dtype=np.int64),
            rows=np.array([item.texts for item in items], dtype=np.int32),
            metadata=[item.metadata for item in items] if has_metadata else None,
            input_digest=b"".join(item.digest for item in items),
            accepted_at_ms=np.full(len(items), 5, dtype=np.int64),
            flags=np.zeros(len(items), dtype=np.uint8),
        ),
        status=np.array([item.status for item in items], dtype=np.uint8),
        outputs=Outputs(
            kind=kind, dtype="f32", row_shape=(2,),
            data=b"".join(item.answer for item in succeeded),
        )
        if succeeded
        else None,
        errors=tuple(
            ItemError(row=at, code="model_error", message="failed")
            for at, item in enumerate(items)
            if item.status != SUCCEEDED
        ),
        input_tokens=np.full(len(items), 3, dtype=np.int32),
        labels=None,
        receipt=Receipt(revision="r1", worker=worker),
    )  # fmt: skip


def an_entry(
    kind: str = "seen", *, job_id: str = "job", tenant: str = "default", lane: str = LANE,
    total: int = -1, deadline_at_ms: int = 0, form: str = "",
) -> JobEntry:  # fmt: skip
    """Something said about a job."""
    return JobEntry(
        lane=lane, tenant=tenant, job_id=job_id, kind=kind, total=total,
        deadline_at_ms=deadline_at_ms, form=form,
    )  # fmt: skip
