"""Work's core against an independent model of the log: whatever happens in which order, every
offset that is committed covers exactly the items below it, and every item ends once."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamer.event.records import WorkRecord
from tests.support.work_builders import a_work
from tests.support.work_world import PARTITIONS, POISON, WALL_MS, World

_partition = st.integers(0, PARTITIONS - 1)


class WorkMachine(RuleBasedStateMachine):
    """Random histories with the faults of a real cluster."""

    @initialize(paced=st.booleans(), tight=st.booleans(), running=st.booleans())
    def begin(self, paced: bool, tight: bool, running: bool) -> None:
        limits: dict[str, object] = {"commit_ns": 40_000_000 if paced else 0}
        if tight:
            limits["buffer_items"] = 8
        self.world = World(**limits)
        self.items = 0
        if running:
            for partition, until in ((0, 0), (0, WALL_MS + 50), (0, 0), (1, 0)):
                work = a_work(
                    3, first_index=self.items, form="avro", deadlines=[0, until, 0]
                )  # fmt: skip
                self._comes(partition, work)
            self.world.assign([0, 1, 2])
            self.world.make_plan()
            self.world.commit()
            self.world.deliver(4)

    def _comes(self, partition: int, work: WorkRecord, *, marker: bool = False) -> None:
        self.items += len(work.items)
        self.world.append(partition, work, marker=marker)

    # --- input ---

    @rule(
        partition=_partition,
        rows=st.lists(st.integers(1, 3), min_size=1, max_size=4),
        lengths=st.lists(st.integers(1, 40), min_size=12, max_size=12),
        job=st.sampled_from(["job-1", "job-2", "job-3", None]),
        deadline=st.sampled_from([0, 0, 0, 30, 300]),
        poison=st.booleans(),
        foreign=st.sampled_from([False] * 7 + [True]),
        marker=st.booleans(),
    )
    def a_record_comes(
        self, partition: int, rows: list[int], lengths: list[int], job: str | None,
        deadline: int, poison: bool, foreign: bool, marker: bool,
    ) -> None:  # fmt: skip
        if job is None:
            rows = rows[:1]
        until = 0 if deadline == 0 else WALL_MS + self.world.ms + deadline
        work = a_work(
            len(rows), job_id=job, first_index=self.items, rows=rows, form="avro",
            lengths=lengths[: sum(rows)], deadlines=[until] + [0] * (len(rows) - 1),
            tokenizer_hash="other" if foreign else "fake",
        )  # fmt: skip
        if poison:
            names = [f"{POISON}{work.items.custom_id[0]}", *work.items.custom_id[1:]]
            work = replace(work, items=replace(work.items, custom_id=names))
        self._comes(partition, work, marker=marker)

    @rule(partition=_partition)
    def junk_comes(self, partition: int) -> None:
        self.world.append(partition, None)

    # --- our own steps ---

    @rule(partitions=st.lists(_partition, min_size=1, max_size=PARTITIONS, unique=True))
    def assign(self, partitions: list[int]) -> None:
        self.world.assign(partitions)

    @rule(count=st.integers(1, 6))
    def deliver(self, count: int) -> None:
        self.world.deliver(count)

    @precondition(lambda self: len(self.world.flights) < 4)
    @rule(drain=st.booleans())
    def launch(self, drain: bool) -> None:
        self.world.launch(drain=drain)

    @precondition(lambda self: self.world.flights)
    @rule(which=st.integers(0, 3), halves=st.booleans())
    def a_batch_lands(self, which: int, halves: bool) -> None:
        self.world.land(which, halves=halves)

    @rule(final=st.booleans())
    def plan(self, final: bool) -> None:
        self.world.make_plan(final=final)

    @precondition(lambda self: self.world.plan is not None)
    @rule()
    def commit(self) -> None:
        self.world.commit()

    @rule(ms=st.sampled_from([1, 20, 100]))
    def time_passes(self, ms: int) -> None:
        self.world.ms += ms

    # --- faults ---

    @precondition(lambda self: self.world.plan is not None)
    @rule(committed=st.booleans())
    def the_transaction_fails(self, committed: bool) -> None:
        self.world.fail(committed=committed)

    @precondition(lambda self: self.world.plan is None)
    @rule(partitions=st.lists(_partition, min_size=1, max_size=PARTITIONS, unique=True))
    def revoke(self, partitions: list[int]) -> None:
        self.world.revoke(partitions)

    @precondition(lambda self: self.world.plan is None)
    @rule()
    def everything_is_read_again(self) -> None:
        """Batches of the old assignment are still on the device when the new one is complete."""
        owned = sorted(self.world.position)
        self.world.revoke(owned)
        self.world.assign(owned)
        if self.world.make_plan():
            self.world.commit()
        self.world.deliver(6)

    @rule(partition=_partition)
    def another_worker_goes_on(self, partition: int) -> None:
        self.world.other_owner_runs(partition)

    # --- what must hold ---

    @invariant()
    def the_core_agrees_with_itself(self) -> None:
        if hasattr(self, "world"):
            self.world.core.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.heal()
            self.world.check_history()


WorkMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestWork = WorkMachine.TestCase
