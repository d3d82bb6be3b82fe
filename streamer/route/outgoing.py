"""The records of one route transaction: work, refusals, dead letters, notes about jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamer.event import headers, wire
from streamer.event.lane import OutRecord, TopicPartition
from streamer.event.records import (
    DeadLetter,
    ItemColumns,
    ItemError,
    JobEntry,
    OutputRun,
    Receipt,
    ResultRecord,
    WorkRecord,
)
from streamer.event.topics import TopicNames, job_entry_key, job_key, partition_of
from streamer.route.entry import Entry, ItemPlace, JobNote, Refusal, WorkItem
from streamer.route.grouping import Group
from streamer.route.models import ServedModel

_REFUSED_ITEMS_MAX = 256
_REFUSED_BYTES_MAX = 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlets:
    """Where route writes: names, and the partition counts of the topics.

    Attributes:
        lane: of everything written.
        work: partitions of the work topic, by model.
        worker: name of this process in receipts.
    """

    names: TopicNames
    lane: str
    results: int
    replies: int
    jobs: int
    dead_letters: int
    work: Mapping[str, int]
    worker: str = "route"

    def fixed(self, entry: Entry) -> TopicPartition | None:
        """The partition that an entry's own outcome goes to; None for work (chosen later)."""
        content = entry.content
        if isinstance(content, WorkItem):
            return None
        if isinstance(content, DeadLetter):
            return TopicPartition(
                self.names.dead_letters(self.lane), content.partition % self.dead_letters
            )
        if content.key.job_id is None:
            return self._reply_at(content)
        key = job_key(self.lane, content.key.tenant, content.key.job_id)
        return TopicPartition(self.names.results(self.lane), partition_of(key, self.results))

    def note_at(self, note: JobNote) -> TopicPartition:
        """The partition of a job's notes."""
        key = job_key(self.lane, note.tenant, note.job_id)
        return TopicPartition(self.names.jobs(self.lane), partition_of(key, self.jobs))

    def _reply_at(self, refusal: Refusal) -> TopicPartition:
        wanted = refusal.key.reply_to
        if wanted is None or not 0 <= wanted < self.replies:
            wanted = refusal.place.origin_partition
        return TopicPartition(self.names.replies(self.lane), wanted % self.replies)


def work_record(
    group: Group, partition: int, *, model: ServedModel, plan_version: int, reason: str,
    outlets: Outlets,
) -> OutRecord:  # fmt: skip
    """A group on its way to the partition chosen for it."""
    key, items = group.key, group.items
    pair_at = [at for item in items for at in item.pair_at]
    record = WorkRecord(
        lane=outlets.lane, model=key.model, revision=model.revision,
        tokenizer_hash=model.tokenizer.hash, task=key.task, params=key.params,
        params_key=key.params_key, tenant=key.tenant, job_id=key.job_id, form=key.form,
        encoding=key.encoding, reply_to=key.reply_to, origin_topic=key.origin_topic,
        plan_version=plan_version, group_reason=reason,
        items=item_columns([item.place for item in items]),
        lengths=np.array([length for item in items for length in item.lengths], dtype=np.int32),
        token_ids=np.concatenate([ids for item in items for ids in item.ids]),
        pair_at=np.array(pair_at, dtype=np.int32) if any(pair_at) else None,
        deadline_at_ms=np.array([item.deadline_at_ms for item in items], dtype=np.int64),
    )  # fmt: skip
    tags = {headers.KIND: b"work", headers.CONTENT_TYPE: headers.AVRO}
    name = None
    if key.job_id is not None:
        name = job_key(outlets.lane, key.tenant, key.job_id)
        tags[headers.JOB] = name
    topic = outlets.names.work(key.model, outlets.lane)
    return OutRecord(topic, partition, name, wire.encode_work(record), tags)


def refusal_records(entries: Iterable[Entry], outlets: Outlets) -> list[OutRecord]:
    """Results of refused job items, many a record; a reply for each one without a job."""
    runs: dict[tuple[object, ...], list[Refusal]] = {}
    replies: list[OutRecord] = []
    for entry in entries:
        refusal = entry.content
        if not isinstance(refusal, Refusal):
            continue
        if refusal.key.job_id is None:
            at = outlets.fixed(entry)
            assert at is not None
            replies += wire.output_records(_reply(refusal, outlets), at.topic, at.partition)
        else:
            # Job outputs have one address; reply_to means nothing there.
            runs.setdefault(refusal.key._replace(reply_to=None), []).append(refusal)
    return [*(_result(part, outlets) for run in runs.values() for part in _parts(run)), *replies]


