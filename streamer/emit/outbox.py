"""Finished work waits here until its offsets are covered (invariants *cover*, *prefix*, *epoch*).

Work finishes out of order; what a record produces may leave only in the transaction whose offsets
pass that record. So finished output is kept by (partition, offset) and :meth:`Outbox.cut` lets go
of the contiguous finished prefix of every partition, whole source records only, with the offset
that covers them.

    delivered  3 4 7 8        finished  3   7 8
    cut        records of 3, offset 4       (4 is not finished, so 7 and 8 stay)

One cut touches at most a few output partitions, since the cost of a transaction grows with them:
the prefix is cut where the next record would open one too many. Which partition is looked at first
moves on with every cut, so none can be starved by its neighbours. No IO, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from streamer.event.codes import STATUSES
from streamer.event.frontier import Frontier
from streamer.event.lane import OffsetMark, OutRecord, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxLimits:
    """Bounds of one cut.

    Attributes:
        partitions_max: output partitions of a cut.
        bytes_max: bytes of a cut; a single source record may exceed it alone.
    """

    partitions_max: int = 16
    bytes_max: int = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Finished:
    """What one source record produced.

    Attributes:
        counts: its items by ``codes.STATUSES`` position; empty for a record that had none.
        since_ns: monotonic ns at which it finished.
        partitions: where its output goes.
    """

    records: Sequence[OutRecord]
    counts: tuple[int, ...]
    since_ns: int
    size_bytes: int
    partitions: frozenset[TopicPartition]

    @property
    def items(self) -> int:
        """Items that end with it."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Cut:
    """What one transaction may take along.

    Attributes:
        records: in source order, partition by partition.
        offsets: partition -> offset that covers the records taken from it.
        epochs: partition -> epoch under which they were taken.
        counts: items that end with it, by ``codes.STATUSES`` position.
    """

    records: tuple[OutRecord, ...]
    offsets: dict[TopicPartition, int]
    epochs: dict[TopicPartition, int]
    counts: tuple[int, ...]


def finished(
    records: Sequence[OutRecord], *, counts: tuple[int, ...] = (), now_ns: int
) -> Finished:
    """Bundle the output of one source record with its size."""
    size = sum(len(record.value or b"") + len(record.key or b"") + 64 for record in records)
    places = frozenset(record.at for record in records)
    return Finished(records, counts, now_ns, size, places)


@dataclass(slots=True)
class _Waiting:
    frontier: Frontier
    done: dict[int, Finished] = field(default_factory=dict)


class Outbox:
    """Frontiers and finished output of all partitions of one lane."""

    def __init__(self, limits: OutboxLimits) -> None:
        self._limits = limits
        self._partitions: dict[TopicPartition, _Waiting] = {}
        self._first = 0
        self.items = 0
        self.size_bytes = 0

    def assign(self, at: TopicPartition, *, epoch: int, start: int) -> None:
        """Begin a partition anew; whatever an older epoch left behind is dropped."""
        self.drop(at)
        self._partitions[at] = _Waiting(Frontier(epoch=epoch, start=start))

    def drop(self, at: TopicPartition) -> None:
        """Forget a partition with all it holds."""
        waiting = self._partitions.pop(at, None)
        if waiting is not None:
            for done in waiting.done.values():
                self._forget(done)

    def epoch(self, at: TopicPartition) -> int | None:
        """The current epoch of a partition, None when it is not ours."""
        waiting = self._partitions.get(at)
        return None if waiting is None else waiting.frontier.epoch

    def track(self, at: TopicPartition, offset: int) -> None:
        """Note a delivered record; it holds the offset until :meth:`put`."""
        self._partitions[at].frontier.track(offset)

    def put(self, at: TopicPartition, *, epoch: int, offset: int, done: Finished) -> bool:
        """Keep what the record at ``offset`` produced; False when its epoch is over."""
        waiting = self._partitions.get(at)
        if waiting is None or waiting.frontier.epoch != epoch:
            return False
        if offset in waiting.done:
            raise AssertionError(f"offset {offset} finished twice")
        waiting.frontier.finish(offset)
        waiting.done[offset] = done
        self.items += done.items
        self.size_bytes += done.size_bytes
        return True

    def ready_since(self) -> int | None:
        """Monotonic ns at which the oldest emittable record finished; None when none is."""
        since = [
            waiting.done[head].since_ns
            for waiting in self._partitions.values()
            if (head := waiting.frontier.oldest_open) in waiting.done
        ]
        return min(since, default=None)

    def cut(self, held_back: Collection[TopicPartition] = ()) -> Cut | None:
        """The finished prefixes that fit into one transaction, or None when there are none.

        Args:
            held_back: partitions that must not emit yet.
        """
        order = [at for at in self._partitions if at not in held_back]
        if not order:
            return None
        first = self._first % len(order)
        self._first += 1
        records: list[OutRecord] = []
        places: set[TopicPartition] = set()
        offsets: dict[TopicPartition, int] = {}
        counts = [0] * len(STATUSES)
        size = 0
        for at in order[first:] + order[:first]:
            waiting = self._partitions[at]
            last = None
            for offset in waiting.frontier.finished_prefix():
                done = waiting.done[offset]
                if size and not self._fits(done, places, size):
                    break
                places |= done.partitions
                records.extend(done.records)
                # Counting at least one byte keeps records without output from being unlimited.
                size += max(1, done.size_bytes)
                for status, count in enumerate(done.counts):
                    counts[status] += count
                last = offset
            if last is not None:
                offsets[at] = waiting.frontier.committable(last)
        if not offsets:
            return None
        epochs = {at: self._partitions[at].frontier.epoch for at in offsets}
        return Cut(tuple(records), offsets, epochs, tuple(counts))

    def settled(self, cut: Cut) -> None:
        """The cut is committed: forget what it covers, in the epochs it was taken under."""
        for at, committed in cut.offsets.items():
            waiting = self._partitions.get(at)
            if waiting is None or waiting.frontier.epoch != cut.epochs[at]:
                continue
            for offset in waiting.frontier.finished_prefix():
                if offset >= committed:
                    break
                self._forget(waiting.done.pop(offset))
            waiting.frontier.advance(committed)

    def mark(self, at: TopicPartition) -> OffsetMark:
        """The unmoved offset of a partition: what is committed already."""
        frontier = self._partitions[at].frontier
        oldest = frontier.oldest_open
        return OffsetMark(frontier.position if oldest is None else oldest)

    def open_count(self, at: TopicPartition) -> int:
        """Delivered records of a partition that are not committed."""
        return self._partitions[at].frontier.open_count

    def check(self) -> None:
        """Assert the sums and that only delivered, uncommitted records are kept."""
        kept = [done for waiting in self._partitions.values() for done in waiting.done.values()]
        assert self.items == sum(done.items for done in kept)
        assert self.size_bytes == sum(done.size_bytes for done in kept)
        for waiting in self._partitions.values():
            oldest = waiting.frontier.oldest_open
            assert all(oldest is not None and offset >= oldest for offset in waiting.done)

    def _fits(self, done: Finished, places: set[TopicPartition], size: int) -> bool:
        return (
            len(places | done.partitions) <= self._limits.partitions_max
            and size + done.size_bytes <= self._limits.bytes_max
        )

    def _forget(self, done: Finished) -> None:
        self.items -= done.items
        self.size_bytes -= done.size_bytes
