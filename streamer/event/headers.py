"""Header names of our records; readers skip by them without decoding."""

from __future__ import annotations

from typing import Final

from streamer.errors import Undecodable
from streamer.event.lane import Headers

KIND: Final = "streamer-kind"  # request work result run completion reply job-state job dead-letter
CONTENT_TYPE: Final = "content-type"
JOB: Final = "streamer-job"
CARRIED: Final = "carried"
ORIGIN: Final = "streamer-origin"  # topic:partition:offset, set by redrive and replay
TRACEPARENT: Final = "traceparent"

_PLACE_CHARS_MAX: Final = 30  # ten digits of a partition, a colon, nineteen of an offset
_TOPIC_CHARS_MAX: Final = 249
_PARTITION_MAX: Final = (1 << 31) - 1
_OFFSET_MAX: Final = (1 << 63) - 1

AVRO: Final = b"avro/binary"
JSON: Final = b"application/json"


def origin_from(headers: Headers, default: tuple[str, int, int]) -> tuple[str, int, int]:
    """Where the item first came in: the origin header, else ``default`` (topic, partition, offset).

    Raises:
        Undecodable: the header is there and garbled.
    """
    raw = headers.get(ORIGIN)
    if raw is None:
        return default
    topic, _, place = raw.decode("ascii", errors="replace").partition(":")
    partition, _, offset = place.partition(":")
    numbers = partition.isdecimal() and offset.isdecimal() and len(place) <= _PLACE_CHARS_MAX
    if not 0 < len(topic) <= _TOPIC_CHARS_MAX or not numbers:
        raise Undecodable("corrupt_record", f"header {ORIGIN} is not topic:partition:offset")
    if int(partition) > _PARTITION_MAX or int(offset) > _OFFSET_MAX:
        raise Undecodable("corrupt_record", f"header {ORIGIN} names no place that can exist")
    return topic, int(partition), int(offset)