def dead_letter_record(letter: DeadLetter, outlets: Outlets) -> OutRecord:
    """A dead letter on its way."""
    return OutRecord(
        outlets.names.dead_letters(outlets.lane),
        letter.partition % outlets.dead_letters,
        letter.key,
        wire.encode_dead_letter(letter),
        {headers.KIND: b"dead-letter", headers.CONTENT_TYPE: headers.AVRO},
    )


def note_record(entry: JobEntry, outlets: Outlets) -> OutRecord:
    """What route says about a job; the partition follows the job key, not the record's."""
    key = job_key(entry.lane, entry.tenant, entry.job_id)
    return OutRecord(
        outlets.names.jobs(outlets.lane),
        partition_of(key, outlets.jobs),
        job_entry_key(entry.lane, entry.tenant, entry.job_id, entry.kind),
        wire.encode_job(entry),
        {headers.KIND: b"job", headers.CONTENT_TYPE: headers.AVRO, headers.JOB: key},
    )


def item_columns(places: Sequence[ItemPlace]) -> ItemColumns:
    """The columns of these items, in order."""
    metadata = [place.metadata for place in places]
    return ItemColumns(
        index=np.array([place.index for place in places], dtype=np.int64),
        custom_id=[place.custom_id for place in places],
        origin_partition=np.array([place.origin_partition for place in places], dtype=np.int32),
        origin_offset=np.array([place.origin_offset for place in places], dtype=np.int64),
        rows=np.array([place.rows for place in places], dtype=np.int32),
        metadata=metadata if any(text is not None for text in metadata) else None,
        input_digest=b"".join([place.digest for place in places]),
        accepted_at_ms=np.array([place.accepted_at_ms for place in places], dtype=np.int64),
        flags=np.array([place.flags for place in places], dtype=np.uint8),
    )


def _parts(run: list[Refusal]) -> list[list[Refusal]]:
    parts: list[list[Refusal]] = []
    size = 0
    for refusal in run:
        own = 200 + 4 * (
            len(refusal.message) + len(refusal.place.custom_id)
            + len(refusal.place.metadata or "")
        )  # fmt: skip
        full = parts and (len(parts[-1]) >= _REFUSED_ITEMS_MAX or size + own > _REFUSED_BYTES_MAX)
        if not parts or full:
            parts.append([])
            size = 0
        parts[-1].append(refusal)
        size += own
    return parts


def _result(run: list[Refusal], outlets: Outlets) -> OutRecord:
    key = run[0].key
    assert key.job_id is not None
    name = job_key(outlets.lane, key.tenant, key.job_id)
    record = ResultRecord(
        lane=outlets.lane, tenant=key.tenant, job_id=key.job_id, model=key.model, task=key.task,
        form=key.form, encoding=key.encoding, origin_topic=key.origin_topic,
        items=item_columns([refusal.place for refusal in run]),
        status=np.array([refusal.status for refusal in run], dtype=np.uint8),
        outputs=None, errors=_errors(run), input_tokens=np.zeros(len(run), dtype=np.int32),
        labels=None, receipt=Receipt(worker=outlets.worker),
    )  # fmt: skip
    return OutRecord(
        outlets.names.results(outlets.lane),
        partition_of(name, outlets.results),
        name,
        wire.encode_result(record),
        {headers.KIND: b"result", headers.CONTENT_TYPE: headers.AVRO, headers.JOB: name},
    )


def _reply(refusal: Refusal, outlets: Outlets) -> OutputRun:
    key = refusal.key
    return OutputRun(
        lane=outlets.lane, tenant=key.tenant, job_id=None, model=key.model, task=key.task,
        form=key.form, encoding=key.encoding, origin_topic=key.origin_topic, first_index=-1,
        items=item_columns([refusal.place]),
        status=np.array([refusal.status], dtype=np.uint8), outputs=None,
        errors=_errors([refusal]), input_tokens=np.zeros(1, dtype=np.int32), labels=None,
        receipts=(Receipt(worker=outlets.worker),), receipt_at=np.zeros(1, dtype=np.uint16),
    )  # fmt: skip


def _errors(run: Sequence[Refusal]) -> tuple[ItemError, ...]:
    return tuple(
        ItemError(row=row, code=one.code, message=one.message, retryable=one.retryable)
        for row, one in enumerate(run)
    )
