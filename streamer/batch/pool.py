"""The waiting items of one batch key and the plan by which they leave. Pure.

The plan is the window of the most urgent backlog, sorted by length and cut. It lives over several
batches (one plan costs as much as a few hundred items of Python) and is thrown away when it would
be wrong: a partition went, the bounds or the price changed, something more urgent arrived, or what
is left of it is less than a batch while more waits behind it.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.batch.cost import CostModel
from streamer.batch.limits import BatchLimits
from streamer.batch.split import split

_TOKEN_BYTES = 4


@dataclass(slots=True, eq=False)
class Entry:
    """One record's items: arrays int64 [n]; ``left`` marks those that still wait."""

    ref: object
    partition: object
    longest: NDArray[np.int64]
    texts: NDArray[np.int64]
    tokens: NDArray[np.int64]
    due_ns: NDArray[np.int64]
    left: NDArray[np.bool_]
    enqueued_ns: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A batch to be: records with positions of their items."""

    parts: tuple[tuple[object, NDArray[np.int32]], ...]
    entries: tuple[int, ...]
    items: int
    texts: int
    tokens: int
    longest: int
    own_padded: int
    own_squares: float
    due_ns: int
    oldest_ns: int


class Pool:
    """Waiting records in order of arrival, with sums kept up to date."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._next = 0
        self._urgent: list[tuple[int, int]] = []
        self._ages: list[tuple[int, int]] = []
        self._plan: list[Chunk] = []
        self._plan_padded = 0
        self._plan_for: tuple[BatchLimits, CostModel] | None = None
        self.items = 0
        self.padded = 0
        self.squares = 0.0

    def add(self, entry: Entry) -> None:
        """Take a record in; one that is due before all planned ones voids the plan."""
        due = int(entry.due_ns[entry.left].min())
        if self._plan and due < self._plan[-1].due_ns:
            self._void_plan()
        heapq.heappush(self._urgent, (due, self._next))
        heapq.heappush(self._ages, (entry.enqueued_ns, self._next))
        self._entries[self._next] = entry
        self._next += 1
        self._count(entry, 1)

    def drop(self, partitions: Collection[object]) -> int:
        """Forget the records of these partitions; returns their waiting items."""
        gone = [at for at, entry in self._entries.items() if entry.partition in partitions]
        before = self.items
        for at in gone:
            self._count(self._entries.pop(at), -1)
        if gone:
            self._void_plan()
        return before - self.items

    def due(self) -> int:
        """When the most urgent waiting item is due, monotonic ns. Something must wait."""
        while True:
            due, at = self._urgent[0]
            entry = self._entries.get(at)
            if entry is None:
                heapq.heappop(self._urgent)
                continue
            now_due = int(entry.due_ns[entry.left].min())
            if now_due == due:
                return due
            # Its most urgent items left already; what remains is due later.
            heapq.heapreplace(self._urgent, (now_due, at))

    def oldest_ns(self) -> int:
        """When the oldest waiting record came, monotonic ns. Something must wait."""
        while self._ages[0][1] not in self._entries:
            heapq.heappop(self._ages)
        return self._ages[0][0]

    def take(self, limits: BatchLimits, cost: CostModel) -> Chunk:
        """Take the chunk with the most urgent item out. Something must wait."""
        behind = self.padded - self._plan_padded
        stale = self._plan_for != (limits, cost)
        if not self._plan or stale or (behind > 0 and self._plan_padded < limits.tokens_max):
            self._make_plan(limits, cost)
        chunk = self._plan.pop()
        self._plan_padded -= chunk.own_padded
        self.items -= chunk.items
        self.padded -= chunk.own_padded
        self.squares -= chunk.own_squares
        for at, (_, positions) in zip(chunk.entries, chunk.parts, strict=True):
            entry = self._entries[at]
            assert entry.left[positions].all(), "an item leaves only once"
            entry.left[positions] = False
            if not entry.left.any():
                del self._entries[at]
        return chunk

    def check(self) -> None:
        """Assert that the sums are those of the waiting items."""
        entries = self._entries.values()
        assert self.items == sum(int(entry.left.sum()) for entry in entries)
        assert self.padded == sum(
            int((entry.longest * entry.texts)[entry.left].sum()) for entry in entries
        )
        assert all(entry.left.any() for entry in entries)
        assert not self.items or self.oldest_ns() == min(e.enqueued_ns for e in entries)
        assert not self.items or self.due() == min(
            int(entry.due_ns[entry.left].min()) for entry in entries
        )

    def _void_plan(self) -> None:
        self._plan.clear()
        self._plan_padded = 0

    def _count(self, entry: Entry, sign: int) -> None:
        longest, texts = entry.longest[entry.left], entry.texts[entry.left]
        self.items += sign * len(longest)
        self.padded += sign * int((longest * texts).sum())
        self.squares += sign * float((longest * longest * texts).sum())

    def _window(self, limits: BatchLimits) -> list[int]:
        """The most urgent records, several batches' worth."""
        items = tokens = 0
        chosen = []
        self.due()
        for _, at in sorted(self._urgent):
            entry = self._entries.get(at)
            if entry is None:
                continue
            chosen.append(at)
            items += int(entry.left.sum())
            tokens += int((entry.longest * entry.texts)[entry.left].sum())
            if (
                items >= limits.items_max * limits.window_batches
                or tokens >= limits.tokens_max * limits.window_batches
            ):
                break
        return chosen

    def _make_plan(self, limits: BatchLimits, cost: CostModel) -> None:
        chosen = self._window(limits)
        entries = [self._entries[at] for at in chosen]
        positions = [np.flatnonzero(entry.left) for entry in entries]
        owner = np.repeat(np.arange(len(entries)), [len(part) for part in positions])
        position = np.concatenate(positions)
        columns = [
            np.concatenate([getattr(e, name)[p] for e, p in zip(entries, positions, strict=True)])
            for name in ("longest", "texts", "tokens", "due_ns")
        ]
        came = np.array([entry.enqueued_ns for entry in entries], np.int64)
        # Equal lengths leave by urgency, so that the chunks differ in it as much as they can.
        order = np.lexsort((columns[3], columns[0]))
        longest, texts, tokens, due = (column[order] for column in columns)
        owner, position = owner[order], position[order]
        plan = []
        for begin, end in split(longest, texts, longest * texts * _TOKEN_BYTES, limits, cost):
            piece = slice(begin, end)
            own = longest[piece] * texts[piece]
            parts, owners = _group(owner[piece], position[piece])
            plan.append(
                Chunk(
                    parts=tuple((entries[n].ref, p) for n, p in zip(owners, parts, strict=True)),
                    entries=tuple(chosen[n] for n in owners),
                    items=end - begin,
                    texts=int(texts[piece].sum()),
                    tokens=int(tokens[piece].sum()),
                    longest=int(longest[end - 1]),
                    own_padded=int(own.sum()),
                    own_squares=float((own * longest[piece]).sum()),
                    due_ns=int(due[piece].min()),
                    oldest_ns=int(came[owners].min()),
                )
            )
        plan.sort(key=lambda chunk: (-chunk.due_ns, chunk.own_padded))
        self._plan = plan
        self._plan_padded = sum(chunk.own_padded for chunk in plan)
        self._plan_for = (limits, cost)


def _group(
    owner: NDArray[np.int64], position: NDArray[np.int64]
) -> tuple[list[NDArray[np.int32]], list[int]]:
    """Positions by owner, ascending: each record appears once in a batch."""
    order = np.lexsort((position, owner))
    owner, position = owner[order], position[order]
    edges = np.flatnonzero(np.diff(owner)) + 1
    parts = [part.astype(np.int32) for part in np.split(position, edges)]
    owners = owner[np.concatenate(([0], edges)).astype(np.int64)].tolist()
    return parts, owners
