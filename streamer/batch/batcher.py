"""Forms the micro-batches of one stream (model × lane): what runs together, and when.

Items arrive as whole records and leave in batches that name (record, items). A batch has one key
(revision, task, params); it starts from the most urgent item, its company is chosen among a window
of backlog that is sorted by length and cut at the least predicted cost. It never judges deadlines
and never looks at tokens. Pure: time is an argument; facts leave with the batch.

    add(record) ─► waiting ─► plan (sorted, cut) ─► take(now) ─► MicroBatch(parts, reason, facts)

Invariants: *bound* (no batch over its limits unless it is one item), *account* (each item leaves
once, or is dropped with its partition), no starvation (urgency grows with age).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.batch.cost import CostModel
from streamer.batch.limits import BatchLimits, Budget
from streamer.batch.pool import Chunk, Entry, Pool

CloseReason = Literal["slot_free", "tokens", "items", "linger", "deadline", "drain"]


class BatchKey(NamedTuple):
    """What all items of a batch share."""

    revision: str
    task: str
    params_key: str


class BatchPart(NamedTuple):
    """Items of one record: ``items`` are positions in it, int32, ascending."""

    ref: object
    items: NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """One batch for one device slot, and what there is to know about it.

    Attributes:
        parts: records and the positions of their items, each record once.
        reason: why it was closed.
        items, texts: how many.
        tokens: real tokens; ``padded_tokens`` = longest × texts.
        squares: texts × longest².
        oldest_wait_ns: how long its oldest item waited.
        predicted_ms: what the cost model expects.
    """

    key: BatchKey
    parts: tuple[BatchPart, ...]
    reason: CloseReason
    items: int
    texts: int
    tokens: int
    padded_tokens: int
    squares: float
    oldest_wait_ns: int
    predicted_ms: float


class Batcher:
    """The waiting items of one stream.

    Args:
        limits: bounds and waiting times.
        cost: prices a batch; replace it with ``reprice`` when a better fit is known.
    """

    def __init__(self, limits: BatchLimits, cost: CostModel | None = None) -> None:
        self._limits = limits
        self._cost = cost or CostModel()
        self._pools: dict[BatchKey, Pool] = {}

    @property
    def items(self) -> int:
        """Items that wait."""
        return sum(pool.items for pool in self._pools.values())

    @property
    def padded_tokens(self) -> int:
        """Tokens that wait, each item padded to its own longest text."""
        return sum(pool.padded for pool in self._pools.values())

    @property
    def predicted_ms(self) -> float:
        """Device time that waits, on one instance."""
        cost = self._cost
        return sum(
            pool.padded * (cost.token_us / 1e3 + cost.fixed_ms / self._limits.tokens_max)
            + pool.squares * cost.square_ns / 1e6
            for pool in self._pools.values()
        )

    def reprice(self, cost: CostModel) -> None:
        """Use another cost model from the next plan on; a change of less than 5 % is ignored."""
        tokens = self._limits.tokens_max
        for share in (tokens // 4, tokens):
            before = self._cost.predict_ms(share, share * 64.0)
            if abs(cost.predict_ms(share, share * 64.0) - before) > 0.05 * before:
                self._cost = cost
                return

    def add(
        self,
        ref: object,
        *,
        partition: object,
        key: BatchKey,
        lengths: NDArray[np.int32],
        enqueued_ns: int,
        rows: NDArray[np.int32] | None = None,
        items: NDArray[np.int32] | None = None,
        deadline_ns: NDArray[np.int64] | None = None,
    ) -> None:
        """Take a record (or some of its items) into the stream.

        Args:
            ref: handed back in the parts, not looked at.
            partition: what ``drop`` names it by; any hashable value.
            key: what it may share a batch with.
            lengths: int32 [texts], tokens of every text of the record.
            enqueued_ns: monotonic ns from which its wait counts.
            rows: int32 [n], texts of each item; None = one each.
            items: int32 [k], the positions that shall run, ascending; None = all.
            deadline_ns: int64 [n], monotonic ns by which an answer is wanted; <= 0 = none.
        """
        limits = self._limits
        longest, texts, tokens = _per_item(lengths, rows)
        due = np.full(len(texts), enqueued_ns + limits.patience_ns, np.int64)
        if deadline_ns is not None:
            full_ns = int(self._cost.predict_ms(limits.tokens_max) * 1e6)
            wanted = deadline_ns - limits.margin_ns - full_ns
            due = np.where(deadline_ns > 0, np.minimum(due, wanted), due)
        if items is None:
            left = np.ones(len(texts), np.bool_)
        else:
            left = np.zeros(len(texts), np.bool_)
            left[items] = True
        if not left.any():
            return
        entry = Entry(ref, partition, longest, texts, tokens, due, left, enqueued_ns)
        self._pools.setdefault(key, Pool()).add(entry)

    def drop(self, partitions: Collection[object]) -> int:
        """Forget the waiting items of these partitions; returns how many items went."""
        gone = sum(pool.drop(partitions) for pool in self._pools.values())
        self._forget_empty()
        return gone

    def take(
        self,
        now_ns: int,
        *,
        slot_free: bool = True,
        budget: Budget | None = None,
        drain: bool = False,
    ) -> MicroBatch | None:
        """The next batch, if one should run now.

        Args:
            now_ns: monotonic nanoseconds.
            slot_free: an instance is idle. False = only a place to wait in: then a batch is
                formed only if it is full or its time is up, and the choice stays open otherwise.
            budget: tighter bounds for this batch.
            drain: do not wait for company any more.

        Returns:
            None when nothing waits or waiting for company is still right.
        """
        limits = self._limits.within(budget)
        best: tuple[int, BatchKey, CloseReason] | None = None
        for key, pool in self._pools.items():
            reason = self._reason(pool, limits, now_ns, slot_free, drain)
            if reason is not None:
                due = pool.due()
                if best is None or due < best[0]:
                    best = (due, key, reason)
        if best is None:
            return None
        _, key, reason = best
        pool = self._pools[key]
        batch = self._batch(key, pool.take(limits, self._cost), reason, now_ns)
        if not pool.items:
            del self._pools[key]
        return batch

    def wake_at(self) -> int | None:
        """Monotonic ns at which waiting for company ends; None when nothing waits."""
        times = [
            min(pool.oldest_ns() + self._limits.linger_ns, pool.due())
            for pool in self._pools.values()
        ]
        return min(times, default=None)

    def check(self) -> None:
        """Assert the invariants of the waiting items."""
        for pool in self._pools.values():
            pool.check()

    def _reason(
        self, pool: Pool, limits: BatchLimits, now_ns: int, slot_free: bool, drain: bool
    ) -> CloseReason | None:
        tokens_max = limits.tokens_max
        if limits.predicted_ms_max != float("inf"):
            tokens_max = min(tokens_max, self._cost.tokens_within(limits.predicted_ms_max))
        if pool.padded >= tokens_max:
            return "tokens"
        if pool.items >= limits.items_max:
            return "items"
        if now_ns >= pool.due():
            return "deadline"
        if drain:
            return "drain"
        if limits.linger_ns and now_ns >= pool.oldest_ns() + limits.linger_ns:
            return "linger"
        return "slot_free" if slot_free and not limits.linger_ns else None

    def _batch(self, key: BatchKey, chunk: Chunk, reason: CloseReason, now_ns: int) -> MicroBatch:
        padded = chunk.longest * chunk.texts
        squares = float(padded) * chunk.longest
        return MicroBatch(
            key=key,
            parts=tuple(BatchPart(ref, items) for ref, items in chunk.parts),
            reason=reason,
            items=chunk.items,
            texts=chunk.texts,
            tokens=chunk.tokens,
            padded_tokens=padded,
            squares=squares,
            oldest_wait_ns=max(0, now_ns - chunk.oldest_ns),
            predicted_ms=self._cost.predict_ms(padded, squares),
        )

    def _forget_empty(self) -> None:
        for key in [key for key, pool in self._pools.items() if not pool.items]:
            del self._pools[key]


def _per_item(
    lengths: NDArray[np.int32], rows: NDArray[np.int32] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Longest text, number of texts and tokens of each item: int64 [n] each."""
    wide = lengths.astype(np.int64)
    if rows is None or len(rows) == len(lengths):
        return wide, np.ones(len(wide), np.int64), wide
    texts = rows.astype(np.int64)
    begins = np.cumsum(texts) - texts
    return np.maximum.reduceat(wide, begins), texts, np.add.reduceat(wide, begins)
