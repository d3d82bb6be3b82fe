"""The loop that drives a lane's core: one owner thread (poll + core), one commit thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from streamer.batch.kafka_source import KafkaSource
from streamer.clock import Clock
from streamer.deadline import Deadline
from streamer.emit.kafka_ring import ProducerRing
from streamer.event.lane import Assignment, EmitPlan, LaneCore, Now


class LaneHooks(Protocol):
    """What a role adds to the loop; all called on the owner thread."""

    def assigned(self, assignments: Sequence[Assignment], now: Now) -> None:
        """Before ``core.assigned``; may block (state is restored here)."""

    def pump(self, now: Now) -> bool:
        """Once each turn: hand work over, take results back. True = work is in flight."""
        ...

    def settled(self, plan: EmitPlan, now: Now) -> None:
        """After a commit (metrics)."""


class NoHooks:
    """Hooks of a role that needs none."""

    def assigned(self, assignments: Sequence[Assignment], now: Now) -> None:
        """Nothing to restore."""

    def pump(self, now: Now) -> bool:  # noqa: ARG002
        """Nothing in flight."""
        return False

    def settled(self, plan: EmitPlan, now: Now) -> None:
        """Nothing to count."""


class LaneLoop:
    """Feeds a core with what Kafka delivers and carries out its plans.

    Args:
        name: role and lane, e.g. ``work.bulk``; stands in logs and crash points.
        core: the decisions.
        source: the consumer; this loop's owner thread is the only one that touches it.
        ring: the producers; this loop's commit thread is the only one that touches them.
        clock: source of time.
        hooks: see :class:`LaneHooks`.
    """

    failure: BaseException | None

    def __init__(
        self,
        *,
        name: str,
        core: LaneCore,
        source: KafkaSource,
        ring: ProducerRing,
        clock: Clock,
        hooks: LaneHooks,
    ) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Start both threads; producers are initialised before the first consume."""

    def stop(self, deadline: Deadline) -> bool:
        """Drain: stop consuming, finish what is in flight, emit, leave. True = nothing was left."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether the loop makes progress: both threads moved within the last 5 s."""
        raise NotImplementedError
