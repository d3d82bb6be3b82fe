"""How a lane's consumer is configured, and what its owner hears from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from streamer.event.lane import Assignment, TopicPartition


class SourceHooks(Protocol):
    """Called inside ``poll`` and ``close``, on the owner thread."""

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        """These partitions are ours; reading starts at their offsets."""

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Still ours until this returns: emit what is finished, then forget them."""

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """No longer ours: commit nothing, forget them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLimits:
    """How the consumer fetches and how long it may be silent.

    Attributes:
        tell_ends: hear of the end of a partition, also of one with nothing but markers.
    """

    session_timeout_ms: int = 6_000
    max_poll_interval_ms: int = 60_000
    fetch_wait_ms: int = 250
    queued_messages: int = 5_000
    queued_kbytes: int = 16_384
    protocol: str = "classic"
    tell_ends: bool = False

    @classmethod
    def for_lane(cls, lane: str, **changes: Any) -> SourceLimits:
        """How long a fetch may wait; data that arrives ends it at once, so this costs no latency.

        Short waits only burn the broker: 10 ms took 14 % of a core from it, idle.
        """
        return cls(**{"fetch_wait_ms": 100 if lane == "fast" else 250, **changes})


def consumer_config(
    properties: Mapping[str, Any], group: str, limits: SourceLimits
) -> dict[str, Any]:
    """The client properties of the consumer of ``group``."""
    config: dict[str, Any] = {
        "log_level": 4,
        "fetch.queue.backoff.ms": 10,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 1_000,
        "topic.metadata.refresh.interval.ms": 10_000,  # topics that appear later are found then
        **properties,
        "group.id": group,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": limits.tell_ends,
        "max.poll.interval.ms": limits.max_poll_interval_ms,
        "fetch.wait.max.ms": limits.fetch_wait_ms,
        "queued.min.messages": limits.queued_messages,
        "queued.max.messages.kbytes": limits.queued_kbytes,
    }
    if limits.protocol == "consumer":
        return {**config, "group.protocol": "consumer"}
    return {
        **config,
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": limits.session_timeout_ms,
        "heartbeat.interval.ms": limits.session_timeout_ms // 4,
    }


def client_at(at: TopicPartition, offset: int = OFFSET_INVALID) -> ClientPartition:
    """A partition in the client's form, with an offset where one is given."""
    return ClientPartition(at.topic, at.partition, offset)


def ours_of(partitions: Iterable[ClientPartition]) -> list[TopicPartition]:
    """Partitions of the client in our form."""
    return [TopicPartition(p.topic, p.partition) for p in partitions]


def pause(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
    """Stop fetching; what was fetched ahead is thrown away, the position stays."""
    paused = [client_at(at) for at in partitions]
    if paused:
        consumer.pause(paused)


def resume(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
    """Fetch again, from the position; the first record may take a second."""
    resumed = [client_at(at) for at in partitions]
    if resumed:
        consumer.resume(resumed)


def seek(consumer: Consumer, at: TopicPartition, offset: int) -> None:
    """Read from ``offset`` on, whatever was fetched before."""
    target = client_at(at, offset)
    try:
        consumer.seek(target)
    except KafkaException:
        # Not being fetched yet: taken out and put back at the right place.
        consumer.incremental_unassign([target])
        consumer.incremental_assign([target])
