"""The consumer of a lane: assignments under epochs, explicit placement, rewinds.

Rebalance callbacks run inside ``poll`` on the owner thread, so nothing races with a revoke. What
is ours and which record comes next is kept in ``ownership.py``; here the client is called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as ClientPartition

from streamer.batch.kafka_consumer import (
    SourceHooks,
    SourceLimits,
    client_at,
    consumer_config,
    ours_of,
    pause,
    resume,
    seek,
)
from streamer.batch.kafka_offsets import placements, starts_of
from streamer.batch.ownership import Ownership
from streamer.batch.placement import Held, Placed
from streamer.clock import Clock
from streamer.errors import BrokerUnreachable, StreamerError
from streamer.event.kafka_record import at_of, record_of
from streamer.event.lane import Assignment, Record, TopicPartition
from streamer.kafka_errors import ConsumerTrouble, consumer_trouble, is_end
from streamer.kafka_log import ClientLog

_ASSIGN_S: Final = 2.0  # then the partition is held and asked about again, others go on
_REWIND_S: Final = 5.0
_SHARE_NS: Final = 5_000_000_000
_log = logging.getLogger(__name__)
_Taken = tuple[TopicPartition, int, Message]  # with the epoch under which it came out


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
        self._config = consumer_config(properties, group, limits)
        self._topics = list(topics)
        self._clock = clock
        self._client: Consumer | None = None
        self._hooks: SourceHooks | None = None
        self._mine = Ownership()
        self._quiet = False  # everything is paused
        self._has_share = False  # of the group; KIP-848 tells nobody of a share of nothing
        self._share_by_ns = _SHARE_NS if limits.protocol == "consumer" else 1 << 63
        self._raised: BaseException | None = None
        self._missing: set[str] = set()  # topics that were told of as missing

    def start(self, hooks: SourceHooks) -> None:
        """Build the consumer and subscribe."""
        self._hooks = hooks
        self._share_by_ns += self._clock.monotonic_ns()
        self._client = Consumer(self._config, logger=ClientLog(_log, clock=self._clock))
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
            self._quiet = False
            resume(self._required, self._mine.owned())
        taken, take = self._take(records_max, timeout_s), self._mine.take
        records = [record_of(m) for at, epoch, m in taken if take(at, epoch, m.offset() or 0)]
        if self._mine.retry_due(self._clock.monotonic_ns()):
            self._retry_held()
        return records

    def keep_alive(self, timeout_s: float = 0.0) -> None:
        """Serve the group without taking records: everything is paused until the next poll."""
        if not self._quiet:
            self._quiet = True
            pause(self._required, self._mine.owned())
        for at, _, _ in self._take(1, timeout_s):
            self._mine.misplace(at)

    def rewind(self, partitions: Collection[TopicPartition]) -> list[Assignment]:
        """New epochs at the committed offsets, read again; the positions are moved there.

        Partitions that cannot be placed now are held and come back by ``on_assigned``.

        Raises:
            BrokerUnreachable: not a single offset could be read; nothing has changed.
        """
        mine = self._mine.owned_of(partitions)
        found = placements(self._required, mine, _REWIND_S)
        if mine and all(isinstance(p, Held) and not p.is_gap for p in found.values()):
            raise BrokerUnreachable("the committed offsets could not be read")
        return self._settle(found)

    def joined(self) -> bool:
        """Whether it got its share of the group, perhaps nothing; safe from any thread."""
        return self._has_share or self._clock.monotonic_ns() >= self._share_by_ns

    def owned(self) -> frozenset[TopicPartition]:
        """Partitions that are ours and placed."""
        return self._mine.owned()

    def held(self) -> Mapping[TopicPartition, str]:
        """Partitions that are ours but not read, with the reason; safe from any thread."""
        return {at: held.reason for at, held in self._mine.held().items()}

    def misplaced(self) -> frozenset[TopicPartition]:
        """Partitions whose records came out of order: rewind them."""
        return self._mine.misplaced()

    def positions(self) -> dict[TopicPartition, int]:
        """Read positions: past everything returned by ``poll`` and past the markers behind it.

        Where nothing but markers came since a partition was placed, only its end tells
        (``tell_ends``). Left out: what has told neither, and misplaced partitions.
        """
        asked = [client_at(at) for at in self._mine.moved()]
        known = self._mine.ends()
        for p in self._required.position(asked) if asked else []:
            at = TopicPartition(p.topic, p.partition)
            known[at] = max(p.offset, known.get(at, 0))
        return known

    def group_metadata(self) -> object | None:
        """For a transaction; None for a non-member, whose offsets the broker would not check."""
        if not self._has_share or not self._required.memberid():
            return None
        metadata: object = self._required.consumer_group_metadata()
        return metadata

    def close(self) -> None:
        """Leave the group (the revoke hook runs) and close."""
        if self._client is not None:
            self._client.close()
            self._client = None
        self._reraise()

    # -- records ---------------------------------------------------------------------------

    def _take(self, records_max: int, timeout_s: float) -> list[_Taken]:
        """The first record ends the wait; ``consume`` alone would wait for all of them."""
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

    def _sift(self, messages: Iterable[Message]) -> list[_Taken]:
        taken = []
        for message in messages:
            error = message.error()
            if error is not None:
                self._trouble(error, message)
                continue
            at = at_of(message)
            epoch = self._mine.stamp(at)
            if epoch is not None:
                taken.append((at, epoch, message))
        return taken

    def _trouble(self, error: KafkaError, message: Message) -> None:
        trouble, topic = consumer_trouble(error), message.topic()
        if is_end(error):
            self._mine.reached(at_of(message), message.offset() or 0)
        elif trouble is ConsumerTrouble.FATAL:
            raise StreamerError(f"the consumer is dead: {error.name()}")
        elif trouble is ConsumerTrouble.NO_POSITION and topic is not None:
            at = at_of(message)
            if self._mine.stamp(at) is not None:
                self._hold(at, Held("the position is outside the log", is_gap=True))
                self._listener.on_lost([at])
        elif trouble is ConsumerTrouble.MISSING_TOPIC:
            if topic not in self._missing:
                self._missing.add(str(topic))
                _log.warning("topic does not exist yet", extra={"topic": topic})
        else:
            _log.info("consumer event", extra={"error": error.name(), "kind": trouble.value})

    # -- assignment ------------------------------------------------------------------------

    def _assigned(self, consumer: Consumer, partitions: Sequence[ClientPartition]) -> None:
        found = placements(consumer, ours_of(partitions), _ASSIGN_S)
        consumer.incremental_assign(starts_of(found))
        self._has_share = True
        assignments = self._settle(found, move=False)
        if self._quiet:
            pause(consumer, [assignment.at for assignment in assignments])
        _log.info("assigned", extra={"partitions": len(found), "placed": len(assignments)})
        self._listener.on_assigned(assignments)

    def _revoked(self, consumer: Consumer, partitions: Sequence[ClientPartition]) -> None:
        del consumer
        ours = ours_of(partitions)
        try:
            self._listener.on_revoked(self._mine.owned_of(ours))
        finally:
            self._mine.forget(ours)
        _log.info("revoked", extra={"partitions": len(ours)})

    def _lost(self, consumer: Consumer, partitions: Sequence[ClientPartition]) -> None:
        del consumer
        ours = ours_of(partitions)
        owned = self._mine.owned_of(ours)
        self._mine.forget(ours)
        _log.warning("lost", extra={"partitions": len(ours)})
        self._listener.on_lost(owned)

    def _retry_held(self) -> None:
        held = list(self._mine.held())
        found = placements(self._required, held, _ASSIGN_S, check_start=True)
        assignments = self._settle(found)
        if assignments:
            resume(self._required, [assignment.at for assignment in assignments])
            _log.info("placed after all", extra={"partitions": len(assignments)})
            self._listener.on_assigned(assignments)

    def _settle(
        self, found: Mapping[TopicPartition, Placed | Held], *, move: bool = True
    ) -> list[Assignment]:
        assignments = []
        for at, placement in found.items():
            if isinstance(placement, Held):
                self._hold(at, placement)
                continue
            if move:
                seek(self._required, at, placement.offset)
            assignments.append(self._mine.own(at, placement))
        return assignments

    def _hold(self, at: TopicPartition, held: Held) -> None:
        if self._mine.hold(at, held, self._clock.monotonic_ns()):
            level = logging.ERROR if held.is_gap else logging.WARNING
            _log.log(level, "partition held", extra={"at": tuple(at), "reason": held.reason})
        pause(self._required, [at])

    # -- the client ------------------------------------------------------------------------

    @property
    def _required(self) -> Consumer:
        if self._client is None:
            raise StreamerError("the source is not started")
        return self._client

    @property
    def _listener(self) -> SourceHooks:
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
