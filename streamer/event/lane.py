"""The contract between a lane's pure core and the loop that drives it.

Router, worker and aggregator are each a *core* (decides, knows no Kafka, no clock, no thread) and
the same *loop* (polls, runs transactions, decides nothing). The loop feeds what Kafka delivered and
carries out at most one :class:`EmitPlan` at a time. The simulation drives the same cores.

Rules the contract carries (design invariants *cover*, *prefix*, *epoch*):
a plan's records leave only in the transaction that carries its offsets; a plan names an offset for
every input partition whose state it decides, also an unmoved one; after anything but a commit the
loop calls ``revoked`` and ``assigned`` (new epochs, committed offsets) for all partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Now(NamedTuple):
    """One reading of both clocks: monotonic nanoseconds for waiting, Unix ms for deadlines."""

    mono_ns: int
    wall_ms: int


Headers = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Record:
    """One Kafka record as delivered. ``timestamp_ms`` is LogAppendTime; -1 when unknown."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Assignment:
    """A partition that is ours from now on, under an epoch of our own counting.

    Attributes:
        epoch: grows with every assignment and rewind; results of older epochs are dropped.
        offset: where reading starts (the committed offset, or 0 for an explicitly placed
            new partition).
        metadata: offset metadata found with it, "" when none.
    """

    at: TopicPartition
    epoch: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class OutRecord:
    """One record to produce; the partition is always explicit."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=dict)

    @property
    def at(self) -> TopicPartition:
        """Where it goes."""
        return TopicPartition(self.topic, self.partition)


class OffsetMark(NamedTuple):
    """An offset to commit and its metadata (at most 4,096 bytes)."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class EmitPlan:
    """What one transaction writes: results first, then state, then the offsets that cover them.

    Attributes:
        records: in the order in which they are produced; touches at most 16 partitions.
        offsets: never empty.
        token: the core's own note of what this plan covers; the loop does not look inside.
    """

    records: Sequence[OutRecord]
    offsets: Mapping[TopicPartition, OffsetMark]
    token: object = None


class LaneCore(Protocol):
    """The decisions of one role in one lane. Called from one thread only."""

    def assigned(self, assignments: Sequence[Assignment], now: Now) -> None:
        """These partitions are ours; records of them follow, from ``offset`` on."""
        ...

    def revoked(self, partitions: Collection[TopicPartition], now: Now) -> None:
        """Forget everything about these partitions: tracked, queued, finished, timed."""
        ...

    def deliver(self, records: Sequence[Record], now: Now) -> None:
        """Records in offset order per partition; all of currently assigned partitions."""
        ...

    def room(self, now: Now) -> int:
        """How many more records are welcome; 0 stops consuming (bounds: *bound*)."""
        ...

    def plan(self, now: Now, *, final: bool = False) -> EmitPlan | None:
        """What can be emitted now; ``final`` ignores pacing (revoke, shutdown).

        Not called again before ``settled`` or ``revoked`` followed.
        """
        ...

    def settled(self, plan: EmitPlan, now: Now) -> None:
        """The plan is committed: forget what it covers."""
        ...

    def wake_at(self, now: Now) -> int | None:
        """Monotonic ns at which ``plan`` may have something new without any delivery."""
        ...


@runtime_checkable
class PositionFollower(Protocol):
    """A core that must know how far a partition is read even where only markers follow."""

    def position(self, at: TopicPartition, position: int) -> None:
        """Everything below ``position`` was delivered; called after ``deliver``."""
        ...
