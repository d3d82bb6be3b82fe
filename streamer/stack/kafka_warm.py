"""First use of a broker, paid before anybody waits for it."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from streamer.errors import BrokerUnreachable

WARM_UP_ID = "streamer-warm-up"


def warm_up(bootstrap: str, timeout_s: float = 60.0) -> None:
    """Make the broker create its transaction and offset topics (1 to 2 s the first time).

    Raises:
        BrokerUnreachable: it does not serve transactions in time.
    """
    quiet = {"bootstrap.servers": bootstrap, "log_level": 2}
    producer = Producer({**quiet, "transactional.id": WARM_UP_ID, "retry.backoff.ms": 10})
    consumer = Consumer({**quiet, "group.id": WARM_UP_ID, "enable.auto.commit": False})
    try:
        producer.init_transactions(timeout_s)
        consumer.committed([TopicPartition("__transaction_state", 0)], timeout=timeout_s)
    except KafkaException as error:
        reason = error.args[0].str()
        raise BrokerUnreachable(f"{bootstrap} does not serve transactions: {reason}") from None
    finally:
        consumer.close()
