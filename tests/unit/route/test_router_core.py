"""The router's decisions in one lane, case by case."""

from __future__ import annotations

import orjson
import pytest

from streamer.event.lane import Assignment
from streamer.event.records import BucketPlan
from streamer.route.grouping import GroupLimits
from streamer.route.router_core import PARTITIONS_MAX, RouterLimits
from streamer.route.window import WindowLimits
from tests.support.router import (
    WALL_MS,
    Emitted,
    a_core,
    a_model,
    a_record,
    a_request,
    assign,
    drained,
    now_at,
)


def test_a_bulk_item_waits_for_its_window_and_not_longer() -> None:
    core = a_core()
    assign(core)
    core.deliver([a_record(a_request(job_id="j", index=0))], now_at(0))

    assert core.plan(now_at(99.9)) is None
    assert core.wake_at(now_at(0)) == now_at(100).mono_ns
    plan = core.plan(now_at(100))

    assert plan is not None
    assert plan.token.facts.reason == "age"


def test_a_fast_item_is_never_held() -> None:
    core = a_core(lane="fast")
    assign(core, lane="fast")
    core.deliver([a_record(a_request(), lane="fast")], now_at(5))

    plan = core.plan(now_at(5))

    assert plan is not None
    assert [work.group_reason for work in Emitted(plan).work] == ["now"]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [(WindowLimits(items=4), "items"), (WindowLimits(tokens=16), "tokens"),
     (WindowLimits(buffer_items=4), "room")],
)  # fmt: skip
def test_a_full_window_does_not_wait(limits: WindowLimits, reason: str) -> None:
    core = a_core(limits=RouterLimits(window=limits))
    assign(core)
    records = [a_record(a_request(job_id="j", index=i), i) for i in range(4)]
    core.deliver(records[:3], now_at(0))
    assert core.plan(now_at(1)) is None
    core.deliver(records[3:], now_at(1))

    plan = core.plan(now_at(1))

    assert plan is not None
    assert plan.token.facts.reason == reason


def test_offsets_are_the_next_ones_to_read_and_markers_need_no_care() -> None:
    core = a_core()
    first, second = assign(core, 2, offset=3)
    core.deliver([a_record(a_request(), 3), a_record(a_request(), 7),
                  a_record(a_request(), 5, partition=1)], now_at(0))  # fmt: skip

    (emitted,) = drained(core)

    assert {at: mark.offset for at, mark in emitted.plan.offsets.items()} == {first: 8, second: 6}


def test_what_was_not_committed_is_forgotten_and_routed_again() -> None:
    core = a_core()
    (at,) = assign(core)
    records = [a_record(a_request(job_id="j", index=i, total=3), i) for i in range(3)]
    core.deliver(records, now_at(0))
    lost = core.plan(now_at(100))
    assert lost is not None

    core.revoked([at], now_at(101))
    assert core.plan(now_at(500), final=True) is None
    core.assigned([Assignment(at=at, epoch=2, offset=0)], now_at(102))
    core.deliver(records, now_at(103))
    (again,) = drained(core)

    assert sorted(again.outcomes()) == [(0, 0), (0, 1), (0, 2)]
    assert [entry.total for entry in again.seen] == [3]


def test_a_late_settle_of_an_old_epoch_moves_nothing() -> None:
    core = a_core()
    (at,) = assign(core)
    core.deliver([a_record(a_request(), 0), a_record(a_request(), 1)], now_at(0))
    old = core.plan(now_at(100))
    assert old is not None
    core.revoked([at], now_at(101))
    core.assigned([Assignment(at=at, epoch=2, offset=0)], now_at(102))
    core.deliver([a_record(a_request(), 0)], now_at(103))
    core.settled(old, now_at(104))

    (again,) = drained(core)

    assert again.plan.offsets[at].offset == 1


def test_a_revoked_partition_leaves_the_others_untouched() -> None:
    core = a_core()
    first, second = assign(core, 2)
    core.deliver([a_record(a_request(), 0), a_record(a_request(), 0, partition=1)], now_at(0))

    core.revoked([first], now_at(1))
    (emitted,) = drained(core)

    assert list(emitted.plan.offsets) == [second]
    assert emitted.outcomes() == [(1, 0)]


