"""Refuses to start on topics whose partition counts are not those of the settings.

Whoever writes a keyed record counts with ``kafka.partitions``. With another number a job's results
would go where nobody looks for them, so every role asks before it reads anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streamer.errors import BrokerUnreachable, ConfigurationError
from streamer.kafka_errors import error_of
from streamer.settings import Settings, client_properties

_METADATA_S: Final = 15.0


def check_partitions(
    settings: Settings, topics: Iterable[str], *, may_be_missing: bool = False
) -> None:
    """Make sure that these topics are there, with the partitions of the settings.

    Args:
        settings: name the cluster and the number.
        topics: to look at.
        may_be_missing: such a topic may be made later.

    Raises:
        ConfigurationError: with the topic and both numbers.
        BrokerUnreachable: nobody answered.
    """
    kafka = settings.kafka
    admin = AdminClient(client_properties(kafka))
    try:
        found = admin.list_topics(timeout=_METADATA_S).topics
    except KafkaException as error:
        raise BrokerUnreachable(
            f"no answer from {kafka.bootstrap}: {error_of(error).name()}"
        ) from None
    for name in topics:
        if name not in found or found[name].error is not None:
            if may_be_missing:
                continue
            raise ConfigurationError(f"topic {name} is missing: run `streamer topics apply`")
        count = len(found[name].partitions)
        if count != kafka.partitions:
            raise ConfigurationError(
                f"topic {name} has {count} partitions and kafka.partitions is {kafka.partitions}: "
                "partition counts are fixed when topics are made"
            )
