"""The ring's table against an independent account of what each producer did."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from streamer.emit.ring import (
    BLOCKING,
    TO_REBUILD,
    TRANSITIONS,
    FenceRule,
    IllegalTransition,
    Ring,
    SlotEvent,
    SlotState,
)

SIZE = 3
SECOND = 1_000_000_000


class _Account:
    """What a checker knows of one producer object: requests on the wire, not states."""

    def __init__(self) -> None:
        self.initialised = False
        self.sent = 0  # EndTxn requests of this object, repeats included
        self.called = 0
        self.checked = True  # a tick after the last commit showed sent == called
        self.broken = False  # aborted, unknown or disturbed since it was built

    def may_begin(self) -> bool:
        return self.initialised and self.checked and not self.broken and self.sent == self.called


class RingMachine(RuleBasedStateMachine):
    """Random lives of a ring; whatever it lets begin must be safe by the account."""

    opened = Bundle("opened")

    @initialize()
    def build(self) -> None:
        self.ring = Ring(SIZE)
        self.accounts = [_Account() for _ in range(SIZE)]
        self.open: int | None = None
        self.doubtful: int | None = None
        self.begun = 0

    @rule()
    def rebuild(self) -> None:
        for index in self.ring.to_rebuild()[:1]:
            self.ring.rebuilt(index)
            self.accounts[index] = _Account()
            self.accounts[index].initialised = True
            if self.doubtful == index:
                self.doubtful = None

    @rule(target=opened)
    def begin(self) -> int:
        index = self.ring.pick()
        if index is None:
            return -1
        assert self.open is None, "the outcome of the previous transaction is not known"
        assert self.doubtful is None, "the outcome of the previous transaction is in doubt"
        assert self.accounts[index].may_begin()
        self.ring.begin(index)
        self.open = index
        self.begun += 1
        return index

    @rule(index=consumes(opened), repeats=st.integers(0, 2))
    def commit(self, index: int, repeats: int) -> None:
        if index != self.open:
            return
        self.ring.committed(index)
        account = self.accounts[index]
        account.called += 1
        account.sent += 1 + repeats
        account.checked = False
        self.open = None

    @rule(index=consumes(opened))
    def abort(self, index: int) -> None:
        if index != self.open:
            return
        self.ring.aborted(index)
        self.accounts[index].broken = True
        self.open = None

    @rule(index=consumes(opened))
    def doubt(self, index: int) -> None:
        if index != self.open:
            return
        self.ring.unknown(index)
        self.accounts[index].broken = True
        self.open, self.doubtful = None, index

    @rule(index=st.integers(0, SIZE - 1))
    def disturb(self, index: int) -> None:
        self.accounts[index].broken = True
        self.ring.disturbed(index)

    @rule(index=st.integers(0, SIZE - 1))
    def tick(self, index: int) -> None:
        account = self.accounts[index]
        self.ring.tick(index, account.sent)
        if self.open != index and account.sent == account.called:
            account.checked = True

    @precondition(lambda self: self.open is None)
    @rule()
    def a_blocked_ring_refuses(self) -> None:
        if self.doubtful is not None:
            assert self.ring.pick() is None
            with pytest.raises(IllegalTransition):
                self.ring.begin((self.doubtful + 1) % SIZE)

    @invariant()
    def at_most_one_blocks(self) -> None:
        if hasattr(self, "ring"):
            blocking = [i for i in range(SIZE) if self.ring.state(i) in BLOCKING]
            assert len(blocking) <= 1

    def teardown(self) -> None:
        """Liveness: whatever happened, rebuilding and ticking make every producer ready."""
        if not hasattr(self, "ring"):
            return
        if self.open is not None:
            self.ring.aborted(self.open)
        for _ in range(2 * SIZE):
            for index in self.ring.awaiting():
                self.ring.tick(index, self.accounts[index].sent)
            for index in self.ring.to_rebuild():
                self.ring.rebuilt(index)
        assert all(self.ring.state(i) is SlotState.READY for i in range(SIZE))


TestRing = RingMachine.TestCase
TestRing.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_every_state_is_reached_and_leads_back_to_ready() -> None:
    def reachable(start: SlotState) -> set[SlotState]:
        seen, todo = {start}, [start]
        while todo:
            state = todo.pop()
            for (before, _), after in TRANSITIONS.items():
                if before is state and after not in seen:
                    seen.add(after)
                    todo.append(after)
        return seen

    assert reachable(SlotState.NEW) == set(SlotState)
    assert all(SlotState.READY in reachable(state) for state in SlotState)


def test_what_is_not_in_the_table_is_a_defect() -> None:
    ring = Ring(1)

    for call in (ring.begin, ring.aborted, ring.committed, ring.unknown):
        with pytest.raises(IllegalTransition):
            call(0)
    ring.rebuilt(0)
    with pytest.raises(IllegalTransition):
        ring.rebuilt(0)


def test_only_a_commit_leads_to_waiting_and_only_a_clean_tick_or_a_rebuild_to_ready() -> None:
    to_ready = {event for (_, event), after in TRANSITIONS.items() if after is SlotState.READY}
    to_awaiting = {k for k, after in TRANSITIONS.items() if after is SlotState.AWAITING}

    assert to_ready == {SlotEvent.TICK_CLEAN, SlotEvent.REBUILT}
    assert to_awaiting == {(SlotState.OPEN, SlotEvent.COMMITTED)}
    assert {s for s, e in TRANSITIONS if e is SlotEvent.REBUILT} == TO_REBUILD


def test_a_surplus_request_costs_the_producer_its_object() -> None:
    ring = Ring(2)
    ring.rebuilt(0)
    ring.rebuilt(1)
    ring.begin(0)
    ring.committed(0)

    ring.tick(0, 2)

    assert ring.state(0) is SlotState.DIRTY
    assert ring.pick() == 1


def test_a_tick_that_misses_the_request_is_not_taken_for_clean() -> None:
    ring = Ring(1)
    ring.rebuilt(0)
    ring.begin(0)
    ring.committed(0)

    ring.tick(0, 0)

    assert ring.pick() is None


def test_the_least_recently_used_producer_goes_first() -> None:
    ring = Ring(3)
    for index in range(3):
        ring.rebuilt(index)
    used = []
    for _ in range(6):
        index = ring.pick()
        assert index is not None
        ring.begin(index)
        ring.committed(index)
        ring.tick(index, used.count(index) + 1)
        used.append(index)

    assert used == [0, 1, 2, 0, 1, 2]


def test_our_own_timeout_is_not_taken_for_a_rival() -> None:
    fence = FenceRule(timeout_ns=3 * SECOND)

    for at in (10, 20, 30):
        assert not fence.must_stop(began_ns=(at - 3) * SECOND, now_ns=at * SECOND)


def test_a_second_fencing_within_a_minute_stops_us() -> None:
    fence = FenceRule(timeout_ns=3 * SECOND)

    assert not fence.must_stop(began_ns=9 * SECOND, now_ns=10 * SECOND)
    assert not fence.must_stop(began_ns=79 * SECOND, now_ns=80 * SECOND)
    assert fence.must_stop(began_ns=139 * SECOND, now_ns=140 * SECOND)
