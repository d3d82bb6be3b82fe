"""Laws of route: every record ends once, offsets are prefixes, records keep their bounds."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streamer.event.lane import Assignment, Record, TopicPartition
from streamer.route.entry import GroupKey, ItemPlace, WorkItem, work_item
from streamer.route.grouping import GroupLimits, grouped
from streamer.route.router_core import PARTITIONS_MAX, RouterLimits
from streamer.route.tokenizer import ids_array
from streamer.route.window import WindowLimits
from tests.support.router import NAMES, Emitted, a_core, a_model, a_record, a_request, now_at

GROUP = GroupLimits(items=5, tokens=24, size_bytes=900, answer_bytes=96)

job_items = st.fixed_dictionaries(
    {
        "job_id": st.sampled_from(["a", "b", "c"]),
        "index": st.integers(0, 9),
        "model": st.sampled_from(["fake", "other", "nope"]),
        "input": st.sampled_from(["", "a", "a b c", "w " * 20, "w " * 99, ["a", "b c"], [""], 3]),
    },
    optional={
        "total": st.integers(0, 3),
        "timeout_ms": st.sampled_from([-1, 5, 60_000]),
        "params": st.sampled_from([{"truncate": True}, {"normalize": False}, {"nope": 1}]),
        "lane": st.sampled_from(["fast", "bulk"]),
        "metadata": st.just({"k": "v" * 50}),
    },
)
lone_items = st.fixed_dictionaries(
    {"model": st.sampled_from(["fake", "nope"]), "input": st.sampled_from(["a b", "", "w " * 99])},
    optional={"reply_to": st.integers(-1, 5), "custom_id": st.text(max_size=5)},
)
broken = st.sampled_from([None, b"", b"{", b"[1]", b"\0\1\2\3\4\5\6\7\x08\x09", b'{"job_id":"a"}',
                          b"\xff\xfe", b'{"job_id":"a/b","index":0}'])  # fmt: skip
contents = st.one_of(job_items, lone_items, broken)


class Route(RuleBasedStateMachine):
    """A router, and the log it reads: what is committed must be the log, once, in prefixes."""

    def __init__(self) -> None:
        super().__init__()
        self.core = a_core(
            a_model(max_length=64), a_model("other", max_length=64), partitions=3,
            limits=RouterLimits(
                group=GROUP,
                window=WindowLimits(
                    items=6, tokens=90, wait_ms=10, buffer_items=12, plan_items=4
                ),
            ),
        )  # fmt: skip
        self.ms = 0.0
        self.logs: list[list[Record]] = [[], [], []]
        self.next = [0, 0, 0]
        self.committed = [0, 0, 0]
        self.owned = [False, False, False]
        self.epoch = 0
        self.ended: list[tuple[int, int]] = []
        self.pending: Emitted | None = None

    def at(self, partition: int) -> TopicPartition:
        return TopicPartition(NAMES.requests("bulk"), partition)

    @rule(partition=st.integers(0, 2), content=contents, gap=st.integers(0, 2))
    def append(self, partition: int, content: Any, gap: int) -> None:
        log = self.logs[partition]
        offset = (log[-1].offset + 1 if log else 0) + gap
        value = a_request(**content) if isinstance(content, dict) else content
        log.append(a_record(value, offset, partition=partition))

    @rule(partition=st.integers(0, 2))
    def assign(self, partition: int) -> None:
        if self.owned[partition]:
            return
        self.epoch += 1
        start = self.committed[partition]
        self.core.assigned(
            [Assignment(at=self.at(partition), epoch=self.epoch, offset=start)], now_at(self.ms)
        )
        self.owned[partition] = True
        self.next[partition] = start

    @rule(partition=st.integers(0, 2), count=st.integers(1, 6))
    def deliver(self, partition: int, count: int) -> None:
        if not self.owned[partition]:
            return
        room = self.core.room(now_at(self.ms))
        records = [one for one in self.logs[partition] if one.offset >= self.next[partition]]
        records = records[: min(room, count)]
        if records:
            self.next[partition] = records[-1].offset + 1
            self.core.deliver(records, now_at(self.ms))

    @rule(ms=st.sampled_from([1.0, 9.0, 20.0]))
    def wait(self, ms: float) -> None:
        self.ms += ms

    @rule(final=st.booleans())
    def plan(self, final: bool) -> None:
        if self.pending is None:
            plan = self.core.plan(now_at(self.ms), final=final)
            self.pending = None if plan is None else Emitted(plan)

    @rule()
    def commit(self) -> None:
        if self.pending is None:
            return
        plan, self.pending = self.pending.plan, None
        covered = set()
        for at, mark in plan.offsets.items():
            assert mark.offset > self.committed[at.partition]
            covered |= {
                (at.partition, one.offset)
                for one in self.logs[at.partition]
                if self.committed[at.partition] <= one.offset < mark.offset
            }
            self.committed[at.partition] = mark.offset
        outcomes = Emitted(plan).outcomes()
        assert sorted(outcomes) == sorted(covered), "cover: outcomes are not the offsets' prefix"
        self.ended += outcomes
        self.core.settled(plan, now_at(self.ms))

    @rule()
    def fail(self) -> None:
        owned = [at for at in range(3) if self.owned[at]]
        self.pending = None
        self.core.revoked([self.at(one) for one in owned], now_at(self.ms))
        for one in owned:
            self.owned[one] = False
            self.assign(one)

    @rule(partition=st.integers(0, 2))
    def revoke(self, partition: int) -> None:
        self.commit()
        if self.owned[partition]:
            self.core.revoked([self.at(partition)], now_at(self.ms))
            self.owned[partition] = False

    @invariant()
    def every_outcome_is_the_only_one(self) -> None:
        assert len(self.ended) == len(set(self.ended))

    @invariant()
    def buffers_are_bounded(self) -> None:
        assert self.core.waiting <= 12

    @invariant()
    def a_plan_touches_few_partitions_and_names_offsets(self) -> None:
        if self.pending is not None:
            assert self.pending.plan.offsets
            assert len({one.at for one in self.pending.plan.records}) <= PARTITIONS_MAX

    def teardown(self) -> None:
        """All that was appended ends: nothing waits for ever."""
        self.commit()
        for partition in range(3):
            self.assign(partition)
        for _ in range(500):
            self.wait(20.0)
            for partition in range(3):
                self.deliver(partition, 6)
            self.plan(final=False)
            self.commit()
        expected = {(one.partition, one.offset) for log in self.logs for one in log}
        assert set(self.ended) == expected


Route.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestRoute = Route.TestCase


@st.composite
def work_items(draw: st.DrawFn, index: int) -> WorkItem:
    lengths = tuple(draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
    job = draw(st.sampled_from(["a", "b", None]))
    key = GroupKey("fake", "embed", "default", job, draw(st.sampled_from(["{}", '{"x":1}'])), "k",
                   "json", "float", None, "t")  # fmt: skip
    place = ItemPlace(index, f"c{index}", 0, index, len(lengths), None, bytes(16), 0, 0)
    return work_item(
        key=key, place=place,
        ids=tuple(ids_array(range(length), 100) for length in lengths),
        pair_at=tuple(0 for _ in lengths), deadline_at_ms=0, answer_bytes=16 * len(lengths),
    )  # fmt: skip


item_lists = st.integers(0, 40).flatmap(lambda n: st.tuples(*[work_items(i) for i in range(n)]))


def bucket(item: WorkItem) -> int:
    return int(item.longest > 8)


@settings(deadline=None)
@given(item_lists)
def test_groups_hold_every_item_once_and_keep_their_bounds(items: tuple[WorkItem, ...]) -> None:
    groups = grouped(items, GROUP, bucket)

    assert sorted(one.place.index for group in groups for one in group.items) == list(
        range(len(items))
    )
    for group in groups:
        assert {one.key for one in group.items} == {group.key}
        assert {bucket(one) for one in group.items} == {group.bucket}
        assert group.padded_tokens >= group.tokens
        if len(group.items) > 1:
            assert group.key.job_id is not None
            assert len(group.items) <= GROUP.items
            assert group.padded_tokens <= GROUP.tokens
            assert sum(one.size_bytes for one in group.items) <= GROUP.size_bytes
            assert sum(one.answer_bytes for one in group.items) <= GROUP.answer_bytes


@settings(deadline=None)
@given(item_lists, st.randoms(use_true_random=False))
def test_groups_do_not_depend_on_the_order_of_arrival(
    items: tuple[WorkItem, ...], shuffle: Any
) -> None:
    mixed = list(items)
    shuffle.shuffle(mixed)

    def members(order: Any) -> set[tuple[int, ...]]:
        return {tuple(one.place.index for one in g.items) for g in grouped(order, GROUP, bucket)}

    assert members(mixed) == members(items)
