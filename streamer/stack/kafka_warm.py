"""First use of a broker, paid before anybody waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from streamer.errors import BrokerUnreachable

WARM_UP_ID = "streamer-warm-up"
CALL_TIMEOUT_S = 10.0


def warm_up(
    bootstrap: str, timeout_s: float = 60.0, properties: Mapping[str, Any] | None = None
) -> None:
    """Make the broker create its transaction and offset topics (1 to 2 s the first time).

    Args:
        bootstrap: addresses of the cluster.
        timeout_s: for all of it.
        properties: further client properties, e.g. for SASL.

    Raises:
        BrokerUnreachable: nothing answers in 10 s, or it does not serve transactions in time.
    """
    quiet = {**(properties or {}), "bootstrap.servers": bootstrap, "log_level": 2}
    _reach(bootstrap, quiet)
    producer = Producer({**quiet, "transactional.id": WARM_UP_ID, "retry.backoff.ms": 10})
    consumer = Consumer({**quiet, "group.id": WARM_UP_ID, "enable.auto.commit": False})
    place = [TopicPartition("__transaction_state", 0)]
    end_at = time.monotonic() + timeout_s
    try:
        _insist(lambda: producer.init_transactions(CALL_TIMEOUT_S), bootstrap, end_at)
        _insist(lambda: consumer.committed(place, timeout=CALL_TIMEOUT_S), bootstrap, end_at)
    finally:
        consumer.close()


def _reach(bootstrap: str, client: Mapping[str, Any]) -> None:
    """A wrong address is told within seconds."""
    try:
        AdminClient(dict(client)).list_topics(timeout=CALL_TIMEOUT_S)
    except KafkaException as error:
        raise BrokerUnreachable(f"{bootstrap} does not answer: {error.args[0].str()}") from None


def _insist(call: Callable[[], object], bootstrap: str, end_at: float) -> None:
    """Repeat a call: coordinators that are being elected refuse it for a moment."""
    while True:
        try:
            call()
        except KafkaException as error:
            if error.args[0].fatal() or time.monotonic() >= end_at:
                reason = error.args[0].str()
                message = f"{bootstrap} does not serve transactions: {reason}"
                raise BrokerUnreachable(message) from None
            time.sleep(0.05)
        else:
            return
