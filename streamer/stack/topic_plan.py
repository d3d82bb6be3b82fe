"""The topic layout that the settings ask for; the one place that cuts this slice."""

from __future__ import annotations

from streamer.event.topic_rows import TopicLayout
from streamer.settings import Settings


def topic_layout(settings: Settings) -> TopicLayout:
    """Which topics these settings need."""
    kafka = settings.kafka
    return TopicLayout(
        prefix=kafka.prefix,
        models=tuple(sorted(settings.models)),
        partitions=kafka.partitions,
        replication=kafka.replication,
        min_insync=kafka.min_insync_replicas,
        retention_ms=kafka.retention_ms,
        request_bytes=settings.route.max_record_bytes,
    )
