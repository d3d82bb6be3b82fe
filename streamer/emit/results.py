"""From the outcomes of a work record's items to the records that carry them on.

Job items become result records (several when one would grow too large), a request without a job
becomes its reply, and an item that made the engine fail also becomes a dead letter. Every item ends
here exactly once (invariant *account*), whatever its outcome; bytes exist for succeeded rows only.
Rows are checked, never trusted: their count must match, every value must be finite, and one item
too large for a record is refused alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.emit.encoding import encoded, finite_rows, row_shape_of, shaped
from streamer.event import codes, headers, wire
from streamer.event.lane import OutRecord, TopicPartition
from streamer.event.records import (
    DeadLetter,
    ItemError,
    OutputRun,
    Outputs,
    Receipt,
    ResultRecord,
    WorkRecord,
)
from streamer.event.topics import TopicNames, job_key, partition_of

# Columns of one item besides its names and its answer: index, origin, digest, flags, times.
_ITEM_BYTES = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitLimits:
    """Sizes and partition counts of what work writes.

    Attributes:
        record_bytes_max: bytes of a result record.
        reply_bytes_max: bytes of an encoded reply, below the topics' ``max.message.bytes``.
        results, replies, dead_letters: partitions of these topics.
    """

    record_bytes_max: int = 524_288
    reply_bytes_max: int = 1_000_000
    results: int = 12
    replies: int = 12
    dead_letters: int = 12


@dataclass(slots=True, kw_only=True)
class Answers:
    """What is known of a work record's items; filled while batches come back.

    Attributes:
        source: where the work record lay, and ``offset`` in it.
        status: uint8 [n] of ``codes.STATUSES`` positions.
        errors: item -> why it has no answer, for every item that did not succeed.
        values: float32 [texts, ...] in the order of the record's texts, None before the first
            answer; only rows of succeeded items mean anything.
        kind: ``embedding``, ``scores``, ``labels``; "" while unknown.
        labels: class names of the last axis, when there are any.
        culprits: items that made the engine fail.
    """

    work: WorkRecord
    source: TopicPartition
    offset: int
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
class _Rows:
    """All items of a work record, encoded; the parts are cut from it.

    ``data`` holds the texts of the succeeded items only, ``first`` where each item begins in it.
    """

    data: NDArray[Any]
    dtype: str
    first: NDArray[np.int64]
    sizes: NDArray[np.int64]
    tokens: NDArray[np.int32]


def output_records(answers: Answers, names: TopicNames, limits: EmitLimits) -> list[OutRecord]:
    """Everything a finished work record sends on: results or replies first, then dead letters."""
    rows = _encode_rows(answers)
    rows = _refuse_large(answers, rows, limits.record_bytes_max)
    if answers.work.job_id is None:
        out = [_reply(answers, rows, row, names, limits) for row in range(len(answers.work.items))]
    else:
        out = _results(answers, rows, names, limits)
    out.extend(
        dead_letter_record(_culprit(answers, row), answers.work.lane, names, limits)
        for row in sorted(answers.culprits)
    )
    return out


def dead_letter_record(
    letter: DeadLetter, lane: str, names: TopicNames, limits: EmitLimits
) -> OutRecord:
    """A dead letter on its way: the partition follows its origin."""
    job = None if letter.job_id is None else job_key(lane, letter.tenant, letter.job_id)
    return OutRecord(
        names.dead_letters(lane),
        letter.partition % limits.dead_letters,
        letter.key if job is None else job,
        wire.encode_dead_letter(letter),
        {headers.KIND: b"dead-letter", headers.CONTENT_TYPE: headers.AVRO},
    )


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


def _encode_rows(answers: Answers) -> _Rows:
    """Check and encode; items with a value that is not finite are errored on the way."""
    work = answers.work
    bounds = text_bounds(work.items.rows)
    tokens = tokens_per_item(work)
    values = answers.values
    if values is None:
        values = np.zeros((int(bounds[-1]), 0), dtype=np.float32)
        answers.status[answers.status == codes.SUCCEEDED] = codes.ERRORED
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
    return _Rows(data, dtype, first, counts * row_bytes + _overhead(work), tokens)


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


def _refuse_large(answers: Answers, rows: _Rows, bytes_max: int) -> _Rows:
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
    return _Rows(data, rows.dtype, text_bounds(counts.astype(np.int32)), sizes, rows.tokens)


def _results(
    answers: Answers, rows: _Rows, names: TopicNames, limits: EmitLimits
) -> list[OutRecord]:
    work = answers.work
    assert work.job_id is not None
    key = job_key(work.lane, work.tenant, work.job_id)
    topic, partition = names.results(work.lane), partition_of(key, limits.results)
    shared: Mapping[str, bytes] = {
        headers.KIND: b"result", headers.CONTENT_TYPE: headers.AVRO, headers.JOB: key,
    }  # fmt: skip
    return [
        OutRecord(topic, partition, key, wire.encode_result(_part(answers, rows, lo, hi)), shared)
        for lo, hi in _ranges(rows.sizes, limits.record_bytes_max)
    ]


def _ranges(sizes: NDArray[np.int64], bytes_max: int) -> list[tuple[int, int]]:
    """Cut the items into runs of at most ``bytes_max`` bytes, in order."""
    if int(sizes.sum()) <= bytes_max:
        return [(0, len(sizes))]
    ranges, lo, used = [], 0, 0
    for row, size in enumerate(sizes.tolist()):
        if row > lo and used + size > bytes_max:
            ranges.append((lo, row))
            lo, used = row, 0
        used += size
    ranges.append((lo, len(sizes)))
    return ranges


def _part(answers: Answers, rows: _Rows, lo: int, hi: int) -> ResultRecord:
    work = answers.work
    whole = lo == 0 and hi == len(work.items)
    return ResultRecord(
        lane=work.lane,
        tenant=work.tenant,
        job_id=work.job_id,
        model=work.model,
        task=work.task,
        form=work.form,
        encoding=work.encoding,
        origin_topic=work.origin_topic,
        items=work.items if whole else work.items.take(list(range(lo, hi))),
        status=answers.status[lo:hi],
        outputs=_outputs(answers, rows, lo, hi),
        errors=_errors(answers, lo, hi),
        input_tokens=rows.tokens[lo:hi],
        labels=answers.labels,
        receipt=answers.receipt,
    )


def _outputs(answers: Answers, rows: _Rows, lo: int, hi: int) -> Outputs | None:
    part = rows.data[rows.first[lo] : rows.first[hi]]
    if not len(part):
        return None
    return Outputs(
        kind=answers.kind, dtype=rows.dtype, row_shape=tuple(part.shape[1:]), data=part.tobytes()
    )


def _errors(answers: Answers, lo: int, hi: int) -> tuple[ItemError, ...]:
    if not answers.errors:
        return ()
    return tuple(
        replace(answers.errors[row], row=row - lo) for row in range(lo, hi) if row in answers.errors
    )


def _reply(
    answers: Answers, rows: _Rows, row: int, names: TopicNames, limits: EmitLimits
) -> OutRecord:
    """The terminal record of a request without a job."""
    work = answers.work
    origin = int(work.items.origin_partition[row])
    wanted = origin if work.reply_to is None else work.reply_to
    place = (names.replies(work.lane), wanted % limits.replies)
    (record,) = wire.output_records(_reply_run(answers, rows, row), *place)
    size = len(record.value or b"")
    if size > limits.reply_bytes_max:
        answers.fail(
            row, "result_too_large",
            f"the reply of {size} bytes is above the limit of {limits.reply_bytes_max}; send "
            "fewer texts an item, or ask for fewer dimensions or a smaller encoding_format",
        )  # fmt: skip
        (record,) = wire.output_records(_reply_run(answers, rows, row), *place)
    return record


def _reply_run(answers: Answers, rows: _Rows, row: int) -> OutputRun:
    part = _part(answers, rows, row, row + 1)
    succeeded = answers.status[row] == codes.SUCCEEDED
    return OutputRun(
        lane=part.lane, tenant=part.tenant, job_id=None, model=part.model, task=part.task,
        form=part.form, encoding=part.encoding, origin_topic=part.origin_topic, first_index=-1,
        items=part.items, status=part.status, outputs=part.outputs if succeeded else None,
        errors=part.errors, input_tokens=part.input_tokens, labels=part.labels,
        receipts=(part.receipt,), receipt_at=np.zeros(1, dtype=np.uint16),
    )  # fmt: skip


def _culprit(answers: Answers, row: int) -> DeadLetter:
    work, error = answers.work, answers.errors[row]
    return DeadLetter(
        topic=work.origin_topic,
        partition=int(work.items.origin_partition[row]),
        offset=int(work.items.origin_offset[row]),
        stage="work",
        code=error.code,
        message=error.message,
        tenant=work.tenant,
        job_id=work.job_id,
        index=int(work.items.index[row]),
        custom_id=work.items.custom_id[row],
        timestamp_ms=int(work.items.accepted_at_ms[row]),
    )
