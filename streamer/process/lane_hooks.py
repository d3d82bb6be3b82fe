"""What a role adds to the lane loop, what the loop tells, and at what pace it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streamer.event.lane import Assignment, EmitPlan, Now


class LaneHooks(Protocol):
    """What a role adds to the loop; all called on the owner thread."""

    def assigned(self, assignments: Sequence[Assignment], now: Now) -> None:
        """Before ``core.assigned``; may block (state is restored here)."""

    def pump(self, now: Now) -> bool:
        """Once each turn: hand work over, take results back. True = work is in flight."""
        ...

    def settled(self, plan: EmitPlan, now: Now) -> None:
        """After a commit, before ``core.settled`` (metrics)."""


class NoHooks:
    """Hooks of a role that needs none."""

    def assigned(self, assignments: Sequence[Assignment], now: Now) -> None:
        """Nothing to restore."""

    def pump(self, now: Now) -> bool:
        """Nothing in flight."""
        del now
        return False

    def settled(self, plan: EmitPlan, now: Now) -> None:
        """Nothing to count."""


class LoopObserver(Protocol):
    """Told the facts of a loop, for metrics; called on the owner thread."""

    def transaction(self, outcome: str, seconds: float) -> None:
        """One emission ended: committed, aborted, unknown or fenced."""

    def polled(self, records: int) -> None:
        """Records delivered to the core."""

    def rewound(self, partitions: int) -> None:
        """Partitions read again from their committed offsets."""


class NoObserver:
    """Tells nobody."""

    def transaction(self, outcome: str, seconds: float) -> None:
        """Nothing."""

    def polled(self, records: int) -> None:
        """Nothing."""

    def rewound(self, partitions: int) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """Pace of a loop.

    Attributes:
        busy_poll_ms: longest poll while a plan or work is in flight.
        idle_poll_ms: longest poll otherwise.
        records_max: records of one poll.
        revoke_ms: time to emit the finished prefix inside a revoke.
        silent_ms: after this long without a poll the group is served with everything paused.
    """

    busy_poll_ms: float
    idle_poll_ms: float = 50.0
    records_max: int = 1_000
    revoke_ms: int = 10_000
    silent_ms: int = 4_000

    @classmethod
    def for_lane(cls, lane: str) -> LoopLimits:
        """Fast looks again after 1 ms, bulk after 5 ms."""
        return cls(busy_poll_ms=1.0 if lane == "fast" else 5.0)

    def wait_s(self, *, busy: bool, wake_ns: int | None, now_ns: int) -> float:
        """How long the next poll may wait.

        Args:
            busy: a plan or work is in flight.
            wake_ns: when the core may have something without a delivery, None = never.
            now_ns: monotonic.
        """
        if busy:
            return self.busy_poll_ms / 1_000
        wait_ms = self.idle_poll_ms
        if wake_ns is not None:
            # A wake time that has passed without a plan must not make the loop spin.
            wait_ms = min(wait_ms, max(self.busy_poll_ms, (wake_ns - now_ns) / 1e6))
        return wait_ms / 1_000
