"""The smallest core: each record goes out once, to the same partition of another topic."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

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


class PassCore:
    """Finishes records out of order; emits the finished prefix.

    Args:
        out: target topic, with as many partitions as the input.
        seed: order of finishing.
        batch: records of one plan at most.
    """

    def __init__(self, out: str, *, seed: int = 0, batch: int = 20, hold: int = 0) -> None:
        self._out = out
        self._random = random.Random(seed)
        self._batch = batch
        self._hold = hold
        self._values: dict[TopicPartition, dict[int, bytes]] = {}
        self._frontiers: dict[TopicPartition, Frontier] = {}
        self._undone: list[tuple[TopicPartition, int, int]] = []
        self.log: list[tuple[str, object]] = []

    def assigned(self, assignments: Sequence[Assignment], now: Now) -> None:
        del now
        for given in assignments:
            assert given.at not in self._frontiers
            self._frontiers[given.at] = Frontier(epoch=given.epoch, start=given.offset)
            self._values[given.at] = {}
        self.log.append(("assigned", list(assignments)))

    def revoked(self, partitions: Collection[TopicPartition], now: Now) -> None:
        del now
        for at in partitions:
            del self._frontiers[at]
            del self._values[at]
        self.log.append(("revoked", sorted(partitions)))

    def deliver(self, records: Sequence[Record], now: Now) -> None:
        del now
        for record in records:
            at = TopicPartition(record.topic, record.partition)
            frontier = self._frontiers[at]
            frontier.track(record.offset)
            self._values[at][record.offset] = record.value or b""
            self._undone.append((at, frontier.epoch, record.offset))

    def room(self, now: Now) -> int:
        del now
        return max(0, 500 - sum(f.open_count for f in self._frontiers.values()))

    def finish_some(self) -> bool:
        """Finish most of the open records in a random order."""
        self._random.shuffle(self._undone)
        keep = min(self._hold, len(self._undone))
        done, self._undone = self._undone[keep:], self._undone[:keep]
        for at, epoch, offset in done:
            frontier = self._frontiers.get(at)
            if frontier is not None and frontier.epoch == epoch:
                frontier.finish(offset)
        return False

    def plan(self, now: Now, *, final: bool = False) -> EmitPlan | None:
        del now, final
        records, offsets = [], {}
        for at, frontier in self._frontiers.items():
            prefix = frontier.finished_prefix()[: self._batch]
            if prefix:
                offsets[at] = OffsetMark(frontier.committable(prefix[-1]), "m")
            records += [
                OutRecord(
                    self._out,
                    at.partition,
                    b"%d:%d" % (at.partition, offset),
                    self._values[at][offset],
                    {"origin": b"%d:%d" % (at.partition, offset)},
                )
                for offset in prefix
            ]
        return EmitPlan(records, offsets) if offsets else None

    def settled(self, plan: EmitPlan, now: Now) -> None:
        del now
        for at, mark in plan.offsets.items():
            if at in self._frontiers:
                self._frontiers[at].advance(mark.offset)
                values = self._values[at]
                for offset in [o for o in values if o < mark.offset]:
                    del values[offset]
        self.log.append(("settled", dict(plan.offsets)))

    def wake_at(self, now: Now) -> int | None:
        del now


class PassHooks:
    """Finishes records in the pump, as if a device had."""

    def __init__(self, core: PassCore) -> None:
        self._core = core

    def assigned(self, assignments: Sequence[Assignment], now: Now) -> None:
        pass

    def pump(self, now: Now) -> bool:
        del now
        return self._core.finish_some()

    def settled(self, plan: EmitPlan, now: Now) -> None:
        pass
