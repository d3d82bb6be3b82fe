"""Checks that a transaction's targets exist, before it begins.

A transaction to a wrong partition of an existing topic aborts every time, one to a missing topic
blocks for half a minute an attempt: both would be tried again for ever.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from confluent_kafka import KafkaException

from streamer.clock import Clock
from streamer.deadline import Deadline
from streamer.errors import ConfigurationError
from streamer.event.lane import TopicPartition
from streamer.kafka_errors import error_of

_log = logging.getLogger(__name__)


class Targets:
    """Partition counts by topic, asked for once.

    Args:
        ask: partitions of a topic, 0 when there is no such topic.
        missing_ms: how long a target may be unknown: metadata of a new topic lags behind.
        closing: ends all waiting.
        clock: source of time.
    """

    def __init__(
        self,
        *,
        ask: Callable[[str], int],
        missing_ms: int,
        closing: threading.Event,
        clock: Clock,
    ) -> None:
        self._ask = ask
        self._missing_ms = missing_ms
        self._closing = closing
        self._clock = clock
        self._counts: dict[str, int] = {}

    def exist(self, targets: Collection[TopicPartition]) -> bool:
        """True; False only when closing.

        Raises:
            ConfigurationError: a topic or partition does not exist.
        """
        deadline = Deadline.after(self._clock.monotonic_ns(), self._missing_ms)
        return all(self._known(at) or self._found(at, deadline) for at in targets)

    def _known(self, at: TopicPartition) -> bool:
        return 0 <= at.partition < self._counts.get(at.topic, 0)

    def _found(self, at: TopicPartition, deadline: Deadline) -> bool:
        while not self._closing.is_set():
            try:
                self._counts[at.topic] = self._ask(at.topic)
            except KafkaException as error:
                # Unreachable is not missing: this may last as long as it likes.
                _log.warning("no metadata", extra={"error": error_of(error).name()})
                self._closing.wait(0.5)
                continue
            if self._known(at):
                return True
            if deadline.passed(self._clock.monotonic_ns()):
                raise ConfigurationError(
                    f"topic {at.topic} has {self._counts[at.topic]} partitions, so partition "
                    f"{at.partition} cannot be written: see `streamer topics check`"
                )
            self._closing.wait(0.2)
        return False
