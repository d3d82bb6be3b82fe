"""Transactional producers used in turn: carries out one emission plan at a time, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streamer.clock import Clock
from streamer.deadline import Deadline
from streamer.event.lane import EmitPlan


class Outcome(Enum):
    """How an emission ended. Whatever but COMMITTED: rewind to the committed offsets."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True, kw_only=True)
class RingLimits:
    """Size and pace of a ring.

    Attributes:
        producers: how many are used in turn.
        tick_ms: statistics interval; a producer begins again one tick after its commit.
        transaction_timeout_ms: the broker ends an older transaction.
        partitions_max: output partitions one transaction may touch.
    """

    producers: int
    tick_ms: int
    transaction_timeout_ms: int
    partitions_max: int = 16

    @classmethod
    def for_lane(cls, lane: str) -> RingLimits:
        """Fast: 4 producers, 20 ms, 3 s. Bulk: 2 producers, 100 ms, 10 s."""
        if lane == "fast":
            return cls(producers=4, tick_ms=20, transaction_timeout_ms=3_000)
        return cls(producers=2, tick_ms=100, transaction_timeout_ms=10_000)


class ProducerRing:
    """The only writer of a lane. Used from one thread (the commit thread), ``close`` excepted.

    Args:
        properties: client properties (bootstrap, security).
        id_prefix: transactional ids are ``{id_prefix}-{k}``, e.g. ``streamer-work-bulk-0``.
        limits: size and pace.
        clock: source of time.
        crash: called with the names of crash points (tests); does nothing by default.
        rebuilt: told the cause of every rebuild (metrics).
    """

    def __init__(
        self,
        *,
        properties: Mapping[str, Any],
        id_prefix: str,
        limits: RingLimits,
        clock: Clock,
        crash: Callable[[str], None] = lambda point: None,
        rebuilt: Callable[[str], None] = lambda cause: None,
    ) -> None:
        raise NotImplementedError

    def start(self, deadline: Deadline) -> None:
        """Build and initialise every producer; before the first consume."""

    def emit(self, plan: EmitPlan, group_metadata: object) -> Outcome:
        """One transaction: produce, flush, check deliveries, offsets, commit."""
        raise NotImplementedError

    def tick(self) -> float:
        """Serve statistics, rebuild what is dirty; returns seconds until the next call is due."""
        raise NotImplementedError

    def close(self) -> None:
        """Give up what is open and leave; safe from any thread."""
