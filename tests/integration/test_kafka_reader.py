"""Reading to the end although markers trail, transactions abort and partitions are empty."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from streamer.deadline import Deadline
from streamer.emit.kafka_reader import Bounds, PartitionReader, bounds, read_up
from streamer.errors import BrokerUnreachable, ConfigurationError
from streamer.event.lane import Record, TopicPartition
from tests.support.kafka_server import Topics
from tests.support.passing import CLOCK, wait_until

pytestmark = pytest.mark.integration


def soon(ms: int = 10_000) -> Deadline:
    return Deadline.after(CLOCK.monotonic_ns(), ms)


def writer(kafka: str, name: str, **config: int) -> Producer:
    producer = Producer(
        {"bootstrap.servers": kafka, "transactional.id": name, "retry.backoff.ms": 5, **config}
    )
    producer.init_transactions(20)
    return producer


def write(producer: Producer, topic: str, values: list[bytes], end: str) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0, headers={"h": b"x"})
    producer.flush(10)
    if end == "commit":
        producer.commit_transaction(10)
    elif end == "abort":
        producer.abort_transaction(10)


def read(
    kafka: str, starts: Mapping[TopicPartition, int], ms: int = 10_000, *, committed: bool = True
) -> list[Record]:
    chunks = read_up(
        {"bootstrap.servers": kafka},
        starts,
        deadline=soon(ms),
        clock=CLOCK,
        committed=committed,
    )
    return [record for chunk in chunks for record in chunk]


def test_the_end_is_found_behind_markers_and_aborted_records(
    kafka: str, prefix: str, topics: Topics
) -> None:
    topic = topics.create("t", 3)
    producer = writer(kafka, prefix)
    write(producer, topic, [b"a", b"b"], "commit")
    write(producer, topic, [b"x", b"y"], "abort")
    write(producer, topic, [b"c"], "commit")
    write(producer, topic, [b"z"], "abort")
    starts = {TopicPartition(topic, partition): 0 for partition in range(3)}

    committed = read(kafka, starts)
    everything = read(kafka, starts, committed=False)

    assert [record.value for record in committed] == [b"a", b"b", b"c"]
    assert [record.offset for record in committed] == [0, 1, 6]
    assert committed[0].headers == {"h": b"x"}
    assert [record.value for record in everything] == [b"a", b"b", b"x", b"y", b"c", b"z"]
    found = bounds({"bootstrap.servers": kafka}, starts, deadline=soon(), clock=CLOCK)
    assert list(found.values()) == [Bounds(0, 10), Bounds(0, 0), Bounds(0, 0)]


def test_an_open_transaction_holds_the_end_back_until_it_times_out(
    kafka: str, prefix: str, topics: Topics
) -> None:
    topic = topics.create("t", 1)
    at = TopicPartition(topic, 0)
    write(writer(kafka, f"{prefix}1"), topic, [b"a"], "commit")
    dying = writer(kafka, f"{prefix}2", **{"transaction.timeout.ms": 2_500})
    write(dying, topic, [b"open"], "leave")

    with pytest.raises(BrokerUnreachable, match="in time"):
        read(kafka, {at: 0}, 500)

    assert [record.value for record in read(kafka, {at: 0}, 12_000)] == [b"a"]


def test_reading_starts_at_the_log_when_older_records_are_gone(
    kafka: str, prefix: str, topics: Topics
) -> None:
    topic = topics.create("t", 1)
    write(writer(kafka, prefix), topic, [b"%d" % n for n in range(6)], "commit")
    gone = ClientPartition(topic, 0, 4)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_records([gone])[gone].result(10)

    assert [r.value for r in read(kafka, {TopicPartition(topic, 0): 0})] == [b"4", b"5"]


def test_a_follower_goes_on_and_knows_its_position_on_a_quiet_partition(
    kafka: str, prefix: str, topics: Topics
) -> None:
    topic = topics.create("t", 2)
    busy, quiet = TopicPartition(topic, 0), TopicPartition(topic, 1)
    producer = writer(kafka, prefix)
    write(producer, topic, [b"a"], "commit")
    reader = PartitionReader({"bootstrap.servers": kafka})
    reader.start({busy: 0})
    seen: list[bytes | None] = []

    def take() -> None:
        seen.extend(record.value for record in reader.poll(10, 0.05))

    try:
        wait_until(lambda: take() or reader.position(busy) == 2, what="past the marker")
        reader.add(quiet, 0)
        write(producer, topic, [b"b"], "commit")
        wait_until(lambda: take() or reader.position(busy) == 4)
        assert reader.position(quiet) == 0
        reader.remove(busy)
        write(producer, topic, [b"c"], "commit")
        take()
    finally:
        reader.close()

    assert seen == [b"a", b"b"]


def test_missing_topics_and_silent_brokers_are_told_apart(kafka: str, prefix: str) -> None:
    missing = [TopicPartition(f"{prefix}missing", 0)]

    with pytest.raises(ConfigurationError, match="missing"):
        bounds({"bootstrap.servers": kafka}, missing, deadline=soon(), clock=CLOCK)
    with pytest.raises(BrokerUnreachable):
        bounds({"bootstrap.servers": "127.0.0.1:1"}, missing, deadline=soon(100), clock=CLOCK)
