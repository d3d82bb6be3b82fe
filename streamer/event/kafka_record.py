"""A message of the client as a record of ours."""

from __future__ import annotations

from confluent_kafka import Message

from streamer.event.lane import Record, TopicPartition


def at_of(message: Message) -> TopicPartition:
    """Where a message was read."""
    return TopicPartition(message.topic() or "", message.partition() or 0)


def record_of(message: Message) -> Record:
    """Copy what readers need; a header that comes twice keeps its last value."""
    at = at_of(message)
    return Record(
        topic=at.topic,
        partition=at.partition,
        offset=message.offset() or 0,
        timestamp_ms=message.timestamp()[1],
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers={
            name: _bytes(value) or b"" for name, value in dict(message.headers() or ()).items()
        },
    )


def _bytes(raw: str | bytes | None) -> bytes | None:
    return raw.encode() if isinstance(raw, str) else raw
