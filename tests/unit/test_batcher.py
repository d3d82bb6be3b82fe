from __future__ import annotations

import numpy as np
import pytest

from streamer.batch.batcher import Batcher, BatchKey, MicroBatch
from streamer.batch.cost import CostModel
from streamer.batch.limits import BatchLimits, Budget

KEY = BatchKey("r", "embed", "p")
MS = 1_000_000


def a_batcher(**limits: object) -> Batcher:
    fields = {"items_max": 4, "tokens_max": 100, "linger_ns": 5 * MS, "margin_ns": 0, **limits}
    return Batcher(BatchLimits(**fields), CostModel(fixed_ms=1.0, token_us=10.0))  # type: ignore[arg-type]


def add(batcher: Batcher, *lengths: int, ref: str = "a", now: int = 0, **more: object) -> None:
    batcher.add(
        ref, partition=0, key=more.pop("key", KEY), lengths=np.array(lengths, np.int32),
        enqueued_ns=now, **more,
    )  # type: ignore[arg-type]  # fmt: skip


def items_of(batch: MicroBatch | None) -> list[tuple[object, list[int]]]:
    assert batch is not None
    return [(part.ref, part.items.tolist()) for part in batch.parts]


def test_linger_counts_from_the_oldest_item() -> None:
    batcher = a_batcher()
    add(batcher, 10, ref="old", now=0)
    add(batcher, 10, ref="young", now=4 * MS)

    assert batcher.take(5 * MS - 1) is None
    assert batcher.wake_at() == 5 * MS
    batch = batcher.take(5 * MS)

    assert batch is not None
    assert (batch.reason, batch.items, batch.oldest_wait_ns) == ("linger", 2, 5 * MS)


def test_a_full_batch_does_not_wait() -> None:
    by_tokens, by_items = a_batcher(), a_batcher()
    add(by_tokens, 50, 50)
    add(by_items, 1, 1, 1, 1)

    for batcher, reason in ((by_tokens, "tokens"), (by_items, "items")):
        batch = batcher.take(0, slot_free=False)
        assert batch is not None
        assert batch.reason == reason


def test_without_linger_an_idle_slot_takes_what_is_there_and_a_busy_one_waits() -> None:
    batcher = a_batcher(linger_ns=0)
    add(batcher, 10)

    assert batcher.take(0, slot_free=False) is None
    batch = batcher.take(0, slot_free=True)

    assert batch is not None
    assert batch.reason == "slot_free"


def test_a_deadline_ends_the_waiting_by_the_predicted_time_before_it() -> None:
    batcher = a_batcher(linger_ns=50 * MS, patience_ns=90 * MS)
    # A full batch is predicted to take 1 ms + 100 × 10 µs = 2 ms.
    add(batcher, 10, deadline_ns=np.array([20 * MS]))

    assert batcher.take(18 * MS - 1) is None
    batch = batcher.take(18 * MS)

    assert batch is not None
    assert batch.reason == "deadline"


def test_drain_waits_for_nobody() -> None:
    batcher = a_batcher()
    add(batcher, 10)

    batch = batcher.take(0, slot_free=False, drain=True)

    assert batch is not None
    assert batch.reason == "drain"
    assert batcher.items == 0
    assert batcher.wake_at() is None


def test_the_most_urgent_item_decides_which_batch_goes_first() -> None:
    batcher = a_batcher(linger_ns=0)
    add(batcher, 90, 5, 5, ref="early", now=0)
    add(batcher, 80, ref="urgent", now=1, deadline_ns=np.array([3 * MS]))

    assert items_of(batcher.take(2)) == [("urgent", [0])]


def test_lengths_that_would_pad_each_other_run_apart() -> None:
    batcher = a_batcher(items_max=16, tokens_max=200)
    add(batcher, 2, 60, 2, 2, 60, 2, 2)

    batches = [items_of(batcher.take(0, drain=True)) for _ in range(2)]

    assert sorted(batches) == [[("a", [0, 2, 3, 5, 6])], [("a", [1, 4])]]


def test_different_params_never_share_a_batch() -> None:
    batcher = a_batcher()
    add(batcher, 5, ref="a")
    add(batcher, 5, ref="b", key=KEY._replace(params_key="q"))

    batches = [items_of(batcher.take(0, drain=True)) for _ in range(2)]

    assert sorted(batches) == [[("a", [0])], [("b", [0])]]


def test_one_item_over_every_bound_runs_alone() -> None:
    batcher = a_batcher()
    add(batcher, 90, 90, 90, rows=np.array([3], np.int32))
    add(batcher, 5, ref="b")

    batches = [items_of(batcher.take(0, drain=True)) for _ in range(2)]

    assert sorted(batches) == [[("a", [0])], [("b", [0])]]


def test_only_the_named_items_of_a_record_run() -> None:
    batcher = a_batcher()
    add(batcher, 5, 5, 5, items=np.array([0, 2], np.int32))

    assert items_of(batcher.take(0, drain=True)) == [("a", [0, 2])]
    assert batcher.items == 0


def test_a_budget_keeps_one_batch_short() -> None:
    batcher = a_batcher(items_max=64, tokens_max=400)
    add(batcher, *[10] * 40)

    # 1 ms + 2 ms of tokens at 10 µs: 200 tokens.
    batch = batcher.take(0, budget=Budget(ms_max=3.0))

    assert batch is not None
    assert batch.padded_tokens == 200


@pytest.mark.parametrize("wrong", [{"items_max": 0}, {"linger_ns": 10, "patience_ns": 5}])
def test_limits_that_fit_nothing_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        BatchLimits(**wrong)  # type: ignore[arg-type]
