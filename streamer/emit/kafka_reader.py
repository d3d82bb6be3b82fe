"""Reads partitions by assignment, without a group: for restoring, auditing and clients.

"To the end" means the high watermark of a read_uncommitted handle, asked before reading: after a
commit returned, the last stable offset may lag behind it for a moment. Data is read_committed.
The client's own position stays unset on a quiet or empty partition and control records trail the
last record, so the *read position* is the seek target until a record or an end-of-partition event
reports a higher one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from streamer.clock import Clock
from streamer.deadline import Deadline
from streamer.errors import BrokerUnreachable, StreamerError
from streamer.event.kafka_record import at_of, record_of
from streamer.event.lane import Record, TopicPartition
from streamer.kafka_errors import ConsumerTrouble, consumer_trouble, is_end, when_asking
from streamer.kafka_log import ClientLog

_log = logging.getLogger(__name__)
_EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_CHUNK: Final = 1_000
_ASK_S: Final = 5.0
_ASK_AGAIN_S: Final = 0.1


class Bounds(NamedTuple):
    """Lowest offset of a log and its high watermark (also of what is not committed)."""

    low: int
    high: int


def bounds(
    properties: Mapping[str, Any],
    partitions: Collection[TopicPartition],
    *,
    deadline: Deadline,
    clock: Clock,
) -> dict[TopicPartition, Bounds]:
    """Log start and read_uncommitted high watermark of each partition.

    Raises:
        BrokerUnreachable: no answer in time.
        ConfigurationError: a topic or partition does not exist, or it may not be read.
    """
    admin = AdminClient({**properties}, logger=ClientLog(_log))
    while True:
        ask_s = max(0.2, min(_ASK_S, deadline.remaining_s(clock.monotonic_ns())))
        try:
            lows = _offsets(admin, partitions, _EARLIEST, ask_s)
            highs = _offsets(admin, partitions, _LATEST, ask_s)
        except BrokerUnreachable:
            # A topic made a moment ago has no leader yet that all brokers know.
            if deadline.passed(clock.monotonic_ns()):
                raise
        else:
            return {at: Bounds(lows[at], highs[at]) for at in partitions}
        threading.Event().wait(_ASK_AGAIN_S)


def _offsets(
    admin: AdminClient, partitions: Collection[TopicPartition], spec: OffsetSpec, timeout_s: float
) -> dict[TopicPartition, int]:
    asked = {at: ClientPartition(at.topic, at.partition) for at in partitions}
    if not asked:
        return {}
    answers = admin.list_offsets(
        dict.fromkeys(asked.values(), spec),
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=timeout_s,
    )
    found = {}
    for at, partition in asked.items():
        try:
            found[at] = int(answers[partition].result(timeout_s + 1.0).offset)
        except KafkaException as error:
            raise when_asking(error, f"{at.topic}-{at.partition}") from error
    return found


class PartitionReader:
    """Follows some partitions from given offsets.

    Args:
        properties: client properties (bootstrap, security).
        committed: False also shows records of open and aborted transactions (audits only).
    """

    def __init__(self, properties: Mapping[str, Any], *, committed: bool = True) -> None:
        self._config: dict[str, Any] = {
            "fetch.queue.backoff.ms": 10,
            "fetch.wait.max.ms": 100,
            "queued.min.messages": 5_000,
            "queued.max.messages.kbytes": 16_384,
            **properties,
            "group.id": "streamer-reader",  # demanded by the client; nothing is ever committed
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
        self._client: Consumer | None = None
        self._positions: dict[TopicPartition, int] = {}

    def start(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read from these offsets on; each must lie inside its log."""
        self._client = Consumer(self._config, logger=ClientLog(_log))
        self._positions = dict(starts)
        self._client.assign(
            [ClientPartition(at.topic, at.partition, offset) for at, offset in starts.items()]
        )

    def poll(self, records_max: int, timeout_s: float) -> list[Record]:
        """The next records; waits at most ``timeout_s`` for the first one.

        Raises:
            StreamerError: an offset lies outside the log, or the client is dead.
        """
        client = self._required
        first = client.poll(timeout_s)
        if first is None:
            return []
        messages = [first, *client.consume(records_max - 1, 0)] if records_max > 1 else [first]
        return [record for record in map(self._taken, messages) if record is not None]

    def position(self, at: TopicPartition) -> int:
        """Everything below is read."""
        return self._positions[at]

    def add(self, at: TopicPartition, offset: int) -> None:
        """Read one more partition, from ``offset`` on."""
        self._positions[at] = offset
        self._required.incremental_assign([ClientPartition(at.topic, at.partition, offset)])

    def remove(self, at: TopicPartition) -> None:
        """Stop reading a partition."""
        self._positions.pop(at, None)
        self._required.incremental_unassign([ClientPartition(at.topic, at.partition)])

    def close(self) -> None:
        """Close the client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    @property
    def _required(self) -> Consumer:
        if self._client is None:
            raise StreamerError("the reader is not started")
        return self._client

    def _taken(self, message: Message) -> Record | None:
        at, error, offset = at_of(message), message.error(), message.offset() or 0
        if error is None:
            if at not in self._positions:
                return None
            self._positions[at] = offset + 1
            return record_of(message)
        if is_end(error):
            if at in self._positions:
                self._positions[at] = max(self._positions[at], offset)
            return None
        trouble = consumer_trouble(error)
        if trouble in (ConsumerTrouble.FATAL, ConsumerTrouble.NO_POSITION):
            raise StreamerError(f"cannot read {at.topic}-{at.partition}: {error.name()}")
        _log.info("reader event", extra={"error": error.name(), "kind": trouble.value})
        return None


def read_up(
    properties: Mapping[str, Any],
    starts: Mapping[TopicPartition, int],
    *,
    deadline: Deadline,
    clock: Clock,
    committed: bool = True,
    ends: Mapping[TopicPartition, int] | None = None,
) -> Iterator[list[Record]]:
    """All records from ``starts`` up to the high watermarks of now, in offset order a partition.

    Args:
        properties: client properties.
        starts: first offset of each partition; one below the log's start means its start.
        deadline: for the whole reading.
        clock: source of time.
        committed: False also gives records of open and aborted transactions.
        ends: where to stop, instead of asking for the high watermarks.

    Raises:
        BrokerUnreachable: not read by the deadline (an open transaction holds back the end until
            it times out: allow for that).
    """
    found = bounds(properties, starts, deadline=deadline, clock=clock)
    goals = {at: found[at].high if ends is None else ends[at] for at in starts}
    reading = {at: max(start, found[at].low) for at, start in starts.items()}
    reading = {at: start for at, start in reading.items() if start < goals[at]}
    if not reading:
        return
    reader = PartitionReader(properties, committed=committed)
    reader.start(reading)
    try:
        while any(reader.position(at) < goals[at] for at in reading):
            left_s = deadline.remaining_s(clock.monotonic_ns())
            if left_s <= 0:
                raise BrokerUnreachable("partitions were not read to their end in time")
            records = reader.poll(_CHUNK, min(left_s, 0.1))
            below = [r for r in records if r.offset < goals[TopicPartition(r.topic, r.partition)]]
            if below:
                yield below
    finally:
        reader.close()
