"""The rules of a ring of transactional producers, as one table. Decides; never talks to Kafka.

The client lacks per-transaction epochs: a delayed end-of-transaction request can end a *later*
transaction of the same producer object, with success reported (KIP-890 part 2; librdkafka#5423).
So a producer begins again only after a statistics tick later than its last commit showed that every
EndTxn was sent exactly once; after anything but a clean commit it is rebuilt under the same id.

    READY ──begin──► OPEN ──committed──► AWAITING ──tick_clean──► READY
      │ disturbed     │ disturbed            │ tick_surplus, disturbed
      ▼               ▼                      ▼
    DIRTY          TAINTED ──committed───► DIRTY ──rebuilt──► READY
    OPEN, TAINTED ──aborted──► DIRTY         ──unknown──► DOUBTFUL ──rebuilt──► READY

At most one slot is OPEN, TAINTED or DOUBTFUL: transaction n+1 begins only when outcome n is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class SlotState(Enum):
    """Where one producer of the ring stands."""

    NEW = "new"
    READY = "ready"
    OPEN = "open"
    TAINTED = "tainted"
    AWAITING = "awaiting"
    DIRTY = "dirty"
    DOUBTFUL = "doubtful"


class SlotEvent(Enum):
    """What happened to one producer of the ring."""

    BEGIN = "begin"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    DISTURBED = "disturbed"
    TICK_CLEAN = "tick_clean"
    TICK_SURPLUS = "tick_surplus"
    REBUILT = "rebuilt"


_S, _E = SlotState, SlotEvent

TRANSITIONS: Final[dict[tuple[SlotState, SlotEvent], SlotState]] = {
    (_S.NEW, _E.REBUILT): _S.READY,
    (_S.NEW, _E.DISTURBED): _S.NEW,
    (_S.READY, _E.BEGIN): _S.OPEN,
    # No late request can exist, but a client object that lived through an outage may hang in
    # send_offsets beyond its time limit (seen after a broker restart).
    (_S.READY, _E.DISTURBED): _S.DIRTY,
    (_S.OPEN, _E.COMMITTED): _S.AWAITING,
    (_S.OPEN, _E.ABORTED): _S.DIRTY,
    (_S.OPEN, _E.UNKNOWN): _S.DOUBTFUL,
    (_S.OPEN, _E.DISTURBED): _S.TAINTED,
    (_S.TAINTED, _E.COMMITTED): _S.DIRTY,
    (_S.TAINTED, _E.ABORTED): _S.DIRTY,
    (_S.TAINTED, _E.UNKNOWN): _S.DOUBTFUL,
    (_S.TAINTED, _E.DISTURBED): _S.TAINTED,
    (_S.AWAITING, _E.TICK_CLEAN): _S.READY,
    (_S.AWAITING, _E.TICK_SURPLUS): _S.DIRTY,
    (_S.AWAITING, _E.DISTURBED): _S.DIRTY,
    (_S.DIRTY, _E.REBUILT): _S.READY,
    (_S.DIRTY, _E.DISTURBED): _S.DIRTY,
    (_S.DOUBTFUL, _E.REBUILT): _S.READY,
    (_S.DOUBTFUL, _E.DISTURBED): _S.DOUBTFUL,
}

BLOCKING: Final = frozenset({SlotState.OPEN, SlotState.TAINTED, SlotState.DOUBTFUL})
TO_REBUILD: Final = frozenset({SlotState.NEW, SlotState.DIRTY, SlotState.DOUBTFUL})


class IllegalTransition(AssertionError):
    """The shell reported what cannot happen in this state: a defect of ours."""


@dataclass(slots=True)
class _Slot:
    state: SlotState = SlotState.NEW
    commits: int = 0  # end-of-transaction calls made since the last rebuild
    used_at: int = 0  # turn of the last begin: the least recently used one goes first


@dataclass(slots=True)
class Ring:
    """States of ``size`` producers used in turn.

    Args:
        size: producers in the ring, at least 1.
    """

    size: int
    _slots: list[_Slot] = field(init=False)
    _turn: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError("a ring needs at least one producer")
        self._slots = [_Slot() for _ in range(self.size)]

    def state(self, index: int) -> SlotState:
        """The state of one producer."""
        return self._slots[index].state

    def blocked(self) -> bool:
        """Whether some transaction has no known outcome yet: nothing may begin."""
        return any(slot.state in BLOCKING for slot in self._slots)

    def pick(self) -> int | None:
        """The least recently used ready producer; None when none may begin."""
        if self.blocked():
            return None
        ready = [i for i, slot in enumerate(self._slots) if slot.state is SlotState.READY]
        return min(ready, key=lambda i: self._slots[i].used_at) if ready else None

    def awaiting(self) -> list[int]:
        """Producers whose last commit waits for its statistics tick, oldest first."""
        found = [i for i, slot in enumerate(self._slots) if slot.state is SlotState.AWAITING]
        return sorted(found, key=lambda i: self._slots[i].used_at)

    def to_rebuild(self) -> list[int]:
        """Producers to drop and build anew; one with an unknown outcome first."""
        found = [i for i, slot in enumerate(self._slots) if slot.state in TO_REBUILD]
        return sorted(found, key=lambda i: self._slots[i].state is not SlotState.DOUBTFUL)

    def begin(self, index: int) -> None:
        """A transaction begins on this producer."""
        if self.blocked():
            raise IllegalTransition("the outcome of the previous transaction is not known")
        self._step(index, SlotEvent.BEGIN)
        self._turn += 1
        self._slots[index].used_at = self._turn

    def committed(self, index: int) -> None:
        """The commit call returned success."""
        self._slots[index].commits += 1
        self._step(index, SlotEvent.COMMITTED)

    def aborted(self, index: int) -> None:
        """The transaction is certainly not committed."""
        self._step(index, SlotEvent.ABORTED)

    def unknown(self, index: int) -> None:
        """Nobody can say yet whether the transaction is committed."""
        self._step(index, SlotEvent.UNKNOWN)

    def disturbed(self, index: int) -> None:
        """The client reported a broken connection or a failed request."""
        self._step(index, SlotEvent.DISTURBED)

    def tick(self, index: int, end_txn_count: int) -> None:
        """A statistics tick made *after* the commit call returned.

        Args:
            index: the producer; ticks are ignored unless its commit awaits the check.
            end_txn_count: EndTxn requests this producer object sent in its life.
        """
        slot = self._slots[index]
        if slot.state is SlotState.AWAITING:
            clean = end_txn_count == slot.commits
            self._step(index, SlotEvent.TICK_CLEAN if clean else SlotEvent.TICK_SURPLUS)

    def rebuilt(self, index: int) -> None:
        """A new producer object with the same id is initialised: older requests are fenced."""
        self._step(index, SlotEvent.REBUILT)
        self._slots[index].commits = 0

    def _step(self, index: int, event: SlotEvent) -> None:
        slot = self._slots[index]
        after = TRANSITIONS.get((slot.state, event))
        if after is None:
            raise IllegalTransition(f"{event.value} in state {slot.state.value}")
        slot.state = after


@dataclass(slots=True)
class FenceRule:
    """Tells our own transaction timeout from a rival that holds the same id, by our own clock.

    The client reports both as fenced. A transaction older than its timeout was ended by the
    broker. A younger one means a rival: rebuild once; twice within ``window_ns``, give way, or
    both would fence each other for ever.
    """

    timeout_ns: int
    window_ns: int = 60_000_000_000
    _last_ns: int | None = field(init=False, default=None)

    def must_stop(self, *, began_ns: int, now_ns: int) -> bool:
        """Judge one fencing of a transaction that began at ``began_ns`` (monotonic)."""
        if now_ns - began_ns >= self.timeout_ns:
            return False
        again = self._last_ns is not None and now_ns - self._last_ns <= self.window_ns
        self._last_ns = now_ns
        return again
