"""[shell] Reads what aggregate must know besides its results: states, entries of jobs, watermarks.

The order at an assignment is part of the proof: the committed mark was read before; then the high
watermarks of job-state, jobs and results from a read_uncommitted handle (on a read_committed one
they would be the last stable offset, which may lie before what a predecessor has committed); then
both compacted topics up to them. From there ``jobs`` is followed live by plain assignment.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from streamer.clock import Clock
from streamer.deadline import Deadline
from streamer.errors import BrokerUnreachable, ConfigurationError
from streamer.event.lane import Record
from streamer.event.topics import TopicNames

_CALL_S: Final = 5.0
_RESTORE_MS: Final = 40_000
_SLICE_S: Final = 0.05
_TAKE: Final = 2_000
_TAIL_TAKE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was found for one partition; both lists are in log order.

    Attributes:
        watermark: high watermark of the results partition.
    """

    states: list[Record]
    entries: list[Record]
    watermark: int


class StateReader:
    """Restores partitions and follows ``jobs``; used from the owner thread only.

    Args:
        properties: client properties (bootstrap, security).
        names: of the topics.
        lane: fast or bulk.
        partitions: that every topic of the lane must have.
        clock: source of time.
    """

    def __init__(
        self, *, properties: Mapping[str, Any], names: TopicNames, lane: str, partitions: int,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._properties = properties
        self._results = names.results(lane)
        self._states = names.job_state(lane)
        self._jobs = names.jobs(lane)
        self._co_partitioned = (
            self._results, names.outputs(lane), self._states, self._jobs, names.dead_letters(lane),
        )  # fmt: skip
        self._partitions = partitions
        self._clock = clock
        self._raw: Consumer | None = None
        self._reader: Consumer | None = None
        self._tail: Consumer | None = None
        self._followed: set[int] = set()

    def start(self) -> None:
        """Build the clients and check that the topics fit together.

        Raises:
            ConfigurationError: partition counts differ; the message names both.
            BrokerUnreachable: nothing answered.
        """
        self._raw = self._consumer("read_uncommitted")
        self._reader = self._consumer("read_committed")
        self._tail = self._consumer("read_committed")
        for topic in self._co_partitioned:
            found = self._partition_count(topic)
            if found != self._partitions:
                raise ConfigurationError(
                    f"topic {topic} has {found} partitions and kafka.partitions says "
                    f"{self._partitions}: all topics of a lane need the same number"
                )

    def _partition_count(self, topic: str) -> int:
        try:
            metadata = _started(self._raw).list_topics(topic, timeout=_CALL_S).topics[topic]
        except KafkaException as error:
            raise BrokerUnreachable(f"no metadata of {topic}: {error}") from error
        if metadata.error is not None:
            raise ConfigurationError(f"topic {topic} is not there: run `streamer topics apply`")
        return len(metadata.partitions)

    def _consumer(self, isolation: str) -> Consumer:
        return Consumer(
            {
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 1_000,
                "fetch.wait.max.ms": 20,
                "fetch.queue.backoff.ms": 10,
                "queued.max.messages.kbytes": 4_096,
                **self._properties,
                # Never joined and never committed to; the client wants a name.
                "group.id": f"streamer-reader-{uuid.uuid4().hex}",
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
            }
        )

    def close(self) -> None:
        """Close the clients."""
        for client in (self._raw, self._reader, self._tail):
            if client is not None:
                client.close()
        self._raw = self._reader = self._tail = None
        self._followed.clear()

    # -- watermarks ------------------------------------------------------------------------

    def high_watermark(self, partition: int) -> int | None:
        """High watermark of a results partition, None when nobody answers in time."""
        try:
            return self._bounds(self._results, partition, 1.0)[1]
        except BrokerUnreachable:
            return None

    def _bounds(self, topic: str, partition: int, timeout_s: float) -> tuple[int, int]:
        at = TopicPartition(topic, partition)
        try:
            found = _started(self._raw).get_watermark_offsets(at, timeout=timeout_s, cached=False)
        except KafkaException as error:
            raise BrokerUnreachable(f"no watermark of {topic}/{partition}: {error}") from error
        if found is None:
            raise BrokerUnreachable(f"no watermark of {topic}/{partition} in time")
        low, high = found
        return int(low), int(high)

    # -- restore ---------------------------------------------------------------------------

    def restore(self, numbers: Collection[int]) -> dict[int, Restored]:
        """Read everything for these partitions and follow their ``jobs`` from there.

        Raises:
            BrokerUnreachable: not done in time.
        """
        deadline = Deadline.after(self._clock.monotonic_ns(), _RESTORE_MS)
        pairs = [(topic, n) for topic in (self._states, self._jobs) for n in sorted(numbers)]
        bounds = {pair: self._bounds_within(pair, deadline) for pair in pairs}
        watermarks = {n: self._bounds_within((self._results, n), deadline)[1] for n in numbers}
        found = self._read_up(bounds, deadline)
        self._follow({n: bounds[self._jobs, n][1] for n in numbers})
        return {
            n: Restored(
                states=found[self._states, n],
                entries=found[self._jobs, n],
                watermark=watermarks[n],
            )
            for n in numbers
        }

    def _bounds_within(self, pair: tuple[str, int], deadline: Deadline) -> tuple[int, int]:
        while True:
            left_s = deadline.remaining_s(self._clock.monotonic_ns())
            try:
                return self._bounds(*pair, min(_CALL_S, left_s))
            except BrokerUnreachable:
                if deadline.passed(self._clock.monotonic_ns()):
                    raise

    def _read_up(
        self, bounds: Mapping[tuple[str, int], tuple[int, int]], deadline: Deadline
    ) -> dict[tuple[str, int], list[Record]]:
        found: dict[tuple[str, int], list[Record]] = {pair: [] for pair in bounds}
        ends = {pair: high for pair, (low, high) in bounds.items() if high > low}
        reader = _started(self._reader)
        reader.assign([TopicPartition(*pair, OFFSET_BEGINNING) for pair in ends])
        try:
            while ends:
                for message in reader.consume(_TAKE, _SLICE_S):
                    pair = (str(message.topic()), int(message.partition() or 0))
                    at_end = _is_end(message)
                    offset = int(message.offset() or 0)
                    if not at_end and offset < bounds[pair][1]:
                        found[pair].append(_record(message))
                    elif pair in ends and at_end and offset >= ends[pair]:
                        del ends[pair]
                for at in reader.position([TopicPartition(*pair) for pair in ends]):
                    if at.offset >= ends[at.topic, at.partition]:
                        del ends[at.topic, at.partition]
                if ends and deadline.passed(self._clock.monotonic_ns()):
                    names = ", ".join(f"{topic}/{number}" for topic, number in ends)
                    raise BrokerUnreachable(f"not read to the end in time: {names}")
        finally:
            reader.unassign()
        return found

    # -- following jobs --------------------------------------------------------------------

    def _follow(self, starts: Mapping[int, int]) -> None:
        again = self._followed & starts.keys()
        tail = _started(self._tail)
        if again:
            tail.incremental_unassign([TopicPartition(self._jobs, n) for n in again])
        tail.incremental_assign([TopicPartition(self._jobs, n, at) for n, at in starts.items()])
        self._followed |= starts.keys()

    def forget(self, numbers: Collection[int]) -> None:
        """Stop following these partitions."""
        gone = self._followed & set(numbers)
        if gone:
            _started(self._tail).incremental_unassign([TopicPartition(self._jobs, n) for n in gone])
            self._followed -= gone

    def followed(self) -> frozenset[int]:
        """Partitions whose ``jobs`` are followed."""
        return frozenset(self._followed)

    def entries(self) -> dict[int, list[Record]]:
        """What was appended to the followed partitions of ``jobs``; never waits."""
        found: dict[int, list[Record]] = {}
        if self._followed:
            for message in _started(self._tail).consume(_TAIL_TAKE, 0.0):
                number = message.partition()
                if not _is_end(message) and number in self._followed:
                    found.setdefault(number, []).append(_record(message))
        return found


def _started(client: Consumer | None) -> Consumer:
    if client is None:
        raise AssertionError("the reader is not started")
    return client


def _is_end(message: Message) -> bool:
    """Whether it is the end of a partition (or a passing trouble) instead of a record.

    Raises:
        ConfigurationError: the topic went away or may not be read.
    """
    error = message.error()
    if error is None:
        return False
    lost = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    if error.code() in lost:
        raise ConfigurationError(f"topic {message.topic()} cannot be read: {error.str()}")
    return True


def _record(message: Message) -> Record:
    headers: Sequence[tuple[str, bytes | None]] = message.headers() or ()  # type: ignore[assignment]
    return Record(
        topic=str(message.topic()),
        partition=int(message.partition() or 0),
        offset=int(message.offset() or 0),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers={name: value or b"" for name, value in headers},
    )
