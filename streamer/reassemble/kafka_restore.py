"""[shell] Reads what aggregate must know besides its results: states, entries of jobs, watermarks.

The order at an assignment is part of the proof: the committed mark was read before; then the high
watermarks of job-state, jobs and results as a read_uncommitted reader sees them (the last stable
offset may lie before what a predecessor has committed); then both compacted topics up to them.
From there ``jobs`` is followed live by plain assignment.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from streamer.clock import Clock
from streamer.deadline import Deadline
from streamer.emit.kafka_reader import Bounds, PartitionReader, bounds, read_up
from streamer.errors import ConfigurationError
from streamer.event.lane import Record, TopicPartition
from streamer.event.topics import TopicNames
from streamer.kafka_errors import when_asking

_CALL_S: Final = 5.0
_WATERMARK_S: Final = 1.0
# An open transaction of a predecessor holds back the end until it times out (10 s, and the sweep).
_RESTORE_MS: Final = 40_000
_TAIL_RECORDS: Final = 500
_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Restored:
    """What was found for one partition: the last record of each key.

    Only the last, because a topic that was not compacted for long holds many of each.

    Attributes:
        watermark: high watermark of the results partition.
    """

    watermark: int
    states: dict[bytes | None, Record] = field(default_factory=dict)
    entries: dict[bytes | None, Record] = field(default_factory=dict)


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
        self._properties = dict(properties)
        self._results = names.results(lane)
        self._states = names.job_state(lane)
        self._jobs = names.jobs(lane)
        self._co_partitioned = (
            self._results, names.outputs(lane), self._states, self._jobs, names.dead_letters(lane),
        )  # fmt: skip
        self._partitions = partitions
        self._clock = clock
        self._asker: Consumer | None = None
        self._tail = PartitionReader(properties)
        self._followed: set[int] = set()

    def start(self) -> None:
        """Build the clients and check that the topics fit together.

        Raises:
            ConfigurationError: partition counts differ; the message names both.
            BrokerUnreachable: nothing answered.
        """
        # Asks for watermarks only: as read_uncommitted they are not the last stable offset.
        config = {
            **self._properties,
            "group.id": "streamer-reader",  # demanded by the client; nothing is ever committed
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": False,
        }
        self._asker = Consumer(config, logger=_log)
        self._tail.start({})
        for topic in self._co_partitioned:
            found = self._partition_count(topic)
            if found != self._partitions:
                raise ConfigurationError(
                    f"topic {topic} has {found} partitions and kafka.partitions says "
                    f"{self._partitions}: all topics of a lane need the same number"
                )

    def _partition_count(self, topic: str) -> int:
        try:
            metadata = self._required.list_topics(topic, timeout=_CALL_S).topics[topic]
        except KafkaException as error:
            raise when_asking(error, topic) from error
        if metadata.error is not None:
            raise ConfigurationError(f"topic {topic} is not there: run `streamer topics apply`")
        return len(metadata.partitions)

    @property
    def _required(self) -> Consumer:
        if self._asker is None:
            raise AssertionError("the reader is not started")
        return self._asker

    def close(self) -> None:
        """Close the clients."""
        if self._asker is not None:
            self._asker.close()
            self._asker = None
        self._tail.close()
        self._followed.clear()

    def high_watermark(self, partition: int) -> int | None:
        """High watermark of a results partition, None when nobody answers in time."""
        at = ClientPartition(self._results, partition)
        try:
            found = self._required.get_watermark_offsets(at, timeout=_WATERMARK_S, cached=False)
        except KafkaException as error:
            _log.warning("no watermark", extra={"at": str(at), "error": str(error)})
            return None
        return None if found is None else int(found[1])

    # -- restore ---------------------------------------------------------------------------

    def restore(self, numbers: Collection[int]) -> dict[int, Restored]:
        """Read everything for these partitions and follow their ``jobs`` from there.

        Raises:
            BrokerUnreachable: not done in time.
        """
        deadline = Deadline.after(self._clock.monotonic_ns(), _RESTORE_MS)
        found = self._bounds(numbers, deadline)
        restored = {
            n: Restored(watermark=found[TopicPartition(self._results, n)].high) for n in numbers
        }
        ends = {at: each.high for at, each in found.items() if at.topic != self._results}
        for records in read_up(
            self._properties, dict.fromkeys(ends, 0), deadline=deadline, clock=self._clock,
            ends=ends,
        ):  # fmt: skip
            for record in records:
                one = restored[record.partition]
                (one.states if record.topic == self._states else one.entries)[record.key] = record
        self._follow({n: found[TopicPartition(self._jobs, n)].high for n in numbers})
        return restored

    def _bounds(self, numbers: Collection[int], deadline: Deadline) -> dict[TopicPartition, Bounds]:
        topics = (self._states, self._jobs, self._results)
        asked = [TopicPartition(topic, n) for topic in topics for n in sorted(numbers)]
        return bounds(self._properties, asked, deadline=deadline, clock=self._clock)

    # -- following jobs --------------------------------------------------------------------

    def _follow(self, starts: Mapping[int, int]) -> None:
        self.forget(starts)
        for number, offset in starts.items():
            self._tail.add(TopicPartition(self._jobs, number), offset)
        self._followed |= starts.keys()

    def forget(self, numbers: Collection[int]) -> None:
        """Stop following these partitions."""
        for number in self._followed & set(numbers):
            self._tail.remove(TopicPartition(self._jobs, number))
            self._followed.remove(number)

    def followed(self) -> frozenset[int]:
        """Partitions whose ``jobs`` are followed."""
        return frozenset(self._followed)

    def entries(self) -> dict[int, list[Record]]:
        """What was appended to the followed partitions of ``jobs``; never waits."""
        found: dict[int, list[Record]] = {}
        if self._followed:
            for record in self._tail.poll(_TAIL_RECORDS, 0.0):
                found.setdefault(record.partition, []).append(record)
        return found
