"""Laws of the batcher: every item leaves once, bounds hold, nobody starves."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streamer.batch.batcher import Batcher, BatchKey
from streamer.batch.cost import CostModel
from streamer.batch.limits import BatchLimits, Budget

LIMITS = BatchLimits(
    items_max=12, tokens_max=100, bytes_max=360, linger_ns=50, patience_ns=400, margin_ns=5
)
KEYS = tuple(BatchKey("r", "embed", name) for name in ("a", "b", "c"))
record = st.lists(
    st.tuples(st.integers(1, 130), st.integers(1, 3), st.sampled_from([0, 0, 60, 2_000])),
    min_size=1,
    max_size=9,
)


class BatcherMachine(RuleBasedStateMachine):
    """The batcher beside a plain dict of what waits."""

    def __init__(self) -> None:
        super().__init__()
        self.batcher = Batcher(LIMITS, CostModel(fixed_ms=0.00001, token_us=0.0001))
        self.waiting: dict[tuple[int, int], tuple[int, BatchKey, int, int, int]] = {}
        self.now = 1_000
        self.number = 0

    @rule(rows=record, key=st.sampled_from(KEYS), partition=st.integers(0, 3))
    def add(self, rows: list[tuple[int, int, int]], key: BatchKey, partition: int) -> None:
        texts = np.array([row[1] for row in rows], np.int32)
        # The first text of an item is its longest one.
        lengths = np.concatenate(
            [[row[0]] + [1] * (row[1] - 1) for row in rows], dtype=np.int32, casting="unsafe"
        )
        deadlines = np.array([row[2] and self.now + row[2] for row in rows], np.int64)
        self.batcher.add(
            self.number, partition=partition, key=key, lengths=lengths, rows=texts,
            deadline_ns=deadlines, enqueued_ns=self.now,
        )  # fmt: skip
        for at, (longest, count, _) in enumerate(rows):
            self.waiting[self.number, at] = (partition, key, self.now, longest, count)
        self.number += 1

    @rule(ns=st.integers(1, 60))
    def pass_time(self, ns: int) -> None:
        self.now += ns

    @rule(partitions=st.sets(st.integers(0, 3), max_size=2))
    def drop(self, partitions: set[int]) -> None:
        gone = [at for at, row in self.waiting.items() if row[0] in partitions]
        assert self.batcher.drop(partitions) == len(gone)
        for at in gone:
            del self.waiting[at]

    @rule(
        slot_free=st.booleans(),
        drain=st.booleans(),
        budget=st.sampled_from([None, None, Budget(tokens_max=40), Budget(ms_max=0.00002)]),
    )
    def take(self, slot_free: bool, drain: bool, budget: Budget | None) -> None:
        self._take(slot_free=slot_free, drain=drain, budget=budget)

    @rule()
    def serve_all_that_is_due(self) -> None:
        while self._take(slot_free=True, drain=False, budget=None):
            pass
        for _, _, came, _, _ in self.waiting.values():
            assert self.now - came < LIMITS.linger_ns, "an item waits beyond its linger"

    def _take(self, *, slot_free: bool, drain: bool, budget: Budget | None) -> bool:
        batch = self.batcher.take(self.now, slot_free=slot_free, drain=drain, budget=budget)
        if batch is None:
            assert not (drain and self.waiting), "drain leaves nothing behind"
            return False
        taken = [(ref, int(at)) for ref, items in batch.parts for at in items]
        assert len({ref for ref, _ in batch.parts}) == len(batch.parts)
        rows = [self.waiting.pop(name) for name in taken]  # KeyError: it left twice
        assert {key for _, key, _, _, _ in rows} == {batch.key}
        longest = max(row[3] for row in rows)
        texts = sum(row[4] for row in rows)
        assert (batch.items, batch.texts) == (len(rows), texts)
        assert batch.padded_tokens == longest * texts
        assert batch.oldest_wait_ns == self.now - min(row[2] for row in rows)
        if len(rows) > 1:
            tokens_max = budget.tokens_max if budget and budget.tokens_max else LIMITS.tokens_max
            assert batch.padded_tokens <= tokens_max
            assert len(rows) <= LIMITS.items_max
            assert sum(4 * row[3] * row[4] for row in rows) <= LIMITS.bytes_max
            if budget and budget.ms_max:
                assert batch.predicted_ms <= budget.ms_max * 1.000001
        return True

    @invariant()
    def sums_agree(self) -> None:
        self.batcher.check()
        assert self.batcher.items == len(self.waiting)
        assert (self.batcher.wake_at() is None) == (not self.waiting)


TestBatcher = BatcherMachine.TestCase
TestBatcher.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_urgency_grows_with_age_so_that_deadlines_of_others_cannot_starve_an_item() -> None:
    batcher = Batcher(BatchLimits(items_max=4, tokens_max=40, patience_ns=1_000, margin_ns=0))
    key = KEYS[0]
    batcher.add("old", partition=0, key=key, lengths=np.array([30], np.int32), enqueued_ns=0)

    for now in range(0, 5_000, 100):
        for at in range(8):
            batcher.add(
                (now, at), partition=0, key=key, lengths=np.array([10], np.int32),
                enqueued_ns=now, deadline_ns=np.array([now + 900]),
            )  # fmt: skip
        batch = batcher.take(now)
        assert batch is not None
        if any(part.ref == "old" for part in batch.parts):
            assert now <= 1_500
            return
    raise AssertionError("the old item never left")