def test_a_job_is_announced_with_its_first_items_and_when_it_says_more() -> None:
    core = a_core()
    assign(core)
    told: list[list[tuple[int, int]]] = []
    says = [{"total": 9}, {"total": 9}, {}, {"deadline_at_ms": WALL_MS + 90_000},
            {"deadline_at_ms": WALL_MS + 95_000}, {"deadline_at_ms": WALL_MS + 80_000},
            {"total": 8}]  # fmt: skip
    for index, fields in enumerate(says):
        core.deliver([a_record(a_request(job_id="j", index=index, **fields), index)], now_at(0))
        (emitted,) = drained(core)
        told.append([(seen.total, seen.deadline_at_ms - WALL_MS) for seen in emitted.seen])

    assert told == [[(9, -WALL_MS)], [], [], [(9, 90_000)], [], [(9, 80_000)], [(8, 80_000)]]


def test_an_expired_item_does_not_end_its_whole_job() -> None:
    core = a_core()
    assign(core)
    core.deliver([
        a_record(a_request(job_id="j", index=0, total=2, deadline_at_ms=WALL_MS - 1), 0),
        a_record(a_request(job_id="j", index=1, total=2), 1),
    ], now_at(0))  # fmt: skip

    (emitted,) = drained(core)

    assert [(seen.total, seen.deadline_at_ms) for seen in emitted.seen] == [(2, 0)]
    assert emitted.results[0].status.tolist() == [2]
    assert emitted.results[0].errors[0].code == "expired"
    assert emitted.work[0].items.index.tolist() == [1]


def test_a_job_announced_long_ago_is_announced_again() -> None:
    core = a_core()
    assign(core)
    counts = []
    for offset, at_ms in enumerate((0, 599_000, 601_000)):
        core.deliver([a_record(a_request(job_id="j", index=offset), offset)], now_at(at_ms))
        (emitted,) = drained(core, at_ms)
        counts.append(len(emitted.seen))

    assert counts == [1, 0, 1]


def test_the_origin_header_is_the_origin() -> None:
    core = a_core()
    assign(core)
    header = {"streamer-origin": b"t.requests.bulk:5:77"}
    core.deliver([a_record(a_request(job_id="j", index=0), 9, headers=header)], now_at(0))

    (emitted,) = drained(core)

    items = emitted.work[0].items
    assert (items.origin_partition.tolist(), items.origin_offset.tolist()) == ([5], [77])
    assert emitted.work[0].origin_topic == "t.requests.bulk"


def test_items_of_another_origin_topic_are_a_group_of_their_own() -> None:
    core = a_core()
    assign(core)
    header = {"streamer-origin": b"old.requests.bulk:0:0"}
    core.deliver([a_record(a_request(job_id="j", index=0), 0, headers=header),
                  a_record(a_request(job_id="j", index=1), 1)], now_at(0))  # fmt: skip

    (emitted,) = drained(core)

    assert sorted(work.origin_topic for work in emitted.work) == [
        "old.requests.bulk", "t.requests.bulk",
    ]  # fmt: skip


def test_a_garbled_origin_header_is_a_dead_letter() -> None:
    core = a_core()
    assign(core)
    core.deliver([a_record(a_request(), headers={"streamer-origin": b"x"})], now_at(0))

    (emitted,) = drained(core)

    assert [letter.code for letter in emitted.letters] == ["corrupt_record"]


def test_twenty_models_and_many_jobs_are_cut_to_sixteen_partitions_a_transaction() -> None:
    core = a_core(*[a_model(f"m{at}") for at in range(20)])
    assign(core)
    core.deliver([
        a_record(a_request(model=f"m{i % 20}", job_id=f"j{i % 50}", index=i), i)
        for i in range(400)
    ], now_at(0))  # fmt: skip

    emitted = drained(core)

    assert len(emitted) > 1
    for one in emitted:
        assert len({record.at for record in one.plan.records}) <= PARTITIONS_MAX
    assert sorted(item for one in emitted for item in one.outcomes()) == [
        (0, i) for i in range(400)
    ]


