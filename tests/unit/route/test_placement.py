from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.event.records import BucketPlan
from streamer.route.buckets import bucket_of, default_plan, interleaved, static_plan, unevenness
from streamer.route.entry import GroupKey
from streamer.route.grouping import Group
from streamer.route.placement import Cost, Ledger, Placement

COST = Cost()
S = 1_000_000_000


def a_group(padded: int = 2_048, bucket: int = 0) -> Group:
    key = GroupKey("m", "embed", "default", "j", "{}", "k", "json", "float", None, "t")
    return Group(key=key, bucket=bucket, items=(), tokens=padded, padded_tokens=padded, texts=1)


def a_placement(labels: tuple[int, ...]) -> tuple[Placement, Ledger]:
    ledger = Ledger(len(labels), record_ms=COST.of(2_048))
    bounds = tuple(2**at for at in range(max(labels) + 1))
    plan = BucketPlan(model="m", lane="bulk", version=1, bounds=bounds, labels=labels)
    return Placement(plan, ledger, COST), ledger


@settings(deadline=None)
@given(st.lists(st.integers(64, 2_048), min_size=24, max_size=200), st.integers(2, 12))
def test_one_job_loads_every_partition_alike(sizes: list[int], partitions: int) -> None:
    placement, ledger = a_placement((0,) * partitions)
    for at, size in enumerate(sizes):
        (partition,) = placement.place([a_group(size)], at, partitions_max=16)
        ledger.sent(partition, COST.of(size), at)

    loads = ledger.loads(len(sizes))

    assert max(loads) - min(loads) <= COST.of(2_048)
    assert min(loads) > 0


def test_a_plan_of_many_groups_stays_within_its_partitions_and_serves_every_bucket() -> None:
    placement, _ = a_placement((0, 1, 2, 3) * 3)
    groups = [a_group(100 * (at + 1), at % 4) for at in range(40)]

    for most in (4, 5, 7, 12):
        placed = placement.place(groups, 0, partitions_max=most)
        assert len(set(placed)) <= most
        for group, partition in zip(groups, placed, strict=True):
            assert placement.plan.labels[partition] == group.bucket


def test_few_groups_reach_both_halves_of_the_partitions() -> None:
    placement, _ = a_placement((0,) * 12)

    placed = placement.place([a_group() for _ in range(4)], 0, partitions_max=4)

    assert {partition < 6 for partition in placed} == {True, False}
    assert {partition % 2 for partition in placed} == {0, 1}


def test_a_partition_that_work_does_not_drain_is_avoided() -> None:
    placement, ledger = a_placement((0,) * 3)
    ledger.read({0: 30, 1: 1, 2: 2}, 5 * S)

    placed = [placement.place([a_group()], 6 * S, partitions_max=4)[0] for _ in range(4)]

    assert 0 not in placed


def test_a_reading_replaces_what_was_sent_before_it_and_keeps_what_came_after() -> None:
    _, ledger = a_placement((0,) * 2)
    ledger.sent(0, 10.0, 1 * S)
    ledger.sent(0, 20.0, 3 * S)
    assert ledger.loads(3 * S) == [30.0, 0.0]

    ledger.read({0: 1, 1: 1}, 2 * S)

    assert ledger.loads(3 * S) == [20.0, 0.0]


def test_an_old_reading_is_not_believed_and_old_sends_fade() -> None:
    _, ledger = a_placement((0,) * 2)
    ledger.read({0: 100, 1: 1}, 0)
    ledger.sent(1, 7.0, 1 * S)

    assert ledger.loads(9 * S)[0] > 1_000
    assert ledger.loads(11 * S) == [0.0, 7.0]
    assert ledger.loads(62 * S) == [0.0, 0.0]


def test_a_bucket_spills_after_five_seconds_of_imbalance_and_comes_back() -> None:
    placement, ledger = a_placement((0, 0, 1, 1))

    def place(now_ns: int) -> int:
        return placement.place([a_group()], now_ns, partitions_max=4)[0]

    ledger.read({0: 50, 1: 50, 2: 1, 3: 1}, 1 * S)
    assert place(1 * S) in (0, 1)
    assert place(int(5.9 * S)) in (0, 1)
    assert place(6 * S) in (2, 3)
    ledger.read(dict.fromkeys(range(4), 1), 7 * S)

    assert place(7 * S) in (0, 1)


def test_the_class_of_a_text_is_the_first_bound_it_fits() -> None:
    plan = static_plan(model="m", lane="bulk", version=1, bounds=(4, 16, 256), counts=(2, 1, 1))

    assert [bucket_of(plan, tokens) for tokens in (1, 4, 5, 16, 17, 256, 999)] == [
        0, 0, 1, 1, 2, 2, 2,
    ]  # fmt: skip


def test_by_default_every_partition_takes_every_length() -> None:
    plan = default_plan(model="m", lane="bulk", partitions=12, max_length=256)

    assert (plan.version, plan.bounds, plan.labels) == (0, (256,), (0,) * 12)


@pytest.mark.parametrize("counts", [(6, 6), (9, 3), (5, 4, 3), (3, 3, 3, 3)])
def test_interleaved_labels_are_fairer_than_blocks_and_than_a_regular_pattern(
    counts: tuple[int, ...],
) -> None:
    labels = interleaved(counts)
    blocks = tuple(bucket for bucket, count in enumerate(counts) for _ in range(count))
    regular = tuple(at % len(counts) for at in range(12))

    assert sorted(labels) == sorted(blocks)
    assert interleaved(counts) == labels
    assert unevenness(labels) <= unevenness(blocks)
    if sorted(regular) == sorted(blocks):
        assert unevenness(labels) <= unevenness(regular)
