"""What one partition puts into one transaction, within a budget.

Order inside: runs (and completions) first, then dead letters, then job states, then tombstones, so
that state never claims what was not produced before it. Everything taken here counts as emitted;
should the transaction not commit, all state is restored from the committed one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streamer.event import wire
from streamer.event.codes import CANCELLED, EXPIRED, FORMS, STATUSES
from streamer.event.headers import AVRO, CONTENT_TYPE, KIND
from streamer.event.lane import Now, OutRecord, TopicPartition
from streamer.event.records import Completion, DeadLetter, ItemError
from streamer.event.topics import TopicNames, job_entry_key, job_key
from streamer.reassemble.job import CLOSING_REASON, ENTRY_BITS, Event, Job, Life, step
from streamer.reassemble.partition import PartitionState
from streamer.reassemble.runs import RunBuilder
from streamer.reassemble.snapshot import state_of

_HOLE = {
    Life.EXPIRING: (EXPIRED, ItemError(
        row=0, code="expired", message="no result before the deadline of the job: submit it again",
        retryable=True,
    )),
    Life.CANCELLING: (CANCELLED, ItemError(
        row=0, code="cancelled", message="the job was cancelled before this item had a result",
    )),
}  # fmt: skip


@dataclass(slots=True)
class Budget:
    """What is left for the emission being made."""

    rows: int
    bytes: int
    records: int

    @property
    def is_spent(self) -> bool:
        """Whether the emission is full."""
        return self.rows <= 0 or self.bytes <= 0 or self.records <= 0


@dataclass(slots=True)
class Emission:
    """Records of one transaction by their place in it."""

    outputs: list[OutRecord] = field(default_factory=list)
    letters: list[OutRecord] = field(default_factory=list)
    states: list[OutRecord] = field(default_factory=list)
    tombstones: list[OutRecord] = field(default_factory=list)
    touched: set[TopicPartition] = field(default_factory=set)

    def has_space_for(self, at: TopicPartition, partitions_max: int) -> bool:
        """Whether the transaction may touch this partition; then it does."""
        if at not in self.touched and len(self.touched) >= partitions_max:
            return False
        self.touched.add(at)
        return True

    def records(self) -> list[OutRecord]:
        """All of them, in the order in which they are produced."""
        return [*self.outputs, *self.letters, *self.states, *self.tombstones]


class PartitionEmitter:
    """Moves what a partition has ready into an emission.

    Args:
        names: of the topics.
        lane: fast or bulk.
    """

    def __init__(self, *, names: TopicNames, lane: str) -> None:
        self._lane = lane
        self._outputs = names.outputs(lane)
        self._states = names.job_state(lane)
        self._jobs = names.jobs(lane)
        self._letters = names.dead_letters(lane)

    def home(self, partition: int) -> set[TopicPartition]:
        """The output partitions that rows of a results partition touch."""
        return {TopicPartition(topic, partition) for topic in (self._outputs, self._states)}

    def emit(self, part: PartitionState, emission: Emission, budget: Budget, now: Now) -> None:
        """Take what is ready, as far as the budget goes."""
        self._emit_letters(part, emission, budget)
        for key in list(part.ready):
            if budget.is_spent:
                break
            del part.ready[key]
            job = part.rows.jobs.get(key)
            if job is not None:
                self._emit_job(part, job, emission, budget, now)
        self._forget_closed(part, emission, budget, now)
        self._emit_tombstones(part, emission, budget)

    def _emit_letters(self, part: PartitionState, emission: Emission, budget: Budget) -> None:
        letters = part.rows.letters
        while letters and budget.records > 0:
            offset, letter = letters[0]
            number = letter.partition if letter.partition >= 0 else part.partition
            at = TopicPartition(self._letters, number % part.limits.partitions)
            if not emission.has_space_for(at, part.limits.partitions_max):
                return
            letters.popleft()
            part.rows.let_go(offset)
            budget.records -= 1
            budget.bytes -= len(letter.value or b"")
            emission.letters.append(self._letter_record(at.partition, letter))

    def _letter_record(self, partition: int, letter: DeadLetter) -> OutRecord:
        key = letter.key
        if letter.job_id is not None:
            key = job_key(self._lane, letter.tenant, letter.job_id)
        headers = {KIND: b"dead-letter", CONTENT_TYPE: AVRO}
        return OutRecord(self._letters, partition, key, wire.encode_dead_letter(letter), headers)

    def _emit_job(
        self, part: PartitionState, job: Job, emission: Emission, budget: Budget, now: Now
    ) -> None:
        before = job.next_index
        self._release(part, job, emission, budget)
        reason, closed_at_ms = "", 0
        if job.is_full and part.caught_up:
            reason, closed_at_ms = self._complete(part, job, emission), now.wall_ms
        if job.next_index != before or job.unwritten or closed_at_ms:
            job.unwritten = False
            state = state_of(job, lane=self._lane, closed_at_ms=closed_at_ms, reason=reason)
            headers = {KIND: b"job-state", CONTENT_TYPE: AVRO}
            value = wire.encode_job_state(state)
            emission.states.append(OutRecord(self._states, part.partition, job.key, value, headers))
            budget.records -= 1
        if closed_at_ms:
            self._remember(part, job, closed_at_ms)
        elif part.caught_up or not self._is_held_back(job):
            part.touch(job)

    @staticmethod
    def _is_held_back(job: Job) -> bool:
        """Whether only what must wait for the restore watermark is left of the job."""
        return job.is_closing or (job.total >= 0 and job.next_index >= job.total - 1)

    def _release(self, part: PartitionState, job: Job, emission: Emission, budget: Budget) -> None:
        builder = RunBuilder(job, lane=self._lane, limits=part.limits.runs)
        limit = job.total if job.total >= 0 else 1 << 62
        if not part.caught_up and job.total >= 0:
            limit = job.total - 1  # The last row leaves together with the completion.
        hole = _HOLE.get(job.life) if part.caught_up else None
        released = 0
        while budget.rows > 0 and builder.bytes < budget.bytes and job.next_index < limit:
            # Bounded steps, so that the bytes are looked at now and then.
            count = min(budget.rows, limit - job.next_index, part.limits.runs.items_max)
            start = job.next_index
            for held, row in part.rows.take_run(job, count):
                builder.add(held, row)
            released += job.next_index - start
            if job.next_index == start:
                if hole is None:
                    break
                builder.add_hole(*hole)
                job.waiting.passed(start, job.next_index)
                part.tally.filled += 1
            budget.rows -= job.next_index - start
        builder.cut()
        part.tally.released += released
        budget.bytes -= builder.bytes
        for run in builder.runs:
            emission.outputs.extend(wire.output_records(run, self._outputs, part.partition))

    def _complete(self, part: PartitionState, job: Job, emission: Emission) -> str:
        reason = CLOSING_REASON.get(job.life, "")
        job.life = step(job.life, Event.FULL)
        if job.total_conflict:
            reason = f"{reason}, conflicting totals" if reason else "conflicting totals"
        completion = Completion(
            lane=self._lane,
            tenant=job.tenant,
            job_id=job.job_id,
            form=job.descriptor_form or job.form or job.said_form or FORMS[0],
            status=job.life.value,
            total=job.total,
            counts=dict(zip(STATUSES, job.counts, strict=True)),
            digest=job.digest,
            reason=reason,
        )
        emission.outputs.extend(wire.output_records(completion, self._outputs, part.partition))
        tally = part.tally
        tally.completed += job.life is Life.COMPLETED
        tally.expired += job.life is Life.EXPIRED
        tally.cancelled += job.life is Life.CANCELLED
        return reason

    def _remember(self, part: PartitionState, job: Job, closed_at_ms: int) -> None:
        del part.rows.jobs[job.key]
        part.rows.closed.add(
            job.key, closed_at_ms=closed_at_ms, last_offset=job.last_offset,
            origins=job.released_origin,
        )  # fmt: skip
        for kind, bit in ENTRY_BITS.items():
            if job.entries & bit:
                part.tombstones[job_entry_key(self._lane, job.tenant, job.job_id, kind)] = None

    def _forget_closed(
        self, part: PartitionState, emission: Emission, budget: Budget, now: Now
    ) -> None:
        while budget.records > 0 and part.may_forget(now.wall_ms):
            key = part.rows.closed.take_oldest()
            budget.records -= 1
            headers = {KIND: b"job-state"}
            emission.states.append(OutRecord(self._states, part.partition, key, None, headers))

    def _emit_tombstones(self, part: PartitionState, emission: Emission, budget: Budget) -> None:
        at = TopicPartition(self._jobs, part.partition)
        if not part.tombstones or not emission.has_space_for(at, part.limits.partitions_max):
            return
        for key in list(part.tombstones)[: max(0, budget.records)]:
            del part.tombstones[key]
            budget.records -= 1
            emission.tombstones.append(OutRecord(at.topic, at.partition, key, None, {KIND: b"job"}))
