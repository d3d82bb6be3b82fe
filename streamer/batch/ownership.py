"""Which partitions are ours, since which epoch, and which record comes next. Pure.

The broker does not check who owns a partition. So every assignment and every rewind counts a new
epoch here, and a record is taken only under the epoch that is current when it is used (invariant
*epoch*). Epochs outlive assignments: they only grow.

    held ──placed──► owned ──forget──► (not ours)
      ▲                │ hold
      └────────────────┘
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from streamer.batch.placement import Held, Placed
from streamer.event.lane import Assignment, TopicPartition

RETRY_NS = 500_000_000
GAP_RETRY_NS = 10_000_000_000


@dataclass(slots=True)
class Ownership:
    """The owner's view of its partitions."""

    _epochs: dict[TopicPartition, int] = field(default_factory=dict)
    _next: dict[TopicPartition, int] = field(default_factory=dict)
    _held: dict[TopicPartition, Held] = field(default_factory=dict)
    _misplaced: set[TopicPartition] = field(default_factory=set)
    _moved: set[TopicPartition] = field(default_factory=set)  # a record was taken in this epoch
    _ends: dict[TopicPartition, int] = field(default_factory=dict)  # seen in this epoch
    _retry_ns: int = 0

    def own(self, at: TopicPartition, placed: Placed) -> Assignment:
        """Ours from now on, under a new epoch, from this offset."""
        epoch = self._epochs[at] = self._epochs.get(at, 0) + 1
        self._next[at] = placed.offset
        self._held.pop(at, None)
        self._misplaced.discard(at)
        self._moved.discard(at)
        self._ends.pop(at, None)
        return Assignment(at=at, epoch=epoch, offset=placed.offset, metadata=placed.metadata)

    def hold(self, at: TopicPartition, held: Held, now_ns: int) -> bool:
        """Ours, but not to be read for now; returns whether that or its reason is new."""
        self._next.pop(at, None)
        self._misplaced.discard(at)
        is_new = self._held.get(at) != held
        self._held[at] = held
        due_ns = now_ns + (GAP_RETRY_NS if held.is_gap else RETRY_NS)
        # A gap must not keep those waiting that may be placed in a moment.
        self._retry_ns = min(due_ns, self._retry_ns) if self._retry_ns > now_ns else due_ns
        return is_new

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Not ours any more."""
        for at in partitions:
            self._next.pop(at, None)
            self._ends.pop(at, None)
            self._held.pop(at, None)
            self._misplaced.discard(at)

    def stamp(self, at: TopicPartition) -> int | None:
        """The epoch under which a record of this partition comes out now; None = not ours."""
        return self._epochs[at] if at in self._next else None

    def take(self, at: TopicPartition, epoch: int, offset: int) -> bool:
        """Whether a record that came out under ``epoch`` may be used; the next one is higher.

        A lower offset than expected means that the client's position is not where we think: the
        partition counts as misplaced, and nothing of it is taken until it is rewound.
        """
        expected = self._next.get(at)
        if expected is None or self._epochs[at] != epoch or at in self._misplaced:
            return False
        if offset < expected:
            self._misplaced.add(at)
            return False
        self._next[at] = offset + 1
        self._moved.add(at)
        return True

    def misplace(self, at: TopicPartition) -> None:
        """A record of this partition was not taken: it has to be read again."""
        if at in self._next:
            self._misplaced.add(at)

    def owned(self) -> frozenset[TopicPartition]:
        """Ours and placed."""
        return frozenset(self._next)

    def owned_of(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those of ``partitions`` that are ours and placed, in their order."""
        return [at for at in partitions if at in self._next]

    def held(self) -> dict[TopicPartition, Held]:
        """Ours but not read; a copy, safe from any thread."""
        return self._held.copy()

    def misplaced(self) -> frozenset[TopicPartition]:
        """Ours, but to be rewound before anything else."""
        return frozenset(self._misplaced)

    def moved(self) -> list[TopicPartition]:
        """Ours, in place, and a record was taken in this epoch: the client's position is ours.

        Before that the client may still report the position of the epoch before.
        """
        return [at for at in self._next if at in self._moved and at not in self._misplaced]

    def reached(self, at: TopicPartition, end: int) -> None:
        """The client has nothing more of this partition below ``end``; what it had came before."""
        if at in self._next:
            self._ends[at] = end

    def ends(self) -> dict[TopicPartition, int]:
        """Where partitions of ours, in place, ended when everything before had been taken."""
        return {
            at: max(end, self._next[at])
            for at, end in self._ends.items()
            if at in self._next and at not in self._misplaced
        }

    def retry_due(self, now_ns: int) -> bool:
        """Whether to ask again where the held partitions start."""
        return bool(self._held) and now_ns >= self._retry_ns
