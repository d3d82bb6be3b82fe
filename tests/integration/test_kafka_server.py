"""The broker of our own: it serves transactions, and keeps its data over a kill."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.kafka_server import Topics

pytestmark = pytest.mark.integration


def test_only_committed_records_are_read(kafka: str, topics: Topics) -> None:
    topic = topics.create("numbers")
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(10)
    for value, commit in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(10)
        if commit:
            producer.commit_transaction(10)
        else:
            producer.abort_transaction(10)

    consumer = Consumer(
        {"bootstrap.servers": kafka, "group.id": topic, "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(10)
    consumer.close()

    assert message is not None
    assert message.value() == b"committed"
