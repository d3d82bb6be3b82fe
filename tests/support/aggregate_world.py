"""One lane of aggregate on a model of Kafka: logs with marker gaps, commits, aborts, restarts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from streamer.event import wire
from streamer.event.headers import CARRIED
from streamer.event.lane import Assignment, EmitPlan, Now, OutRecord, Record, TopicPartition
from streamer.event.records import Completion, DeadLetter, JobEntry, OutputRun, ResultRecord
from streamer.event.topics import TopicNames, job_entry_key, job_key, partition_of
from streamer.reassemble.aggregator_core import AggregatorCore
from streamer.reassemble.deadlines import DeadlineLimits
from streamer.reassemble.partition import AggregatorLimits
from streamer.reassemble.runs import RunLimits
from tests.support.results import LANE

START_MS = 1_000_000
NAMES = TopicNames("t.")
RESULTS, OUTPUTS = NAMES.results(LANE), NAMES.outputs(LANE)
STATES, JOBS, LETTERS = NAMES.job_state(LANE), NAMES.jobs(LANE), NAMES.dead_letters(LANE)


def some_limits(partitions: int = 1, **changes: object) -> AggregatorLimits:
    """Small bounds, so that every cut happens in tests."""
    values: dict[str, object] = {
        "partitions": partitions,
        "runs": RunLimits(items_max=4, bytes_max=4_096),
        "deadlines": DeadlineLimits(default_ms=10_000, longest_ms=60_000, grace_ms=100),
        "commit_ms": 0,
        "mark_ms": 0,
        "plan_rows": 7,
    }
    return AggregatorLimits(**(values | changes))  # type: ignore[arg-type]


@dataclass
class Log:
    """One partition; offsets have gaps where transaction markers lie."""

    records: list[Record] = field(default_factory=list)
    end: int = 0

    def append(self, record: OutRecord, at_ms: int) -> int:
        """Add a record, return its offset."""
        self.records.append(
            Record(
                record.topic, record.partition, self.end, at_ms, record.key, record.value,
                record.headers,
            )
        )  # fmt: skip
        self.end += 1
        return self.end - 1

    def marker(self) -> None:
        """A control record: takes an offset, is never delivered."""
        self.end += 1

    def between(self, start: int, end: int) -> list[Record]:
        """Records with start <= offset < end."""
        return [record for record in self.records if start <= record.offset < end]


class AggregateWorld:
    """Drives an :class:`AggregatorCore` as shell and loop would; ``committed`` survives."""

    def __init__(self, limits: AggregatorLimits | None = None) -> None:
        self.limits = limits or some_limits()
        self.logs: dict[TopicPartition, Log] = defaultdict(Log)
        self.committed = dict.fromkeys(range(self.limits.partitions), 0)
        self.position = dict(self.committed)
        self.jobs_position = dict(self.committed)
        self.wall_ms = START_MS
        self.mono_ns = 0
        self.epoch = 0
        self.rereads: list[tuple[int, int]] = []
        self.in_flight: EmitPlan | None = None
        self._letters: dict[str, list[DeadLetter]] = {}
        self._letters_read: dict[TopicPartition, int] = {}
        self.restart()

    # -- what the others write -------------------------------------------------------------

    def now(self) -> Now:
        """Both clocks."""
        return Now(self.mono_ns, self.wall_ms)

    def result(self, record: ResultRecord, *, carried: bool = False) -> int:
        """A worker's result; returns its offset."""
        assert record.job_id is not None
        key = job_key(record.lane, record.tenant, record.job_id)
        number = partition_of(key, self.limits.partitions)
        headers = {CARRIED: b"1"} if carried else {}
        out = OutRecord(RESULTS, number, key, wire.encode_result(record), headers)
        return self.logs[out.at].append(out, self.wall_ms)

    def partition_of(self, job_id: str) -> int:
        """The partition of a job."""
        return partition_of(job_key(LANE, "default", job_id), self.limits.partitions)

    def entry(self, entry: JobEntry) -> None:
        """Something said about a job."""
        key = job_key(entry.lane, entry.tenant, entry.job_id)
        out = OutRecord(
            JOBS, partition_of(key, self.limits.partitions),
            job_entry_key(entry.lane, entry.tenant, entry.job_id, entry.kind),
            wire.encode_job(entry),
        )  # fmt: skip
        self.logs[out.at].append(out, self.wall_ms)

    def pass_time(self, ms: int) -> None:
        """Move both clocks."""
        self.wall_ms += ms
        self.mono_ns += ms * 1_000_000

    # -- what shell and loop do ------------------------------------------------------------

    def restart(self) -> None:
        """A new process (or a rewind after an abort): everything from what is committed."""
        self.in_flight = None
        self.core = AggregatorCore(lane=LANE, names=NAMES, limits=self.limits)
        self.assign(range(self.limits.partitions))

    def abort(self) -> None:
        """The emission in flight is not committed: all partitions again, same process."""
        self.in_flight = None
        numbers = list(range(self.limits.partitions))
        self.core.revoked([TopicPartition(RESULTS, n) for n in numbers], self.now())
        self.assign(numbers)

    def move(self, number: int) -> None:
        """A rebalance takes one partition away, after its last emission, and gives it back."""
        while self.commit():
            pass
        self.core.revoked([TopicPartition(RESULTS, number)], self.now())
        self.assign([number])

    def assign(self, numbers: range | list[int]) -> None:
        """Restore and assign in the order of the shell."""
        self.epoch += 1
        given = []
        for number in numbers:
            start = self.committed[number]
            log = self.logs[TopicPartition(RESULTS, number)]
            self.rereads.append((number, start))
            jobs = self.logs[TopicPartition(JOBS, number)]
            self.core.restored(
                number,
                states=self.last_records(STATES, number),
                entries=self.last_records(JOBS, number),
                watermark=log.end,
            )
            self.position[number] = start
            self.jobs_position[number] = jobs.end
            given.append(Assignment(TopicPartition(RESULTS, number), self.epoch, start))
        self.core.assigned(given, self.now())

    def last_records(self, topic: str, number: int) -> list[Record]:
        """The last record of each key, in log order: what compaction leaves."""
        last = {r.key: r for r in self.logs[TopicPartition(topic, number)].records}
        return sorted(last.values(), key=lambda record: record.offset)

    def deliver(self, number: int = 0, count: int = 1_000_000) -> None:
        """Read results; the position steps over markers once the end is reached."""
        at = TopicPartition(RESULTS, number)
        log = self.logs[at]
        records = log.between(self.position[number], log.end)[:count]
        self.core.deliver(records, self.now())
        if records:
            self.position[number] = records[-1].offset + 1
        if not log.between(self.position[number], log.end):
            self.position[number] = log.end
            self.core.position(at, log.end)

    def hear(self, number: int = 0) -> None:
        """Read the tail of jobs."""
        log = self.logs[TopicPartition(JOBS, number)]
        entries = log.between(self.jobs_position[number], log.end)
        self.jobs_position[number] = log.end
        self.core.job_entries(number, entries, self.now())

    def answer(self) -> list[tuple[int, int]]:
        """Answer the questions for high watermarks; returns them."""
        asked = [
            (number, self.logs[TopicPartition(RESULTS, number)].end)
            for number in self.core.wants_watermark(self.now())
        ]
        for number, high in asked:
            self.core.watermark(number, high, self.now())
        return asked

    def begin(self) -> bool:
        """Take a plan, if there is none in flight."""
        if self.in_flight is None:
            self.in_flight = self.core.plan(self.now(), final=True)
        return self.in_flight is not None

    def commit(self) -> bool:
        """Commit the plan in flight (or a new one)."""
        if not self.begin():
            return False
        plan, self.in_flight = self.in_flight, None
        assert plan is not None
        assert len({record.at for record in plan.records}) <= 16
        assert plan.offsets
        touched = {record.at for record in plan.records}
        for record in plan.records:
            self.logs[record.at].append(record, self.wall_ms)
        for at in touched:
            self.logs[at].marker()
        for at, mark in plan.offsets.items():
            assert mark.offset >= self.committed[at.partition], "the mark went back"
            assert mark.offset <= self.position[at.partition], "the mark passed the position"
            self.committed[at.partition] = mark.offset
        self.core.settled(plan, self.now())
        return True

    def settle(self) -> None:
        """Read, answer and commit until nothing moves any more."""
        for _ in range(10_000):
            for number in range(self.limits.partitions):
                self.deliver(number)
                self.hear(number)
            if not (self.answer() or self.commit()):
                return
        raise AssertionError("never quiet")

    # -- what readers see ------------------------------------------------------------------

    def outputs(self, job_id: str = "job") -> list[OutputRun | Completion]:
        """Committed runs and completions of a job, in log order (avro form)."""
        return [
            wire.decode_output(record.value)
            for at, log in sorted(self.logs.items())
            if at.topic == OUTPUTS
            for record in log.records
            if record.key == job_key(LANE, "default", job_id)
        ]

    def released(self, job_id: str = "job") -> list[int]:
        """Indices of the committed rows of a job, in log order."""
        return [
            int(index)
            for output in self.outputs(job_id)
            if isinstance(output, OutputRun)
            for index in output.items.index
        ]

    def completions(self, job_id: str = "job") -> list[Completion]:
        """Committed completions of a job."""
        return [each for each in self.outputs(job_id) if isinstance(each, Completion)]

    def letters(self) -> list[DeadLetter]:
        """Committed dead letters."""
        return [
            wire.decode_dead_letter(record.value)
            for at, log in sorted(self.logs.items())
            if at.topic == LETTERS
            for record in log.records
        ]

    def letters_of(self, job_id: str) -> list[DeadLetter]:
        """Committed dead letters of a job; decoded once."""
        for at, log in self.logs.items():
            if at.topic == LETTERS:
                for record in log.between(self._letters_read.get(at, 0), log.end):
                    letter = wire.decode_dead_letter(record.value)
                    self._letters.setdefault(letter.job_id or "", []).append(letter)
                self._letters_read[at] = log.end
        return self._letters.get(job_id, [])

    def live_keys(self, topic: str, number: int = 0) -> dict[bytes, bytes]:
        """What compaction leaves of a compacted topic."""
        last = {r.key: r.value for r in self.logs[TopicPartition(topic, number)].records}
        return {k: v for k, v in last.items() if k is not None and v is not None}
