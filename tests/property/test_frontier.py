"""The frontier of a partition against a list that is searched from its start."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamer.event.frontier import Frontier


class FrontierMachine(RuleBasedStateMachine):
    """Deliveries with gaps, finishes in any order, commits of any part of the prefix."""

    @initialize(start=st.integers(0, 5))
    def build(self, start: int) -> None:
        self.frontier = Frontier(epoch=1, start=start)
        self.committed = start
        self.next = start
        self.open: list[int] = []  # delivered, not below the committed offset
        self.done: set[int] = set()

    @rule(gap=st.integers(0, 3))
    def deliver(self, gap: int) -> None:
        offset = self.next + gap
        self.frontier.track(offset)
        self.open.append(offset)
        self.next = offset + 1

    @rule(pick=st.integers(0, 1_000))
    def finish(self, pick: int) -> None:
        undone = [offset for offset in self.open if offset not in self.done]
        if undone:
            offset = undone[pick % len(undone)]
            self.frontier.finish(offset)
            self.done.add(offset)

    @rule(pick=st.integers(0, 1_000))
    def commit(self, pick: int) -> None:
        prefix = self.prefix()
        if prefix:
            upto = prefix[pick % len(prefix)]
            offset = self.frontier.committable(upto)
            assert offset > upto
            assert not any(upto < other < offset for other in self.open)
            self.frontier.advance(offset)
            self.committed = offset
            self.open = [other for other in self.open if other >= offset]

    @rule()
    def deliver_again(self) -> None:
        if self.next > 0:
            with pytest.raises(AssertionError):
                self.frontier.track(self.next - 1)

    def prefix(self) -> list[int]:
        prefix = []
        for offset in self.open:
            if offset not in self.done:
                break
            prefix.append(offset)
        return prefix

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "frontier"):
            return
        undone = [offset for offset in self.open if offset not in self.done]
        expected = undone[0] if undone else (self.next if self.open else self.committed)
        assert self.frontier.finished_prefix() == self.prefix()
        assert self.frontier.committable() == max(expected, self.committed)
        assert self.frontier.open_count == len(self.open)
        assert self.frontier.oldest_open == (self.open[0] if self.open else None)
        assert self.frontier.position == self.next


TestFrontier = FrontierMachine.TestCase
TestFrontier.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
