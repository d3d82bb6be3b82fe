"""The decisions of route in one lane: requests in, work records and refusals out. Pure.

    deliver -> read -> admit -> tokenize -> Window --due--> longest prefix that fits one transaction
    plan    <- notes about jobs <- placement <- sorted groups <-----'

Every delivered record leaves in exactly one plan, and a plan's offsets are the delivered prefix it
covers (invariants *account*, *prefix*, *cover*). Whatever is not committed is forgotten at a revoke
and delivered again (invariant *epoch*). All state is bounded (invariant *bound*).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from streamer.event.frontier import Frontier
from streamer.event.lane import (
    Assignment,
    EmitPlan,
    Now,
    OffsetMark,
    OutRecord,
    Record,
    TopicPartition,
)
from streamer.event.records import BucketPlan, DeadLetter
from streamer.route.buckets import BUCKETS_MAX, bucket_of, default_plan, why_unusable
from streamer.route.entry import Entry, WorkItem
from streamer.route.facts import RouteFacts, facts_of
from streamer.route.grouping import Group, GroupLimits, grouped
from streamer.route.job_notes import JobNotes, NoteDraft, NoteLimits
from streamer.route.models import ServedModel
from streamer.route.outgoing import (
    Outlets,
    dead_letter_record,
    note_record,
    refusal_records,
    work_record,
)
from streamer.route.placement import Cost, Ledger, Placement
from streamer.route.reading import Reader
from streamer.route.window import PartitionBudget, Window, WindowLimits

PARTITIONS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterLimits:
    """Bounds and pace of one lane."""

    window: WindowLimits = field(default_factory=WindowLimits)
    group: GroupLimits = field(default_factory=GroupLimits)
    notes: NoteLimits = field(default_factory=NoteLimits)
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True, slots=True)
class PlanToken:
    """What a plan covers; comes back with ``settled``."""

    epochs: Mapping[TopicPartition, int]
    notes: NoteDraft
    placed: Sequence[tuple[str, int, float]]
    facts: RouteFacts


class RouterCore:
    """See :class:`streamer.event.lane.LaneCore`.

    Args:
        reader: turns records into entries.
        models: every served model, by slug.
        outlets: where records go.
        limits: bounds and pace.
    """

    def __init__(
        self,
        *,
        reader: Reader,
        models: Mapping[str, ServedModel],
        outlets: Outlets,
        limits: RouterLimits,
    ) -> None:
        self._reader = reader
        self._models = models
        self._outlets = outlets
        self._limits = limits
        self._window = Window(limits.window)
        self._notes = JobNotes(lane=outlets.lane, limits=limits.notes)
        self._frontiers: dict[TopicPartition, Frontier] = {}
        self._in_flight = 0
        self._ledgers: dict[str, Ledger] = {}
        self._placements: dict[str, Placement] = {}
        for slug, model in models.items():
            partitions = outlets.work[slug]
            record_ms = limits.cost.of(min(limits.group.tokens, model.tokenizer.max_length))
            self._ledgers[slug] = Ledger(partitions, record_ms=record_ms)
            plan = default_plan(
                model=slug, lane=outlets.lane, partitions=partitions,
                max_length=model.tokenizer.max_length,
            )  # fmt: skip
            self._placements[slug] = Placement(plan, self._ledgers[slug], limits.cost)

    # -- LaneCore ---------------------------------------------------------------------------

    def assigned(self, assignments: Sequence[Assignment], now: Now) -> None:
        """See :class:`streamer.event.lane.LaneCore`."""
        del now
        for one in assignments:
            self._window.drop([one.at])
            self._frontiers[one.at] = Frontier(epoch=one.epoch, start=one.offset)

    def revoked(self, partitions: Collection[TopicPartition], now: Now) -> None:
        """See :class:`streamer.event.lane.LaneCore`."""
        del now
        gone = frozenset(partitions)
        self._window.drop(gone)
        for at in gone:
            self._frontiers.pop(at, None)
        self._in_flight = 0

    def deliver(self, records: Sequence[Record], now: Now) -> None:
        """See :class:`streamer.event.lane.LaneCore`."""
        for record in records:
            self._frontiers[TopicPartition(record.topic, record.partition)].track(record.offset)
        for entry in self._reader.entries(records, now):
            self._window.add(entry)

    def room(self, now: Now) -> int:
        """See :class:`streamer.event.lane.LaneCore`."""
        del now
        return self._window.room(self._in_flight)

    def wake_at(self, now: Now) -> int | None:
        """See :class:`streamer.event.lane.LaneCore`."""
        if not len(self._window):
            return None
        return now.mono_ns if self._window.due(now.mono_ns) else self._window.wake_at_ns()

    def plan(self, now: Now, *, final: bool = False) -> EmitPlan | None:
        """See :class:`streamer.event.lane.LaneCore`."""
        reason = self._window.due(now.mono_ns, final=final)
        if reason is None:
            return None
        budget, notes = PartitionBudget(PARTITIONS_MAX), self._notes.draft(now.wall_ms)
        prefix = self._window.cut(lambda entry: self._fits(entry, budget, notes))
        groups = self._groups(prefix)
        placed = self._placed(groups, budget, now)
        records = [
            *refusal_records(prefix, self._outlets),
            *self._work_records(groups, placed, reason),
            *(
                dead_letter_record(entry.content, self._outlets)
                for entry in prefix
                if isinstance(entry.content, DeadLetter)
            ),
            *(note_record(entry, self._outlets) for entry in notes.records()),
        ]
        self._in_flight = len(prefix)
        offsets = self._offsets(prefix)
        token = PlanToken(
            epochs={at: self._frontiers[at].epoch for at in offsets},
            notes=notes,
            placed=[
                (group.key.model, partition, self._placements[group.key.model].cost_ms(group))
                for group, partition in zip(groups, placed, strict=True)
            ],
            facts=facts_of(reason, prefix, groups, now),
        )
        return EmitPlan(records=records, offsets=offsets, token=token)

    def settled(self, plan: EmitPlan, now: Now) -> None:
        """See :class:`streamer.event.lane.LaneCore`."""
        token = plan.token
        assert isinstance(token, PlanToken)
        for at, mark in plan.offsets.items():
            frontier = self._frontiers.get(at)
            if frontier is not None and frontier.epoch == token.epochs[at]:
                frontier.advance(mark.offset)
        self._in_flight = 0
        self._notes.keep(token.notes)
        for model, partition, ms in token.placed:
            self._ledgers[model].sent(partition, ms, now.mono_ns)

    # -- what the shell tells ---------------------------------------------------------------

    def work_progress(self, model: str, behind: Mapping[int, int], read_ns: int) -> None:
        """How far work is behind in each partition of a model's topic.

        Args:
            model: slug.
            behind: partition -> end offset minus committed offset.
            read_ns: monotonic time before the reading began.
        """
        if model in self._ledgers:
            self._ledgers[model].read(behind, read_ns)

    def use_plan(self, plan: BucketPlan) -> str | None:
        """Take a published bucket plan; returns why not, or None when it is used from now on."""
        if plan.lane != self._outlets.lane or plan.model not in self._placements:
            return "another lane or model"
        placement = self._placements[plan.model]
        if plan.version <= placement.plan.version:
            return "an older version"
        problem = why_unusable(plan, self._outlets.work[plan.model])
        if problem is None:
            placement.relabel(plan)
        return problem

    def plan_of(self, model: str) -> BucketPlan:
        """The bucket plan in use."""
        return self._placements[model].plan

    @property
    def waiting(self) -> int:
        """Entries delivered and not in a plan yet."""
        return len(self._window)

    # -- one plan ---------------------------------------------------------------------------

    def _fits(self, entry: Entry, budget: PartitionBudget, notes: NoteDraft) -> bool:
        content, fixed, bucket = entry.content, [], None
        own = self._outlets.fixed(entry)
        if own is not None:
            fixed.append(own)
        if entry.note is not None and notes.needs(entry.note):
            fixed.append(self._outlets.note_at(entry.note))
        if isinstance(content, WorkItem):
            bucket = (content.key.model, self._bucket_of(content))
        if not budget.admit(fixed, bucket):
            return False
        if entry.note is not None:
            notes.add(entry.note)
        return True

    def _bucket_of(self, item: WorkItem) -> int:
        return bucket_of(self._placements[item.key.model].plan, item.longest)

    def _groups(self, prefix: Sequence[Entry]) -> list[Group]:
        items = [entry.content for entry in prefix if isinstance(entry.content, WorkItem)]
        return grouped(items, self._limits.group, self._bucket_of)

    def _placed(self, groups: Sequence[Group], budget: PartitionBudget, now: Now) -> list[int]:
        shares = budget.shares()
        placed = [0] * len(groups)
        for model, share in shares.items():
            own = [at for at, group in enumerate(groups) if group.key.model == model]
            # Few records need few partitions: each one costs the brokers a marker.
            enough = max(BUCKETS_MAX, (len(own) + 1) // 2)
            chosen = self._placements[model].place(
                [groups[at] for at in own], now.mono_ns, partitions_max=min(share, enough)
            )
            for at, partition in zip(own, chosen, strict=True):
                placed[at] = partition
        return placed

    def _work_records(
        self, groups: Sequence[Group], placed: Sequence[int], reason: str
    ) -> list[OutRecord]:
        return [
            work_record(
                group, partition, model=self._models[group.key.model],
                plan_version=self._placements[group.key.model].plan.version, reason=reason,
                outlets=self._outlets,
            )
            for group, partition in zip(groups, placed, strict=True)
        ]  # fmt: skip

    def _offsets(self, prefix: Sequence[Entry]) -> dict[TopicPartition, OffsetMark]:
        for entry in prefix:
            self._frontiers[entry.at].finish(entry.offset)
        touched = dict.fromkeys(entry.at for entry in prefix)
        return {at: OffsetMark(self._frontiers[at].committable()) for at in touched}
