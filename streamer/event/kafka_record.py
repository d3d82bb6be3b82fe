"""A message of the client as a record of ours."""

from __future__ import annotations

from confluent_kafka import Message

from streamer.event.lane import Record


def record_of(message: Message) -> Record:
    """Copy what readers need; a header that comes twice keeps its last value."""
    return Record(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers={name: value or b"" for name, value in message.headers() or ()},
    )
