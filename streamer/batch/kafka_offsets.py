"""Asks the brokers where partitions start: committed offsets, where needed the log's start."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from streamer.batch.placement import Held, Placed, place
from streamer.event.lane import TopicPartition
from streamer.kafka_errors import error_of

_BOUNDS_S: Final = 5.0


def placements(
    consumer: Consumer,
    partitions: Collection[TopicPartition],
    timeout_s: float,
    *,
    check_start: bool = False,
) -> dict[TopicPartition, Placed | Held]:
    """Where each partition starts.

    The committed offsets are stable ones: while some transaction holds pending offsets of a
    partition the answer waits, and when the time is over the partition comes back held, to be
    asked about again.

    Args:
        consumer: member of the group.
        partitions: to place.
        timeout_s: for the committed offsets.
        check_start: ask for the start of the log also where an offset is committed.
    """
    asked = [ClientPartition(at.topic, at.partition) for at in partitions]
    if not asked:
        return {}
    try:
        answers = consumer.committed(asked, timeout=timeout_s)
    except KafkaException as error:
        reason = f"committed offset not known: {error_of(error).name()}"
        return {at: Held(reason) for at in partitions}
    return {
        TopicPartition(answer.topic, answer.partition): _place(consumer, answer, check_start)
        for answer in answers
    }


def starts_of(found: Mapping[TopicPartition, Placed | Held]) -> list[ClientPartition]:
    """Where the client begins: a held partition at its end, so that it fetches nothing old."""
    return [
        ClientPartition(at.topic, at.partition, p.offset if isinstance(p, Placed) else OFFSET_END)
        for at, p in found.items()
    ]


def _place(consumer: Consumer, answer: ClientPartition, check_start: bool) -> Placed | Held:
    if answer.error is not None:
        return Held(f"committed offset not known: {answer.error.name()}")
    committed = answer.offset if answer.offset >= 0 else None
    log_start = None
    if committed is None or check_start:
        try:
            log_start, _ = consumer.get_watermark_offsets(answer, timeout=_BOUNDS_S)
        except KafkaException as error:
            return Held(f"start of the log not known: {error_of(error).name()}")
    return place(committed=committed, metadata=answer.metadata or "", log_start=log_start)
