"""One assigned results partition: its rows, jobs, timers, and what wants to be emitted.

    delivered record ─► rows wait ─► job is ready ─► (emission) released, closed, remembered
    entry of jobs    ─► total, deadline, cancel
    time             ─► due ─► read-up ─► closing

Before the read position has reached the high watermark of the moment of assignment nothing is
timed, filled or closed: rows may still be in the log that we do not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamer.errors import Undecodable
from streamer.event import wire
from streamer.event.headers import CARRIED
from streamer.event.lane import Now, Record
from streamer.event.records import DeadLetter, JobEntry, JobState, ResultRecord
from streamer.event.topics import job_entry_key, job_key, partition_of
from streamer.reassemble.deadlines import DeadlineLimits, DeadlineQueue, ReadUp
from streamer.reassemble.job import Event, Job, step
from streamer.reassemble.mark import LowMark
from streamer.reassemble.resequencer import STAGE, Resequencer, Tally
from streamer.reassemble.runs import RunLimits
from streamer.reassemble.snapshot import check_version, job_from


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatorLimits:
    """Bounds and times of reassembly.

    Attributes:
        partitions: of every topic of the lane that goes by job key.
        commit_ms: released rows wait at most this for company.
        mark_ms: a mark that moved without any row waits this long for a commit.
        closed_keep_ms: how long an ended job is remembered.
        waiting_bytes: waiting rows in memory; above it only what is releasable is awaited.
        plan_rows, plan_bytes: one emission holds at most about this.
        partitions_max: output partitions one emission may touch.
        fill_max: holes that an expired or cancelled job is given rows for; a total or an index
            claimed in error must not fill the disk.
    """

    partitions: int
    runs: RunLimits
    deadlines: DeadlineLimits
    commit_ms: int = 50
    mark_ms: int = 1_000
    closed_keep_ms: int = 8 * 86_400_000
    waiting_bytes: int = 1 << 30
    plan_rows: int = 4_096
    plan_bytes: int = 8 << 20
    partitions_max: int = 16
    fill_max: int = 20_000_000


class PartitionState:
    """See the head of this file.

    Args:
        lane: fast or bulk.
        partition: number, the same in all topics that go by job key.
        start: the committed mark, where reading begins.
        watermark: high watermark of the results partition, taken after the assignment.
        limits: see :class:`AggregatorLimits`.
        tally: counts are added here.
    """

    def __init__(
        self, *, lane: str, partition: int, start: int, watermark: int,
        limits: AggregatorLimits, tally: Tally,
    ) -> None:  # fmt: skip
        self.lane = lane
        self.partition = partition
        self.committed = start
        self.limits = limits
        self.tally = tally
        self.low = LowMark(start)
        self.rows = Resequencer(lane=lane, low=self.low, tally=tally)
        self.ready: dict[bytes, None] = {}
        self.tombstones: dict[bytes, None] = {}
        self.delivered_rows = 0
        self._watermark = watermark
        self._deadlines = DeadlineQueue(limits.deadlines)
        self._read_up = ReadUp()
        self.caught_up = False

    # -- restore ---------------------------------------------------------------------------

    def restore(self, states: Sequence[Record], entries: Sequence[Record], now: Now) -> None:
        """Take over what ``job-state`` and ``jobs`` say; the last record of a key counts.

        Raises:
            Undecodable: a job state cannot be read; going on would release rows again.
            ConfigurationError: a newer version wrote it.
        """
        last = {record.key: record for record in states if record.key is not None}
        closed: list[JobState] = []
        for record in last.values():
            if record.value is None:
                continue
            state = wire.decode_job_state(record.value)
            check_version(state)
            if state.closed:
                closed.append(state)
                continue
            job = job_from(state, at_ms=record.timestamp_ms)
            self.rows.jobs[job.key] = job
            self._deadlines.note(job)
        for state in sorted(closed, key=lambda each: each.closed_at_ms):
            self.rows.closed.add(
                job_key(state.lane, state.tenant, state.job_id),
                closed_at_ms=state.closed_at_ms,
                last_offset=state.closed_at_offset,
                origins=state.released_origin,
            )
        said = {record.key or b"": record for record in entries}
        for key in sorted(said, key=lambda key: not key.endswith(b"#descriptor")):
            self.entry(said[key], now)  # Descriptors first: they silence the deadlines of items.
        self.moved_to(self.low.position)

    def moved_to(self, position: int) -> None:
        """The read position, as the client reports it or as the last record shows."""
        self.low.moved_to(position)
        if not self.caught_up and self.low.position >= self._watermark:
            self.caught_up = True
            for job in self.rows.jobs.values():
                self.touch(job)
        for key, event in self._read_up.finished(self.low.position).items():
            ending = self.rows.jobs.get(key)
            if ending is not None:
                self._close(ending, event)

    # -- what comes in ---------------------------------------------------------------------

    def deliver(self, record: Record, now: Now) -> None:
        """One results record, in offset order."""
        self.low.delivered(record.offset)
        size = len(record.value or b"")
        try:
            result = self._decode(record)
        except Undecodable as error:
            self.rows.refuse_bytes(record.offset, _letter_of(record, error))
            self.moved_to(record.offset + 1)
            return
        self.delivered_rows += len(result.items)
        assert result.job_id is not None
        if not self._is_home_of(result.tenant, result.job_id):
            self.rows.refuse(record.offset, result, size=size)
        else:
            job = self.rows.accept(
                record.offset, result, size=size, carried=CARRIED in record.headers
            )
            if job is not None:
                job.saw(record.timestamp_ms if record.timestamp_ms > 0 else now.wall_ms)
                self._deadlines.note(job)
                self.touch(job)
        self.moved_to(record.offset + 1)

    def _decode(self, record: Record) -> ResultRecord:
        try:
            result = wire.decode_result(record.value)
        except Undecodable:
            raise
        except Exception as error:  # it would be delivered again for ever
            text = f"{type(error).__name__} while reading the result"
            raise Undecodable("corrupt_record", text) from None
        if result.job_id is None or result.lane != self.lane:
            raise Undecodable("corrupt_record", "a result without a job, or of another lane")
        return result

    def _is_home_of(self, tenant: str, job_id: str) -> bool:
        key = job_key(self.lane, tenant, job_id)
        if key in self.rows.jobs or key in self.rows.closed:
            return True
        return partition_of(key, self.limits.partitions) == self.partition

    def entry(self, record: Record, now: Now) -> None:
        """One record of ``jobs``: what route, SDK or CLI say about a job."""
        if record.value is None or record.key is None:
            return
        try:
            entry = wire.decode_job(record.value)
        except Undecodable:
            self.tally.bad_entries += 1
            return
        if not self._is_entry(record.key, entry):
            self.tally.bad_entries += 1
            return
        key = job_key(self.lane, entry.tenant, entry.job_id)
        if key in self.rows.closed:
            self.tombstones[record.key] = None
            return
        job = self.rows.open(entry.tenant, entry.job_id)
        job.saw(record.timestamp_ms if record.timestamp_ms > 0 else now.wall_ms)
        had_conflict = job.total_conflict
        if job.learn(entry):
            self.rows.cut_to_total(job)
        self.tally.conflicts += job.total_conflict and not had_conflict
        if job.asked_to_cancel:
            self._read_up.want(job.key, Event.CANCEL, now.mono_ns)
        self._deadlines.note(job)
        self.touch(job)

    def _is_entry(self, key: bytes, entry: JobEntry) -> bool:
        return (
            entry.lane == self.lane
            and key == job_entry_key(self.lane, entry.tenant, entry.job_id, entry.kind)
            and self._is_home_of(entry.tenant, entry.job_id)
        )

    # -- time ------------------------------------------------------------------------------

    def wants_watermark(self, now: Now) -> bool:
        """Whether a fresh high watermark is needed to close something."""
        if not self.caught_up:
            return False
        for job in self._deadlines.due(self.rows.jobs, now.wall_ms):
            self._read_up.want(job.key, Event.DUE, now.mono_ns)
        return self._read_up.wants_watermark()

    def answered(self, high: int, asked_at: Now) -> None:
        """The high watermark that was asked for at ``asked_at``."""
        self._read_up.answered(high, asked_at.mono_ns)
        self.moved_to(self.low.position)

    def _close(self, job: Job, event: Event) -> None:
        """Begin to fill the holes of a job, unless everything it needs is here."""
        if job.is_closing:
            return
        if job.total < 0 or job.next_index + job.waiting.count < job.total:
            job.life = step(job.life, event)
            job.unwritten = True
            end, holes = job.waiting.reach(job.next_index, self.limits.fill_max)
            cut = job.total - end > self.limits.fill_max - holes
            if job.total < 0 or cut or end <= job.waiting.highest:
                job.total_conflict |= job.total >= 0 or end <= job.waiting.highest
                job.total = end
                self.rows.cut_to_total(job)
        self.touch(job)

    def next_wall_ms(self, wall_ms: int) -> int | None:
        """Unix ms after ``wall_ms`` at which time alone may bring something."""
        times = (self._deadlines.next_ms(), self.rows.closed.next_ms(self.limits.closed_keep_ms))
        return min((at for at in times if at is not None and at > wall_ms), default=None)

    # -- what goes out ---------------------------------------------------------------------

    def touch(self, job: Job) -> None:
        """Queue the job for the next emission when it has something to say."""
        if (
            job.unwritten
            or job.is_full
            or job.is_closing
            or job.waiting.place_of(job.next_index) >= 0
        ):
            self.ready[job.key] = None

    def has_work(self, wall_ms: int) -> bool:
        """Whether an emission would write anything."""
        if self.ready or self.tombstones or self.rows.letters:
            return True
        return self.may_forget(wall_ms)

    def may_forget(self, wall_ms: int) -> bool:
        """Whether the oldest closed mark may go."""
        return self.rows.closed.is_due(
            wall_ms=wall_ms, keep_ms=self.limits.closed_keep_ms, mark=self.low.mark()
        )

    @property
    def mark_moved(self) -> bool:
        """Whether the mark is not the committed one."""
        return self.low.mark() != self.committed


def _letter_of(record: Record, error: Undecodable) -> DeadLetter:
    return DeadLetter(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        stage=STAGE,
        code=error.code,
        message=error.message,
        key=record.key,
        value=record.value,
        timestamp_ms=record.timestamp_ms,
    )