def test_room_shrinks_with_what_is_held_and_what_is_in_flight() -> None:
    core = a_core(limits=RouterLimits(window=WindowLimits(buffer_items=10)))
    assign(core)
    core.deliver([a_record(a_request(job_id="j", index=i), i) for i in range(6)], now_at(0))
    assert core.room(now_at(0)) == 4

    plan = core.plan(now_at(100))
    core.deliver([a_record(a_request(job_id="j", index=i), i) for i in (6, 7, 8)], now_at(100))
    assert core.room(now_at(100)) == 1
    assert plan is not None
    core.settled(plan, now_at(110))

    assert core.room(now_at(110)) == 7


def test_large_records_fill_the_room_by_their_bytes() -> None:
    core = a_core(limits=RouterLimits(window=WindowLimits(buffer_bytes=300_000)))
    assign(core)
    core.deliver([a_record(b"{" + b"x" * 200_000, 0)], now_at(0))
    assert 0 < core.room(now_at(0)) < 10

    core.deliver([a_record(b"{" + b"x" * 200_000, 1)], now_at(0))

    assert core.room(now_at(0)) == 0


def test_groups_keep_to_items_tokens_and_predicted_answers() -> None:
    limits = RouterLimits(group=GroupLimits(items=8, tokens=64, answer_bytes=160))
    core = a_core(a_model(dimension=8), limits=limits)
    assign(core)
    core.deliver([
        a_record(a_request(job_id="j", index=i, input="w " * (1 + i % 40)), i) for i in range(200)
    ], now_at(0))  # fmt: skip

    (emitted,) = drained(core)

    for work in emitted.work:
        assert len(work.items) <= 5  # 160 bytes / (8 values x 4 bytes)
        assert int(work.lengths.max()) * len(work.lengths) <= 64


def test_a_published_plan_counts_when_it_fits_and_is_newer() -> None:
    core = a_core(partitions=4)

    def plan(**fields: object) -> BucketPlan:
        base = {"model": "fake", "lane": "bulk", "version": 1, "bounds": (16, 256),
                "labels": (0, 1, 0, 1)}  # fmt: skip
        return BucketPlan(**{**base, **fields})  # type: ignore[arg-type]

    assert core.use_plan(plan(lane="fast")) == "another lane or model"
    assert core.use_plan(plan(labels=(0, 1))) == "2 labels for 4 partitions"
    assert core.use_plan(plan(labels=(0, 0, 0, 0))) is not None
    assert core.use_plan(plan(bounds=(256, 16))) == "bounds do not ascend"
    assert core.use_plan(plan()) is None
    assert core.use_plan(plan()) == "an older version"
    assert core.plan_of("fake").version == 1


def test_items_go_to_partitions_of_their_length_class() -> None:
    core = a_core(partitions=4)
    assign(core)
    core.use_plan(BucketPlan(model="fake", lane="bulk", version=1, bounds=(4, 256),
                             labels=(0, 1, 0, 1)))  # fmt: skip
    core.deliver([
        a_record(a_request(job_id="j", index=i, input="w " * (2 if i % 2 else 9)), i)
        for i in range(300)
    ], now_at(0))  # fmt: skip

    (emitted,) = drained(core)

    for work, partition in zip(emitted.work, emitted.work_at, strict=True):
        assert {bool(length > 4) for length in work.lengths.tolist()} == {partition % 2 == 1}
        assert work.plan_version == 1


def test_refused_job_items_share_records_and_each_reply_stands_alone() -> None:
    core = a_core()
    assign(core)
    core.deliver([
        *(a_record(a_request(model="nope", job_id="j", index=i), i) for i in range(300)),
        *(a_record(a_request(model="nope", custom_id=f"r{i}", reply_to=i), 300 + i)
          for i in range(3)),
    ], now_at(0))  # fmt: skip

    (emitted,) = drained(core)

    assert [len(result.items) for result in emitted.results] == [256, 44]
    assert [record.partition for record in emitted.replies] == [0, 1, 2]
    assert [orjson.loads(record.value)["custom_id"] for record in emitted.replies] == [
        "r0", "r1", "r2",
    ]  # fmt: skip


def test_a_list_is_one_item_of_several_rows() -> None:
    core = a_core()
    assign(core)
    core.deliver([a_record(a_request(input=["a b", "c"]))], now_at(0))

    (emitted,) = drained(core)

    work = emitted.work[0]
    assert (work.items.rows.tolist(), work.lengths.tolist()) == ([2], [2, 1])
    assert work.items.flags.tolist() == [2]
