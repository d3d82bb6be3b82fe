"""The consumer of a lane and its owner's view of it: epochs, explicit placement, rewinds.

Rebalance callbacks run inside ``poll`` on the owner thread, so nothing races with a revoke. The
broker does not check who owns a partition: every assignment and rewind gets a new epoch here, and
records of anything but the current one are dropped (invariant *epoch*).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from streamer.batch.kafka_offsets import placements
from streamer.batch.placement import Held, Placed
from streamer.clock import Clock
from streamer.errors import BrokerUnreachable, StreamerError
from streamer.event.kafka_record import record_of
from streamer.event.lane import Assignment, Record, TopicPartition
from streamer.kafka_errors import ConsumerTrouble, consumer_trouble

_ASSIGN_S: Final = 2.0  # then the partition is held and asked about again, others go on
_REWIND_S: Final = 5.0
_RETRY_NS: Final = 500_000_000
_GAP_RETRY_NS: Final = 10_000_000_000
_log = logging.getLogger(__name__)


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
        self._config = _consumer_config(properties, group, limits)
        self._topics = list(topics)
        self._clock = clock
        self._client: Consumer | None = None
        self._hooks: SourceHooks | None = None
        self._epochs: dict[TopicPartition, int] = {}  # outlives assignments: epochs only grow
        self._next: dict[TopicPartition, int] = {}  # owned and placed -> lowest offset to come
        self._held: dict[TopicPartition, Held] = {}  # assigned, paused, not placed
        self._retry_ns = 0
        self._misplaced: set[TopicPartition] = set()
        self._quiet = False
        self._joined = False
        self._raised: BaseException | None = None
        self._missing: set[str] = set()

    def start(self, hooks: SourceHooks) -> None:
        """Build the consumer and subscribe."""
        self._hooks = hooks
        self._client = Consumer(self._config, logger=_log)
        self._client.subscribe(
            self._topics,
            on_assign=self._guarded(self._assigned),
            on_revoke=self._guarded(self._revoked),
            on_lost=self._guarded(self._lost),
        )

    def poll(self, records_max: int, timeout_s: float) -> list[Record]:
        """Records of owned partitions; waits at most ``timeout_s`` for the first one.

        Raises:
            StreamerError: the consumer is dead, or a hook failed inside a rebalance.
        """
        if self._quiet:
            self._resume()
        messages = self._take(records_max, timeout_s)
        records = self._accept(messages)
        if self._held and self._clock.monotonic_ns() >= self._retry_ns:
            self._retry_held()
        return records

    def keep_alive(self) -> None:
        """Serve the group without taking records: everything is paused until the next poll."""
        if not self._quiet:
            self._quiet = True
            self._pause(self._next)
        for at, _, _ in self._take(1, 0.0):
            self._misplaced.add(at)  # paused partitions give nothing: read it again, lose nothing

    def rewind(self, partitions: Collection[TopicPartition]) -> list[Assignment]:
        """New epochs at the committed offsets, read again; the positions are moved there.

        Partitions that cannot be placed now are held and come back by ``on_assigned``.

        Raises:
            BrokerUnreachable: not a single offset could be read; nothing has changed.
        """
        mine = [at for at in partitions if at in self._next]
        found = placements(self._required, mine, _REWIND_S)
        if mine and all(isinstance(p, Held) and not p.is_gap for p in found.values()):
            raise BrokerUnreachable("the committed offsets could not be read")
        self._misplaced -= set(mine)
        assignments = []
        for at, placement in found.items():
            if isinstance(placement, Held):
                self._hold(at, placement)
            else:
                self._seek(at, placement.offset)
                assignments.append(self._own(at, placement))
        return assignments

    def owned(self) -> frozenset[TopicPartition]:
        """Partitions that are ours and placed."""
        return frozenset(self._next)

    def held(self) -> Mapping[TopicPartition, str]:
        """Partitions that are ours but not read, with the reason; safe from any thread."""
        return {at: held.reason for at, held in self._held.copy().items()}

    def misplaced(self) -> frozenset[TopicPartition]:
        """Partitions whose records came out of order: rewind them."""
        return frozenset(self._misplaced & self._next.keys())

    def positions(self) -> dict[TopicPartition, int]:
        """Read positions: past everything returned by ``poll`` and past the markers behind it.

        Left out: partitions of which nothing was read since they were placed (their position is
        where they were placed), and misplaced ones.
        """
        asked = [
            ClientPartition(at.topic, at.partition) for at in self._next.keys() - self._misplaced
        ]
        found = self._required.position(asked) if asked else []
        return {TopicPartition(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    def group_metadata(self) -> object | None:
        """For a transaction; None before the first assignment or without a member id.

        Metadata of a non-member would be accepted by the broker without any check.
        """
        if not self._joined or not self._required.memberid():
            return None
        metadata: object = self._required.consumer_group_metadata()
        return metadata

    def close(self) -> None:
        """Leave the group (the revoke hook runs) and close."""
        if self._client is not None:
            self._client.close()
            self._client = None
        self._reraise()

    @property
    def _required(self) -> Consumer:
        if self._client is None:
            raise StreamerError("the source is not started")
        return self._client

    # -- records ---------------------------------------------------------------------------

    def _take(
        self, records_max: int, timeout_s: float
    ) -> list[tuple[TopicPartition, int, Message]]:
        """Messages with the epoch under which they came out of the client."""
        first = self._required.poll(timeout_s)
        self._reraise()
        if first is None:
            return []
        taken = self._sift((first,))
        if records_max > 1:
            more = self._required.consume(records_max - 1, 0)
            self._reraise()
            taken += self._sift(more)
        return taken

    def _sift(self, messages: Iterable[Message]) -> list[tuple[TopicPartition, int, Message]]:
        taken = []
        for message in messages:
            error = message.error()
            if error is not None:
                self._trouble(error, message)
                continue
            at = TopicPartition(message.topic(), message.partition())
            if at in self._next:
                taken.append((at, self._epochs[at], message))
        return taken

    def _accept(self, taken: Sequence[tuple[TopicPartition, int, Message]]) -> list[Record]:
        records: list[Record] = []
        for at, epoch, message in taken:
            expected = self._next.get(at)
            if expected is None or self._epochs[at] != epoch or at in self._misplaced:
                continue
            offset = message.offset()
            if offset < expected:
                _log.error("record out of order", extra={"at": str(at), "offset": offset})
                self._misplaced.add(at)
                continue
            self._next[at] = offset + 1
            records.append(record_of(message))
        return records

    def _trouble(self, error: KafkaError, message: Message) -> None:
        trouble, topic = consumer_trouble(error), message.topic()
        if trouble is ConsumerTrouble.FATAL:
            raise StreamerError(f"the consumer is dead: {error.name()}")
        if trouble is ConsumerTrouble.NO_POSITION and topic is not None:
            at = TopicPartition(topic, message.partition())
            if at in self._next:
                self._hold(at, Held("the position is outside the log", is_gap=True))
                self._hooks_required.on_lost([at])
        elif trouble is ConsumerTrouble.MISSING_TOPIC:
            if topic not in self._missing:
                self._missing.add(str(topic))
                _log.warning("topic does not exist yet", extra={"topic": topic})
        else:
            _log.info("consumer event", extra={"error": error.name(), "kind": trouble.value})

    # -- assignment ------------------------------------------------------------------------

    def _assigned(self, consumer: Consumer, partitions: Sequence[ClientPartition]) -> None:
        ats = [TopicPartition(p.topic, p.partition) for p in partitions]
        found = placements(consumer, ats, _ASSIGN_S)
        consumer.incremental_assign(
            [
                ClientPartition(
                    at.topic, at.partition, p.offset if isinstance(p, Placed) else OFFSET_END
                )
                for at, p in found.items()
            ]
        )
        self._joined = True
        assignments = []
        for at, placement in found.items():
            if isinstance(placement, Placed):
                assignments.append(self._own(at, placement))
            else:
                self._hold(at, placement)
        if self._quiet:
            self._pause(a.at for a in assignments)
        _log.info("assigned", extra={"partitions": len(assignments), "held": len(self._held)})
        self._hooks_required.on_assigned(assignments)

    def _revoked(self, consumer: Consumer, partitions: Sequence[ClientPartition]) -> None:
        del consumer
        mine = self._mine(partitions)
        try:
            self._hooks_required.on_revoked(mine)
        finally:
            self._forget(partitions)
        _log.info("revoked", extra={"partitions": len(mine)})

    def _lost(self, consumer: Consumer, partitions: Sequence[ClientPartition]) -> None:
        del consumer
        mine = self._mine(partitions)
        self._forget(partitions)
        _log.warning("lost", extra={"partitions": len(mine)})
        self._hooks_required.on_lost(mine)

    def _mine(self, partitions: Sequence[ClientPartition]) -> list[TopicPartition]:
        ats = (TopicPartition(p.topic, p.partition) for p in partitions)
        return [at for at in ats if at in self._next]

    def _forget(self, partitions: Sequence[ClientPartition]) -> None:
        for partition in partitions:
            at = TopicPartition(partition.topic, partition.partition)
            self._next.pop(at, None)
            self._held.pop(at, None)
            self._misplaced.discard(at)

    def _own(self, at: TopicPartition, placed: Placed) -> Assignment:
        epoch = self._epochs[at] = self._epochs.get(at, 0) + 1
        self._next[at] = placed.offset
        self._held.pop(at, None)
        return Assignment(at=at, epoch=epoch, offset=placed.offset, metadata=placed.metadata)

    def _hold(self, at: TopicPartition, held: Held) -> None:
        self._next.pop(at, None)
        if self._held.get(at) != held:
            level = logging.ERROR if held.is_gap else logging.WARNING
            _log.log(level, "partition held", extra={"at": str(at), "reason": held.reason})
        self._held[at] = held
        self._pause([at])
        soon = _GAP_RETRY_NS if held.is_gap else _RETRY_NS
        self._retry_ns = self._clock.monotonic_ns() + soon

    def _retry_held(self) -> None:
        found = placements(self._required, list(self._held), _ASSIGN_S, check_start=True)
        assignments = []
        for at, placement in found.items():
            if isinstance(placement, Held):
                self._hold(at, placement)
                continue
            self._seek(at, placement.offset)
            self._required.resume([ClientPartition(at.topic, at.partition)])
            assignments.append(self._own(at, placement))
        if assignments:
            _log.info("placed after all", extra={"partitions": len(assignments)})
            self._hooks_required.on_assigned(assignments)

    # -- the client ------------------------------------------------------------------------

    def _seek(self, at: TopicPartition, offset: int) -> None:
        target = ClientPartition(at.topic, at.partition, offset)
        try:
            self._required.seek(target)
        except KafkaException:
            # Not being fetched yet: taken out and put back at the right place.
            self._required.incremental_unassign([target])
            self._required.incremental_assign([target])

    def _pause(self, ats: Iterable[TopicPartition]) -> None:
        partitions = [ClientPartition(at.topic, at.partition) for at in ats]
        if partitions:
            self._required.pause(partitions)

    def _resume(self) -> None:
        self._quiet = False
        partitions = [ClientPartition(at.topic, at.partition) for at in self._next]
        if partitions:
            self._required.resume(partitions)

    @property
    def _hooks_required(self) -> SourceHooks:
        if self._hooks is None:
            raise StreamerError("the source is not started")
        return self._hooks

    def _guarded(
        self, callback: Callable[[Consumer, Sequence[ClientPartition]], None]
    ) -> Callable[[Consumer, Sequence[ClientPartition]], None]:
        """An exception inside a callback of the client comes out of ``poll`` instead."""

        def call(consumer: Consumer, partitions: Sequence[ClientPartition]) -> None:
            try:
                callback(consumer, partitions)
            except BaseException as error:
                self._raised = self._raised or error

        return call

    def _reraise(self) -> None:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised


def _consumer_config(
    properties: Mapping[str, Any], group: str, limits: SourceLimits
) -> dict[str, Any]:
    config: dict[str, Any] = {
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
