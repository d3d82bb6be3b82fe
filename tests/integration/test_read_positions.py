"""How far a partition is read, also where nothing but markers follows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from streamer.batch.kafka_consumer import SourceLimits
from streamer.batch.kafka_source import KafkaSource
from streamer.event.lane import Assignment, Record, TopicPartition
from tests.support.kafka_server import Topics
from tests.support.passing import CLOCK, wait_until

pytestmark = pytest.mark.integration


class _Hooks:
    def __init__(self) -> None:
        self.given: list[Assignment] = []

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        self.given += assignments

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        pass

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        pass


class _Reading:
    """A source and what it gave out."""

    def __init__(self, kafka: str, topic: str, group: str, protocol: str = "classic") -> None:
        self.hooks = _Hooks()
        self.records: list[Record] = []
        self.source = KafkaSource(
            properties={"bootstrap.servers": kafka}, group=group, topics=[topic],
            limits=SourceLimits.for_lane("fast", tell_ends=True, protocol=protocol), clock=CLOCK,
        )  # fmt: skip
        self.source.start(self.hooks)

    def position(self, at: TopicPartition) -> int:
        """One more poll, then how far it says it has read."""
        self.records += self.source.poll(1_000, 0.05)
        return self.source.positions().get(at, -1)


@pytest.fixture
def sources() -> Iterator[list[KafkaSource]]:
    made: list[KafkaSource] = []
    yield made
    for source in made:
        source.close()


def _transaction(kafka: str, name: str, topic: str, values: Sequence[bytes], *, keep: bool) -> None:
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": name})
    producer.init_transactions(20)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(20)
    if keep:
        producer.commit_transaction(20)
    else:
        producer.abort_transaction(20)


def _commit(kafka: str, group: str, topic: str, offset: int) -> None:
    asked = ConsumerGroupTopicPartitions(group, [ClientPartition(topic, 0, offset)])
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.alter_consumer_group_offsets([asked])[group].result(20)


def test_a_partition_where_only_markers_follow_is_read_to_its_end(
    kafka: str, prefix: str, topics: Topics, sources: list[KafkaSource]
) -> None:
    topic, group = topics.create("in", 1), f"{prefix}group"
    at = TopicPartition(topic, 0)
    _transaction(kafka, f"{prefix}a", topic, [b"1"], keep=True)  # 0, marker 1
    _transaction(kafka, f"{prefix}b", topic, [b"2", b"3"], keep=False)  # 2, 3, marker 4
    _commit(kafka, group, topic, 1)
    reading = _Reading(kafka, topic, group)
    sources.append(reading.source)

    wait_until(lambda: reading.position(at) == 5, 20, "the end of the partition")

    assert reading.records == []
    _transaction(kafka, f"{prefix}a", topic, [], keep=True)
    _transaction(kafka, f"{prefix}b", topic, [b"4"], keep=False)  # 5, marker 6
    wait_until(lambda: reading.position(at) == 7, 20, "the new end")


def test_after_a_rewind_no_position_is_told_before_its_records(
    kafka: str, prefix: str, topics: Topics, sources: list[KafkaSource]
) -> None:
    topic, group = topics.create("in", 1), f"{prefix}group"
    at = TopicPartition(topic, 0)
    count = 3_000
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    producer.flush(20)
    reading = _Reading(kafka, topic, group)
    sources.append(reading.source)
    wait_until(lambda: reading.position(at) == count)

    for _ in range(5):
        reading.records.clear()
        reading.source.rewind([at])

        def in_step() -> bool:
            position = reading.position(at)
            assert position <= len(reading.records), "told before it was read"
            return position == count

        wait_until(in_step)
        assert [record.offset for record in reading.records] == list(range(count))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_gets_no_partition_has_joined_too(
    kafka: str, prefix: str, topics: Topics, sources: list[KafkaSource], protocol: str
) -> None:
    topic, group = topics.create("in", 1), f"{prefix}group"
    readings = [_Reading(kafka, topic, group, protocol) for _ in range(2)]
    sources += [reading.source for reading in readings]
    assert not any(reading.source.joined() for reading in readings)

    def all_joined() -> bool:
        for reading in readings:
            reading.source.poll(10, 0.05)
        return all(reading.source.joined() for reading in readings)

    wait_until(all_joined, 30)

    assert sum(len(reading.source.owned()) for reading in readings) == 1
