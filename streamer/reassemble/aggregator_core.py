"""The decisions of aggregate in one lane: rows in any order in, ordered outputs out, exactly once.

Driven like every core (see ``event.lane``), and in addition by its shell:

    restored(p, …)       before ``assigned``: what the compacted topics say, and the watermark
    job_entries(p, …)    what is said about jobs from then on
    position(at, n)      the client's read position, which steps over transaction markers
    wants_watermark()    partitions whose high watermark is needed to close jobs
    watermark(p, …)      the answer

Plans change the state at once. That is safe because after anything but a commit the loop revokes
and assigns all partitions again, and everything is restored from what is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from streamer.event.lane import (
    Assignment,
    EmitPlan,
    Now,
    OffsetMark,
    Record,
    TopicPartition,
)
from streamer.event.topics import TopicNames
from streamer.reassemble.emission import Budget, Emission, PartitionEmitter
from streamer.reassemble.partition import AggregatorLimits, PartitionState
from streamer.reassemble.resequencer import Tally

_ROOM_RECORDS = 512
# Consuming goes on in small steps above the memory bound when nothing can be released: the row
# that everything waits for may be the next one.
_ROOM_WHEN_STUCK = 16
_PLAN_RECORDS = 4_096


@dataclass(frozen=True, slots=True)
class _Restored:
    states: Sequence[Record]
    entries: Sequence[Record]
    watermark: int


class AggregatorCore:
    """Implements ``LaneCore`` for ``results.<lane>``.

    Args:
        lane: fast or bulk.
        names: of the topics.
        limits: see :class:`AggregatorLimits`.
    """

    def __init__(self, *, lane: str, names: TopicNames, limits: AggregatorLimits) -> None:
        self.tally = Tally()
        self._lane = lane
        self._limits = limits
        self._results = names.results(lane)
        self._emitter = PartitionEmitter(names=names, lane=lane)
        self._restored: dict[int, _Restored] = {}
        self._parts: dict[int, PartitionState] = {}
        self._pending_since_ns: int | None = None
        self._idle_since_ns: int | None = None
        self._first = 0

    # -- assignment ------------------------------------------------------------------------

    def restored(
        self, partition: int, *, states: Sequence[Record], entries: Sequence[Record],
        watermark: int,
    ) -> None:  # fmt: skip
        """What was read for a partition that ``assigned`` names next.

        Args:
            partition: number of the results partition.
            states: ``job-state`` of the same number; the last record of a key counts.
            entries: ``jobs`` of the same number; the last record of a key counts.
            watermark: high watermark of the results partition, from a read_uncommitted handle,
                taken after the assignment and after the committed offset.
        """
        self._restored[partition] = _Restored(states, entries, watermark)

    def assigned(self, assignments: Sequence[Assignment], now: Now) -> None:
        """See ``LaneCore``; each partition was restored before."""
        for assignment in assignments:
            number = assignment.at.partition
            found = self._restored.pop(number)
            part = PartitionState(
                lane=self._lane,
                partition=number,
                start=assignment.offset,
                watermark=found.watermark,
                limits=self._limits,
                tally=self.tally,
            )
            part.restore(found.states, found.entries, now)
            self._parts[number] = part

    def revoked(self, partitions: Collection[TopicPartition], now: Now) -> None:
        """See ``LaneCore``."""
        for at in partitions:
            self._parts.pop(at.partition, None)

    def partitions(self) -> frozenset[int]:
        """Numbers of the assigned partitions."""
        return frozenset(self._parts)

    def waiting_rows(self) -> int:
        """Rows that wait for their turn."""
        return sum(part.rows.count for part in self._parts.values())

    # -- what comes in ---------------------------------------------------------------------

    def deliver(self, records: Sequence[Record], now: Now) -> None:
        """See ``LaneCore``."""
        for record in records:
            self._parts[record.partition].deliver(record, now)

    def job_entries(self, partition: int, entries: Sequence[Record], now: Now) -> None:
        """Records of ``jobs`` appended after those the partition was restored with."""
        part = self._parts.get(partition)
        if part is not None:
            for record in entries:
                part.entry(record, now)

    def position(self, at: TopicPartition, position: int) -> None:
        """The client's read position of a partition; everything below was delivered."""
        part = self._parts.get(at.partition)
        if part is not None and at.topic == self._results:
            part.moved_to(position)

    def wants_watermark(self, now: Now) -> list[int]:
        """Partitions whose high watermark is to be asked for now."""
        return [number for number, part in self._parts.items() if part.wants_watermark(now)]

    def watermark(self, partition: int, high: int, asked_at: Now) -> None:
        """The high watermark of a results partition, asked for at ``asked_at``."""
        part = self._parts.get(partition)
        if part is not None:
            part.answered(high, asked_at)

    def room(self, now: Now) -> int:
        """See ``LaneCore``."""
        waiting = sum(part.rows.bytes for part in self._parts.values())
        letters = sum(len(part.rows.letters) for part in self._parts.values())
        if waiting < self._limits.waiting_bytes and letters < _PLAN_RECORDS:
            return _ROOM_RECORDS
        return 0 if self._has_work(now) else _ROOM_WHEN_STUCK

    # -- what goes out ---------------------------------------------------------------------

    def _has_work(self, now: Now) -> bool:
        return any(part.has_work(now.wall_ms) for part in self._parts.values())

    def plan(self, now: Now, *, final: bool = False) -> EmitPlan | None:
        """See ``LaneCore``."""
        if not self._is_time(now, final=final):
            return None
        self._pending_since_ns = self._idle_since_ns = None
        limits = self._limits
        budget = Budget(rows=limits.plan_rows, bytes=limits.plan_bytes, records=_PLAN_RECORDS)
        emission = Emission()
        offsets: dict[TopicPartition, OffsetMark] = {}
        numbers = sorted(self._parts)
        self._first = (self._first + 1) % max(1, len(numbers))
        for number in numbers[self._first :] + numbers[: self._first]:
            part = self._parts[number]
            part.delivered_rows = 0
            if part.has_work(now.wall_ms):
                home = self._emitter.home(number)
                if budget.is_spent or len(emission.touched | home) > limits.partitions_max:
                    continue
                emission.touched |= home
                self._emitter.emit(part, emission, budget, now)
            elif not part.mark_moved:
                continue
            offsets[TopicPartition(self._results, number)] = OffsetMark(part.low.mark())
        return EmitPlan(records=emission.records(), offsets=offsets) if offsets else None

    def _is_time(self, now: Now, *, final: bool) -> bool:
        """Whether something is to be emitted and has waited long enough."""
        if self._has_work(now):
            if self._pending_since_ns is None:
                self._pending_since_ns = now.mono_ns
            rows = sum(part.delivered_rows for part in self._parts.values())
            waited_ns = now.mono_ns - self._pending_since_ns
            return (
                final
                or rows >= self._limits.plan_rows
                or waited_ns >= self._limits.commit_ms * 1_000_000
            )
        self._pending_since_ns = None
        if not any(part.mark_moved for part in self._parts.values()):
            self._idle_since_ns = None
            return False
        if self._idle_since_ns is None:
            self._idle_since_ns = now.mono_ns
        return final or now.mono_ns - self._idle_since_ns >= self._limits.mark_ms * 1_000_000

    def settled(self, plan: EmitPlan, now: Now) -> None:
        """See ``LaneCore``."""
        for at, mark in plan.offsets.items():
            part = self._parts.get(at.partition)
            if part is not None:
                part.committed = mark.offset

    def wake_at(self, now: Now) -> int | None:
        """See ``LaneCore``."""
        times = []
        if self._pending_since_ns is not None:
            times.append(self._pending_since_ns + self._limits.commit_ms * 1_000_000)
        if self._idle_since_ns is not None:
            times.append(self._idle_since_ns + self._limits.mark_ms * 1_000_000)
        for part in self._parts.values():
            wall_ms = part.next_wall_ms(now.wall_ms)
            if wall_ms is not None:
                times.append(now.mono_ns + (wall_ms - now.wall_ms) * 1_000_000)
        return min(times, default=None)
