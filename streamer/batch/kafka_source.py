"""The consumer of a lane and its owner's view of it: epochs, explicit placement, rewinds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from streamer.clock import Clock
from streamer.event.lane import Assignment, Record, TopicPartition


class SourceHooks(Protocol):
    """Called inside ``poll`` (rebalance callbacks), on the owner thread."""

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        """These partitions are ours; reading starts at their offsets."""

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Still ours until this returns: emit what is finished, then forget them."""

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """No longer ours: commit nothing, forget them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLimits:
    """How the consumer fetches and how long it may be silent."""

    session_timeout_ms: int = 6_000
    max_poll_interval_ms: int = 60_000
    fetch_wait_ms: int = 50
    queued_messages: int = 5_000
    queued_kbytes: int = 16_384
    protocol: str = "classic"

    @classmethod
    def for_lane(cls, lane: str, **changes: Any) -> SourceLimits:
        """Fast waits at most 10 ms in a fetch, bulk 50 ms."""
        return cls(**{"fetch_wait_ms": 10 if lane == "fast" else 50, **changes})


class KafkaSource:
    """The consumer of one lane; used from its owner thread only.

    Args:
        properties: client properties (bootstrap, security).
        group: consumer group.
        topics: subscribed topics; some may appear later.
        limits: see :class:`SourceLimits`.
        clock: source of time.
    """

    def __init__(
        self,
        *,
        properties: Mapping[str, Any],
        group: str,
        topics: Sequence[str],
        limits: SourceLimits,
        clock: Clock,
    ) -> None:
        raise NotImplementedError

    def start(self, hooks: SourceHooks) -> None:
        """Build the consumer and subscribe."""

    def poll(self, records_max: int, timeout_s: float) -> list[Record]:
        """Records of owned partitions; waits at most ``timeout_s`` for the first one."""
        raise NotImplementedError

    def rewind(self, partitions: Collection[TopicPartition]) -> list[Assignment]:
        """New epochs at the committed offsets, read again; the positions are moved there."""
        raise NotImplementedError

    def owned(self) -> frozenset[TopicPartition]:
        """Partitions that are ours and placed."""
        raise NotImplementedError

    def group_metadata(self) -> object | None:
        """For a transaction; None before the first assignment or without a member id."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the group (revoke hooks run) and close."""
