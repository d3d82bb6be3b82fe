"""From the outcomes of a work record's items to the records that carry them on.

Job items become result records (several when one would grow too large), a request without a job
becomes its reply, and an item that made the engine fail also becomes a dead letter. Every item ends
here exactly once (invariant *account*), whatever its outcome; bytes exist for succeeded rows only.
Rows are checked, never trusted: their count must match, every value must be finite, and one item
too large for a record is refused alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streamer.emit.answer_rows import Answers, EncodedRows, encode_rows
from streamer.event import codes, headers, wire
from streamer.event.lane import OutRecord
from streamer.event.records import (
    DeadLetter,
    ItemError,
    OutputRun,
    Outputs,
    ResultRecord,
)
from streamer.event.topics import TopicNames, job_key, partition_of

# {"label":…,"score":…}, and a comma: the words and the longest number.
_SCORE_BYTES = 40
# A work record leaves in one transaction, and that touches 16 partitions at most.
_LETTER_PLACES_MAX = 8


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


def output_records(answers: Answers, names: TopicNames, limits: EmitLimits) -> list[OutRecord]:
    """Everything a finished work record sends on: results or replies first, then dead letters."""
    _refuse_long_lines(answers, limits.reply_bytes_max)
    rows = encode_rows(answers, limits.record_bytes_max)
    if answers.work.job_id is None:
        out = [_reply(answers, rows, row, names, limits) for row in range(len(answers.work.items))]
    else:
        out = _results(answers, rows, names, limits)
    letters = [
        dead_letter_record(_culprit(answers, row), answers.work.lane, names, limits)
        for row in sorted(answers.culprits)
    ]
    if len({letter.partition for letter in letters}) > _LETTER_PLACES_MAX:
        letters = [replace(letter, partition=letters[0].partition) for letter in letters]
    return [*out, *letters]


def _refuse_long_lines(answers: Answers, bytes_max: int) -> None:
    """Error job items whose labels would make one JSON message too large for ``outputs``.

    A name beside every score takes many times the bytes that travel until then.
    """
    work, labels = answers.work, answers.labels
    if work.form != "json" or work.job_id is None or not labels:
        return
    text_bytes = sum(len(json.dumps(name)) + _SCORE_BYTES for name in labels)
    succeeded = answers.status == codes.SUCCEEDED
    for row in np.flatnonzero(succeeded & (work.items.rows * text_bytes > bytes_max)).tolist():
        answers.fail(
            row, "result_too_large",
            f"the answer as JSON would take about {int(work.items.rows[row]) * text_bytes} bytes "
            f"and the limit is {bytes_max}; send fewer texts an item, or send Avro",
        )  # fmt: skip


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


def _results(
    answers: Answers, rows: EncodedRows, names: TopicNames, limits: EmitLimits
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


def _part(answers: Answers, rows: EncodedRows, lo: int, hi: int) -> ResultRecord:
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


def _outputs(answers: Answers, rows: EncodedRows, lo: int, hi: int) -> Outputs | None:
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
    answers: Answers, rows: EncodedRows, row: int, names: TopicNames, limits: EmitLimits
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


def _reply_run(answers: Answers, rows: EncodedRows, row: int) -> OutputRun:
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
