"""One model in one lane: what waits for it, what runs on it, what it costs. Pure.

Most records go through the batcher. Those of a *suspect* partition (begun before without progress)
wait in a queue of their own and run in strict order, one small batch at a time, so that whatever
kills a process is reached with little else in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.batch.batcher import Batcher, BatchKey
from streamer.batch.cost import OnlineFit
from streamer.batch.limits import BatchLimits, Budget
from streamer.event.lane import Now, TopicPartition
from streamer.infer.engine import EngineSpec
from streamer.infer.launch import Launch, News
from streamer.process.held_record import Held, Member, batch_columns

_NS_PER_MS = 1_000_000
# Far enough to be no deadline at all, near enough not to overflow.
_AHEAD_MS_MAX = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class _Taken:
    """Members that are about to run, and how they were chosen."""

    members: list[Member]
    reason: str
    oldest_wait_ns: int
    suspect: TopicPartition | None


class ModelStream:
    """See the module.

    Args:
        spec: what the engine says of itself.
        limits: bounds of its batches.
        lane: whose items these are.
        name: of this process, part of the batch ids.
    """

    def __init__(self, spec: EngineSpec, limits: BatchLimits, *, lane: str, name: str) -> None:
        self.spec = spec
        self._limits = limits
        self._lane = lane
        self._name = name
        self._batcher = Batcher(limits, spec.cost)
        self._fit = OnlineFit(spec.cost)
        self._suspects: dict[TopicPartition, deque[Member]] = {}
        self._suspect_runs: dict[TopicPartition, str] = {}
        self._flying_ms: dict[str, float] = {}
        self._number = 0
        self._tokens_max = 0

    @property
    def waiting_ms(self) -> float:
        """Predicted time until everything taken in has run, on all instances together."""
        suspects = sum(
            self._fit.model.predict_ms(int(member.held.work.lengths.sum()))
            for queue in self._suspects.values()
            for member in queue
        )
        flying = sum(self._flying_ms.values())
        return (self._batcher.predicted_ms + suspects + flying) / max(1, self.spec.instances)

    def add(self, held: Held, now: Now) -> None:
        """Take in the items of a record that have not ended."""
        count = len(held.work.items)
        ended = held.answers.errors
        items = None
        if ended:
            items = np.array([row for row in range(count) if row not in ended], np.int32)
        if held.attempts > 0:
            everything = np.arange(count, dtype=np.int32)
            member = Member(held, everything if items is None else items)
            self._suspects.setdefault(held.at, deque()).append(member)
        else:
            self._batch(held, items, now)

    def _batch(self, held: Held, items: NDArray[np.int32] | None, now: Now) -> None:
        work = held.work
        left_ms = np.minimum(work.deadline_at_ms - now.wall_ms, _AHEAD_MS_MAX)
        due = np.where(work.deadline_at_ms > 0, now.mono_ns + left_ms * _NS_PER_MS, 0)
        self._batcher.add(
            held,
            partition=held.at,
            key=BatchKey(work.revision, work.task, work.params_key),
            lengths=work.lengths,
            enqueued_ns=now.mono_ns,
            rows=work.items.rows,
            items=items,
            deadline_ns=due if work.deadline_at_ms.any() else None,
        )

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what waits of these partitions; what runs is dropped when it comes back."""
        self._batcher.drop(partitions)
        for at in partitions:
            self._suspects.pop(at, None)
            self._suspect_runs.pop(at, None)

    def trust(self, at: TopicPartition, now: Now) -> None:
        """The offset of a suspect partition moved: its records go the common way again."""
        self._suspect_runs.pop(at, None)
        for member in self._suspects.pop(at, ()):
            member.held.attempts = 0
            self._batch(member.held, member.items, now)

    def take(
        self, now: Now, *, slot_free: bool, budget: Budget | None, drain: bool
    ) -> _Taken | None:
        """Choose what runs next; strict partitions come before the batcher."""
        for at, queue in self._suspects.items():
            if queue and at not in self._suspect_runs:
                return _Taken([self._next_suspect(queue)], "suspect", 0, at)
        if self._tokens_max:
            ms_max = 0.0 if budget is None else budget.ms_max
            budget = Budget(tokens_max=self._tokens_max, ms_max=ms_max)
        batch = self._batcher.take(now.mono_ns, slot_free=slot_free, budget=budget, drain=drain)
        if batch is None:
            return None
        members = [Member(part.ref, part.items) for part in batch.parts]  # type: ignore[arg-type]
        return _Taken(members, batch.reason, batch.oldest_wait_ns, None)

    def _next_suspect(self, queue: deque[Member]) -> Member:
        """The next few items of the oldest record: half as many with every attempt."""
        held, items = queue[0]
        work = held.work
        count = max(1, min(self._limits.items_max, len(work.items)) >> min(held.attempts, 30))
        if len(items) <= count:
            queue.popleft()
        else:
            queue[0] = Member(held, items[count:])
        return Member(held, items[:count])

    def launch(self, taken: _Taken, members: Sequence[Member]) -> Launch:
        """Turn what is left of a choice into flat columns."""
        self._number += 1
        batch_id = f"{self._name}-{self._lane}-{self._number}"
        columns = batch_columns(members)
        longest = int(columns.lengths.max())
        padded = longest * columns.texts
        for member in members:
            member.held.note_batch(batch_id, columns.items, padded)
        predicted = self._fit.model.predict_ms(padded, float(padded) * longest)
        self._flying_ms[batch_id] = predicted
        if taken.suspect is not None:
            self._suspect_runs[taken.suspect] = batch_id
        return Launch(
            lane=self._lane,
            model=self.spec.model,
            batch_id=batch_id,
            columns=columns,
            deadline_at_ms=np.concatenate(
                [member.held.work.deadline_at_ms[member.items] for member in members]
            ),
            members=tuple(members),
            reason=taken.reason,
            tokens=int(columns.lengths.sum()),
            padded_tokens=padded,
            oldest_wait_ns=taken.oldest_wait_ns,
            predicted_ms=predicted,
        )

    def landed(self, news: News) -> Sequence[Member]:
        """Take the accounting out of a piece of news; returns the members of its launch."""
        if news.final:
            self._flying_ms.pop(news.launch.batch_id, None)
            for at, batch_id in list(self._suspect_runs.items()):
                if batch_id == news.launch.batch_id:
                    del self._suspect_runs[at]
        if news.device_ms > 0:
            self._batcher.reprice(self._fit.observe(news.tokens, news.squares, news.device_ms))
        if news.tokens_max:
            self._tokens_max = min(self._tokens_max or news.tokens_max, news.tokens_max)
        members: Sequence[Member] = news.launch.members  # type: ignore[assignment]
        return members

    def wake_at(self, now: Now) -> int | None:
        """When waiting for company ends, if that is still to come."""
        at = self._batcher.wake_at()
        return at if at is not None and at > now.mono_ns else None

    def check(self) -> None:
        """Assert the invariants of what waits."""
        self._batcher.check()
