"""What a delivered work record goes through before the batcher sees it: pure.

Route has checked the items; here only what a device must never get is ended: records prepared for
other model files, items without tokens, items whose deadline has passed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamer.emit.answer_rows import Answers
from streamer.errors import Undecodable
from streamer.event import codes, wire
from streamer.event.lane import Now, Record, TopicPartition
from streamer.event.records import DeadLetter, Receipt, WorkRecord
from streamer.infer.engine import EngineSpec
from streamer.infer.launch import late
from streamer.process.held_record import Held, Member

EXPIRED_TEXT = "the deadline of this item passed before a device took it"


def hold_record(
    record: Record, spec: EngineSpec, *, lane: str, epoch: int, attempts: int, worker: str
) -> Held:
    """Decode a record and begin to hold it; its items count as errored until they end.

    Args:
        record: of a work topic.
        spec: of the engine that serves the topic.
        lane: that the topic belongs to; answers stay in it.
        epoch: of the partition.
        attempts: how often the partition was begun there before without progress.
        worker: name of this process.

    Raises:
        Undecodable: the bytes are no work record, or one of another lane.
    """
    work = wire.decode_work(record.value)
    if work.lane != lane:
        raise Undecodable("corrupt_record", "a work record of another lane")
    at = TopicPartition(record.topic, record.partition)
    receipt = Receipt(
        revision=spec.revision,
        tokenizer_hash=spec.tokenizer_hash,
        dtype=spec.dtype,
        attempt=attempts + 1,
        source_partition=record.partition,
        source_offset=record.offset,
        worker=worker,
    )
    return hold_work(work, receipt, at, record.offset, epoch=epoch, attempts=attempts)


def hold_work(
    work: WorkRecord,
    receipt: Receipt,
    at: TopicPartition,
    offset: int,
    *,
    epoch: int = 0,
    attempts: int = 0,
) -> Held:
    """Begin to hold a decoded record; its items count as errored until they end."""
    status = np.full(len(work.items), codes.ERRORED, np.uint8)
    answers = Answers(work=work, status=status, receipt=receipt)
    return Held(answers, at, offset, epoch, len(work.items), attempts)


def end_hopeless(held: Held, spec: EngineSpec, now: Now) -> None:
    """End the items that must not reach a device."""
    work = held.work
    everything = range(len(work.items))
    refusal = refused_for(work, spec)
    if refusal is not None:
        held.end_without_answer(everything, "model_error", refusal, retryable=True)
    elif not ((work.items.rows > 0).all() and (work.lengths > 0).all()):
        text = "the work record holds an item without tokens; send the item again"
        held.end_without_answer(everything, "corrupt_record", text)
    else:
        passed = late(work.deadline_at_ms, now.wall_ms)
        if passed.any():
            held.end_without_answer(np.flatnonzero(passed), "expired", EXPIRED_TEXT)


def refused_for(work: WorkRecord, spec: EngineSpec) -> str | None:
    """Why this engine must not run the record; None when it may.

    Token ids of another tokenizer would give answers that look right and are not.
    """
    ours = (spec.model, spec.task, spec.revision, spec.tokenizer_hash)
    theirs = (work.model, work.task, work.revision, work.tokenizer_hash)
    words = ("model", "task", "revision", "tokenizer")
    for word, have, want in zip(words, ours, theirs, strict=True):
        if have != want:
            return (
                f"prepared for {word} {want!r}, but this worker holds {have!r}; route and work "
                "must run the same model files: send the item again once they do"
            )
    return None


def without_late(member: Member, now: Now) -> Member | None:
    """End the items whose deadline has passed; None when no item is left."""
    passed = late(member.held.work.deadline_at_ms[member.items], now.wall_ms)
    if not passed.any():
        return member
    member.held.end_without_answer(member.items[passed], "expired", EXPIRED_TEXT)
    kept = member.items[~passed]
    return Member(member.held, kept) if len(kept) else None


def undecodable(error: Exception) -> Undecodable:
    """What a record is that no check foresaw; only the type is told, a message may repeat input."""
    if isinstance(error, Undecodable):
        return error
    return Undecodable("corrupt_record", f"{type(error).__name__} while reading the work record")


def errored_instead(answers: Answers, error: Exception) -> Answers:
    """All items of a record whose answers cannot be written, errored."""
    instead = Answers(
        work=replace(answers.work, params="{}"), status=np.full_like(answers.status, codes.ERRORED),
        receipt=answers.receipt,
    )  # fmt: skip
    for row in range(len(answers.work.items)):
        instead.fail(row, "model_error", f"{type(error).__name__} while writing the answers")
    return instead


def undecodable_letter(record: Record, error: Undecodable) -> DeadLetter:
    """The dead letter of bytes that are no work record."""
    return DeadLetter(
        topic=record.topic, partition=record.partition, offset=record.offset, stage="work",
        code=error.code, message=error.message, key=record.key, value=record.value,
        timestamp_ms=record.timestamp_ms,
    )  # fmt: skip
