"""Reading topics without a consumer group: watermarks, offsets by time, bounded ranges.

A *bounded* read ends at the high watermark that a read_uncommitted handle reported at its start.
The end is reached by position, never by the offset of a last record: transaction markers trail
behind records, and a read_committed end lags behind the high watermark for some milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from streamer.errors import BrokerUnreachable, ConfigurationError, StreamerError
from streamer.event.kafka_record import record_of
from streamer.event.lane import Record
from streamer.kafka_errors import (
    ConsumerTrouble,
    consumer_trouble,
    error_of,
    is_end,
    when_asking,
)

Properties = Mapping[str, str | int | float | bool]
Place = tuple[str, int]
T = TypeVar("T")

CALL_S = 5.0
_ASK_S = 10.0
_NEW_TOPIC_S = 2.0
_ASK_AGAIN_S = 0.1
_UNREACHABLE = frozenset(
    {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE,
     KafkaError._TIMED_OUT}
)  # fmt: skip


def quiet(_: object) -> None:
    """Connection trouble is reported by the call that meets it, once."""


def make_consumer(
    properties: Properties, *, committed: bool = True, group: str = "streamer-reader"
) -> Consumer:
    """A consumer that joins no group and commits nothing.

    Args:
        properties: client properties with ``bootstrap.servers``.
        committed: whether aborted and open transactions are hidden.
        group: name for reading committed offsets of a group; never joined.
    """
    return Consumer(
        {
            **properties,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 10,
            "queued.min.messages": 5000,
            "queued.max.messages.kbytes": 16384,
            "error_cb": quiet,
            "log_level": 2,
        }
    )


def translate(error: KafkaException | KafkaError, where: str) -> StreamerError:
    """The exception to raise for a client error; says what to do and never what was sent."""
    cause = error_of(error) if isinstance(error, KafkaException) else error
    if cause.code() in _UNREACHABLE:
        return BrokerUnreachable(
            f"no answer from the brokers at {where} ({cause.name()}): is the stack up "
            "(`streamer up`), and is kafka.bootstrap right?"
        )
    return StreamerError(f"{where}: {cause.name()}: {cause.str()}")


def stops_reading(error: KafkaError) -> bool:
    """Whether an error event of a consumer ends the reading; the client sees to the others."""
    return consumer_trouble(error) in (ConsumerTrouble.FATAL, ConsumerTrouble.NO_POSITION)


class TopicReader:
    """Questions about topics, and bounded reads of them, over short-lived consumers.

    Args:
        properties: client properties with ``bootstrap.servers``.
    """

    def __init__(self, properties: Properties) -> None:
        self._properties = properties
        self._where = str(properties.get("bootstrap.servers", ""))
        self._asking: Consumer | None = None
        self._counts: dict[str, int] = {}

    def close(self) -> None:
        """Give the connections back."""
        if self._asking is not None:
            self._asking.close()
            self._asking = None

    def topics(self) -> dict[str, int]:
        """All topics of the cluster with their partition counts."""
        found = self._asked(lambda client: client.list_topics(timeout=CALL_S)).topics
        return {name: len(topic.partitions) for name, topic in found.items() if not topic.error}

    def partition_count(self, topic: str) -> int:
        """Partitions of ``topic``.

        Raises:
            ConfigurationError: there is no such topic.
            BrokerUnreachable: nobody answers.
        """
        if topic not in self._counts:
            counts = self.topics()
            # Brokers learn of a new topic from the controller, one after the other.
            give_up_at = time.monotonic() + _NEW_TOPIC_S
            while topic not in counts and time.monotonic() < give_up_at:
                time.sleep(0.1)
                counts = self.topics()
            if topic not in counts:
                raise ConfigurationError(
                    f"topic {topic} is missing: run `streamer topics apply`, or mend kafka.prefix"
                )
            self._counts.update(counts)
        return self._counts[topic]

    def watermarks(self, place: Place) -> tuple[int, int]:
        """Log start and high watermark of a partition, as a read_uncommitted reader has them."""
        at = TopicPartition(*place)
        low, high = self._asked(lambda client: client.get_watermark_offsets(at, timeout=CALL_S))
        return low, high

    def offset_at(self, place: Place, at_ms: int) -> int:
        """The first offset appended at or after ``at_ms``; the high watermark when none is."""
        at = TopicPartition(*place, max(0, at_ms))
        (found,) = self._asked(lambda client: client.offsets_for_times([at], timeout=CALL_S))
        if found.error is not None:
            raise translate(found.error, self._where)
        return found.offset if found.offset >= 0 else self.watermarks(place)[1]

    def committed(self, group: str, places: list[Place]) -> dict[Place, int]:
        """Committed offsets of a group; places without one are left out."""
        if not places:
            return {}
        consumer = make_consumer(self._properties, group=group)
        at = [TopicPartition(*place) for place in places]
        try:
            found = self._asked(lambda _: consumer.committed(at, timeout=CALL_S))
        finally:
            consumer.close()
        return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    def read(
        self,
        starts: Mapping[Place, int],
        ends: Mapping[Place, int] | None = None,
        *,
        committed: bool = True,
        stall_s: float = 30.0,
    ) -> Iterator[Record]:
        """The records from ``starts`` up to ``ends`` (default: the high watermarks of now).

        Records of one partition come in order; partitions are mixed.

        Raises:
            StreamerError: a partition made no progress for ``stall_s`` seconds, e.g. because a
                transaction stays open.
        """
        ends = {place: self.watermarks(place)[1] for place in starts} if ends is None else ends
        open_ends = {place: ends[place] for place, start in starts.items() if start < ends[place]}
        if not open_ends:
            return
        consumer = make_consumer(self._properties, committed=committed)
        try:
            consumer.assign([TopicPartition(*place, starts[place]) for place in open_ends])
            yield from self._drain(consumer, open_ends, stall_s)
        finally:
            consumer.close()

    def _drain(
        self, consumer: Consumer, open_ends: dict[Place, int], stall_s: float
    ) -> Iterator[Record]:
        moved = time.monotonic()
        while open_ends:
            messages = consumer.consume(1000, 0.1)
            for message in messages:
                moved = time.monotonic()
                place = (str(message.topic()), int(message.partition() or 0))
                error = message.error()
                if error is not None and not is_end(error):
                    if stops_reading(error):
                        raise translate(error, f"{place[0]}[{place[1]}]")
                    continue
                if place not in open_ends:
                    continue
                end, offset = open_ends[place], int(message.offset() or 0)
                if error is None and offset < end:
                    yield record_of(message)
                if offset >= (end if error is not None else end - 1):
                    del open_ends[place]
            if not messages:
                _drop_reached(consumer, open_ends)
                if open_ends and time.monotonic() - moved > stall_s:
                    place = next(iter(open_ends))
                    raise StreamerError(
                        f"{place[0]}[{place[1]}] made no progress for {stall_s:.0f} s below its "
                        "high watermark: a transaction may hang"
                    )

    def _asked(self, ask: Callable[[Consumer], T]) -> T:
        """The answer to a question, asked again while leaders and new topics settle."""
        if self._asking is None:
            self._asking = make_consumer(self._properties, committed=False)
        began = time.monotonic()
        while True:
            try:
                return ask(self._asking)
            except KafkaException as error:
                passing = isinstance(when_asking(error, self._where), BrokerUnreachable)
                if time.monotonic() - began > (_ASK_S if passing else _NEW_TOPIC_S):
                    raise translate(error, self._where) from None
            time.sleep(_ASK_AGAIN_S)


def _drop_reached(consumer: Consumer, open_ends: dict[Place, int]) -> None:
    """Markers carry a position past the last record; only the position tells."""
    if not open_ends:
        return
    for at in consumer.position([TopicPartition(*place) for place in open_ends]):
        place = (at.topic, at.partition)
        if at.offset >= open_ends[place]:
            del open_ends[place]
