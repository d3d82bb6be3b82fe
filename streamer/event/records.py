"""The records that travel between the stages, column by column.

Numeric columns are numpy arrays (one entry an item unless said otherwise), because they leave and
arrive as little-endian bytes: decoding is ``frombuffer``, grouping is indexing. What all items of a
record share stands once in it. Nothing here knows Avro, JSON or Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamer.event.control_records import (
    DIGEST_BYTES,
    BucketPlan,
    Completion,
    DeadLetter,
    Fact,
    JobEntry,
    JobState,
)

__all__ = [
    "DIGEST_BYTES", "BucketPlan", "Completion", "DeadLetter", "Fact", "InferenceRequest",
    "InputRow", "ItemColumns", "ItemError", "JobEntry", "JobState", "OutputRun", "Outputs",
    "Receipt", "ResultRecord", "WorkRecord", "concat_items",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow:
    """One text, one pair of texts, or the token ids of one text made by the caller."""

    text: str | None = None
    pair: str | None = None
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRequest:
    """One item as a user wrote it, decoded and checked for types but not yet admitted.

    Attributes:
        custom_id: the caller's name of the item, echoed, never a key; at most 256 characters.
        rows: the texts of the item; a list input has several rows and is still one item.
        is_list: whether the caller sent a list (an item of one text answers with one vector,
            a list of one text with a list of one vector).
        job_id, index, total: place in a job; ``index`` and ``job_id`` come together.
        params: only what the caller set, already checked for types.
        deadline_at_ms: absolute Unix time; ``timeout_ms`` counts from the append time.
        form: how the caller wrote it and wants the answer: ``json`` or ``avro``.
        invalid: (code, message) when the sender itself found the line broken, or when decoding
            got as far as (job, index) and then failed; the item is answered errored with it.
        input_canonical: bytes of the input as received, for the input digest.
    """

    custom_id: str
    model: str
    rows: tuple[InputRow, ...]
    is_list: bool = False
    job_id: str | None = None
    index: int | None = None
    total: int | None = None
    task: str | None = None
    params: Mapping[str, object] = field(default_factory=dict)
    deadline_at_ms: int | None = None
    timeout_ms: int | None = None
    tenant: str = "default"
    reply_to: int | None = None
    lane: str | None = None
    metadata: str | None = None
    created_at_ms: int = 0
    form: str = "json"
    invalid: tuple[str, str] | None = None
    input_canonical: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemColumns:
    """What identifies n items from route to output.

    Attributes:
        index: int64 [n], place in the job; -1 without a job.
        custom_id: n strings.
        origin_partition: int32 [n], partition of the request record in ``requests.<lane>``.
        origin_offset: int64 [n], its offset.
        rows: int32 [n], texts of the item; 0 is possible for refused items.
        metadata: n JSON texts or None, or None when no item has any.
        input_digest: 16 bytes an item, concatenated.
        accepted_at_ms: int64 [n], LogAppendTime of the request record.
        flags: uint8 [n], bits of ``codes.FLAG_*``, plus bit 2 (``FLAG_LIST``) for list inputs.
    """

    index: NDArray[np.int64]
    custom_id: list[str]
    origin_partition: NDArray[np.int32]
    origin_offset: NDArray[np.int64]
    rows: NDArray[np.int32]
    metadata: list[str | None] | None
    input_digest: bytes
    accepted_at_ms: NDArray[np.int64]
    flags: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.custom_id)

    def digest_of(self, row: int) -> bytes:
        """The 16-byte input digest of item ``row``."""
        return self.input_digest[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES]

    def take(self, picked: list[int] | NDArray[np.int64]) -> ItemColumns:
        """The columns of the items at the picked positions, in that order."""
        at = np.asarray(picked, dtype=np.int64)
        digests = np.frombuffer(self.input_digest, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
        return ItemColumns(
            index=self.index[at],
            custom_id=[self.custom_id[i] for i in at],
            origin_partition=self.origin_partition[at],
            origin_offset=self.origin_offset[at],
            rows=self.rows[at],
            metadata=None if self.metadata is None else [self.metadata[i] for i in at],
            input_digest=digests[at].tobytes(),
            accepted_at_ms=self.accepted_at_ms[at],
            flags=self.flags[at],
        )


def concat_items(parts: list[ItemColumns]) -> ItemColumns:
    """The items of all parts, one after another."""
    with_metadata = any(part.metadata is not None for part in parts)
    metadata: list[str | None] = []
    for part in parts:
        metadata.extend(part.metadata if part.metadata is not None else [None] * len(part))
    return ItemColumns(
        index=np.concatenate([part.index for part in parts]),
        custom_id=[name for part in parts for name in part.custom_id],
        origin_partition=np.concatenate([part.origin_partition for part in parts]),
        origin_offset=np.concatenate([part.origin_offset for part in parts]),
        rows=np.concatenate([part.rows for part in parts]),
        metadata=metadata if with_metadata else None,
        input_digest=b"".join(part.input_digest for part in parts),
        accepted_at_ms=np.concatenate([part.accepted_at_ms for part in parts]),
        flags=np.concatenate([part.flags for part in parts]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRecord:
    """One group of items for one model, tokenized; the unit of the frontier in work.

    Attributes:
        tokenizer_hash: ids of another tokenizer give right-looking vectors, so a worker
            refuses a record whose hash is not its model's.
        params: canonical JSON of the effective parameters; ``params_key`` is its hash.
        lengths: int32 [sum of rows], tokens of each text.
        token_ids: uint16 or uint32 [sum of lengths], all texts one after another.
        pair_at: int32 [sum of rows], position where the second segment begins, 0 = single
            text; None when no text is a pair.
        deadline_at_ms: int64 [n], 0 = none.
        text: the texts, only for engines that need them.
    """

    lane: str
    model: str
    revision: str
    tokenizer_hash: str
    task: str
    params: str
    params_key: str
    tenant: str
    job_id: str | None
    form: str
    encoding: str
    reply_to: int | None
    origin_topic: str
    plan_version: int
    group_reason: str
    items: ItemColumns
    lengths: NDArray[np.int32]
    token_ids: NDArray[np.uint16] | NDArray[np.uint32]
    pair_at: NDArray[np.int32] | None
    deadline_at_ms: NDArray[np.int64]
    text: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """The answers of the succeeded items of a record, in order; no bytes for the others.

    Attributes:
        kind: ``embedding``, ``scores``, ``labels`` or ``text``.
        dtype: ``f32 f16 i8 u1`` (``u1`` = packed bits), little endian.
        row_shape: shape of one text's answer, e.g. (384,); () for one score.
        data: texts × prod(row_shape) values.
    """

    kind: str
    dtype: str
    row_shape: tuple[int, ...]
    data: bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of one text's answer."""
        values = 1
        for side in self.row_shape:
            values *= side
        return values * {"f32": 4, "f16": 2, "i8": 1, "u1": 1}[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemError:
    """Why item ``row`` of a record has no answer."""

    row: int
    code: str
    message: str
    retryable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """How the answers of one result record came about."""

    revision: str = ""
    tokenizer_hash: str = ""
    dtype: str = ""
    batch_ids: tuple[str, ...] = ()
    batch_size: int = 0
    padded_tokens: int = 0
    attempt: int = 1
    source_partition: int = -1
    source_offset: int = -1
    worker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRecord:
    """Proposed terminal rows of some items of one work record (or of route's refusals).

    Attributes:
        status: uint8 [n], ``codes.STATUSES`` positions.
        outputs: answers of the succeeded items; None when none succeeded.
        errors: sparse, one entry for each item that did not succeed.
        input_tokens: int32 [n].
        labels: names of the columns of ``outputs`` for classification, else None.
    """

    lane: str
    tenant: str
    job_id: str | None
    model: str
    task: str
    form: str
    encoding: str
    origin_topic: str
    items: ItemColumns
    status: NDArray[np.uint8]
    outputs: Outputs | None
    errors: tuple[ItemError, ...]
    input_tokens: NDArray[np.int32]
    labels: tuple[str, ...] | None
    receipt: Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRun:
    """A contiguous run of a job's terminal rows (or one reply: ``job_id`` None, one item).

    ``items.index`` is first_index, first_index + 1, … for jobs.

    Attributes:
        receipts, receipt_at: receipt of item i is ``receipts[receipt_at[i]]``; uint16 [n].
        digest: the job's running digest after the last item; empty for replies.
    """

    lane: str
    tenant: str
    job_id: str | None
    model: str
    task: str
    form: str
    encoding: str
    origin_topic: str
    first_index: int
    items: ItemColumns
    status: NDArray[np.uint8]
    outputs: Outputs | None
    errors: tuple[ItemError, ...]
    input_tokens: NDArray[np.int32]
    labels: tuple[str, ...] | None
    receipts: tuple[Receipt, ...]
    receipt_at: NDArray[np.uint16]
    digest: bytes = b""
