"""One transactional producer: the client object, its statistics and its delivery reports.

The client object lives from ``build`` to ``drop``; the transactional id outlives it. Statistics
are looked at only while a commit awaits its check, and searched for the EndTxn counts rather than
parsed (an idle ring of four costs a third of what parsing would).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from streamer.clock import Clock
from streamer.deadline import Deadline
from streamer.errors import (
    ProducerFenced,
    StreamerError,
    TransactionAborted,
    TransactionUnknown,
)
from streamer.event.lane import OffsetMark, OutRecord, TopicPartition
from streamer.kafka_errors import (
    before_commit,
    during_commit,
    error_of,
    is_resumable,
    is_unnamed,
    plain_errors,
)
from streamer.kafka_log import ClientLog

_END_TXN: Final = re.compile(r'"EndTxn": ?(\d+)')
_log = logging.getLogger(__name__)


class TransactionalProducer:
    """A producer under one transactional id, rebuilt as often as needed.

    Args:
        properties: client properties (bootstrap, security).
        transactional_id: stable per role, lane, slot and place in the ring.
        tick_ms: statistics interval.
        timeout_ms: transaction timeout on the broker.
        clock: source of time.
    """

    def __init__(
        self,
        *,
        properties: Mapping[str, Any],
        transactional_id: str,
        tick_ms: int,
        timeout_ms: int,
        clock: Clock,
    ) -> None:
        self.transactional_id = transactional_id
        self._config: dict[str, Any] = {
            "compression.type": "lz4",
            "linger.ms": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 1_000,
            "log_level": 4,  # warnings: broken connections are among them
            "message.max.bytes": 8 * 1_048_576,  # a local guard only; the topic's limit decides
            **properties,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "acks": "all",
            "enable.idempotence": True,
            # The first request of a transaction often meets the end of the one before and waits
            # this long: 100 ms (the default) would allow 12 transactions a second.
            "retry.backoff.ms": 5,
            "retry.backoff.max.ms": 1_000,
            "statistics.interval.ms": tick_ms,
            "stats_cb": self._on_statistics,
            # No error_cb: each call reports its own error, and broken connections are seen in the
            # log, where those appear too that the callback hides.
        }
        self._clock = clock
        self._client: Producer | None = None
        self._deliveries = _Deliveries()
        self._wanted: Callable[[int], None] | None = None
        self._disturbed = False
        self._client_log = ClientLog(_log, trouble=self._on_trouble, clock=clock)

    def build(self) -> None:
        """Make the client object; nothing is sent yet."""
        self._wanted = None
        self._disturbed = False
        self._client = Producer(self._config, logger=self._client_log)

    def initialise(self, timeout_s: float) -> None:
        """Fence older objects of this id and end their transaction.

        Raises:
            KafkaException: not initialised; resumable or not.
        """
        with plain_errors():
            self._required.init_transactions(timeout_s)

    def drop(self) -> None:
        """Forget the client object with all that it still holds."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(KafkaException, SystemError):  # a fatal error is no news now
                client.purge(in_queue=True, in_flight=True, blocking=False)
                client.poll(0)

    def serve(self, timeout_s: float) -> None:
        """Run callbacks: statistics, errors, delivery reports."""
        if self._client is None:
            return
        try:
            with plain_errors():
                self._client.poll(timeout_s)
        except KafkaException as error:
            # The next begin fails and the producer is rebuilt.
            self._disturbed = True
            _log.debug("producer is dead", extra={"error": error_of(error).name()})

    def took_disturbance(self) -> bool:
        """Whether a connection broke since the last call."""
        seen, self._disturbed = self._disturbed, False
        return seen

    def watch(self, wanted: Callable[[int], None]) -> None:
        """Pass the EndTxn count of statistics ticks made from now on to ``wanted``.

        Ticks made before are queued in the client: they are served first and thrown away. The
        commit call returned after its last request was counted, so a tick made now counts all.
        """
        self._wanted = None
        self.serve(0)
        self._wanted = wanted

    def unwatch(self) -> None:
        """Stop looking at statistics."""
        self._wanted = None

    def partition_count(self, topic: str, timeout_s: float) -> int:
        """Partitions of a topic, 0 when there is no such topic (and none is made by asking)."""
        known = self._required.list_topics(timeout=timeout_s).topics.get(topic)
        return 0 if known is None or known.error is not None else len(known.partitions)

    def begin(self) -> None:
        """Begin a transaction; local, nothing is sent."""
        try:
            self._required.begin_transaction()
        except KafkaException as error:
            raise before_commit(error) from error

    def produce(self, records: Sequence[OutRecord], deadline: Deadline) -> None:
        """Produce all and wait until every delivery report is good.

        Raises:
            TransactionAborted, ProducerFenced: not all arrived.
        """
        self._deliveries = deliveries = _Deliveries()
        try:
            with plain_errors():
                for record in records:
                    self._produce_one(record, deliveries, deadline)
                left = self._required.flush(deadline.remaining_s(self._clock.monotonic_ns()))
        except KafkaException as error:
            raise before_commit(self._named(error)) from error
        if deliveries.error is not None:
            raise before_commit(KafkaException(deliveries.error))
        if left or deliveries.good != len(records):
            raise TransactionAborted("not every delivery report came in time")

    def _produce_one(self, record: OutRecord, deliveries: _Deliveries, deadline: Deadline) -> None:
        client = self._required
        while True:
            try:
                client.produce(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    headers=list(record.headers.items()),
                    on_delivery=deliveries.report,
                )
            except BufferError:
                if deadline.passed(self._clock.monotonic_ns()):
                    raise TransactionAborted("the client's queue stayed full") from None
                client.poll(0.01)
            else:
                return

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetMark],
        group_metadata: object,
        deadline: Deadline,
    ) -> None:
        """Put the offsets into the transaction."""
        # The client takes no None for absent metadata, and "" is the same to the broker.
        marks = [
            ClientPartition(at.topic, at.partition, mark.offset, mark.metadata)
            for at, mark in offsets.items()
        ]
        try:
            with plain_errors():
                self._required.send_offsets_to_transaction(
                    marks, group_metadata, deadline.remaining_s(self._clock.monotonic_ns())
                )
        except KafkaException as error:
            raise before_commit(self._named(error)) from error

    def commit(self, deadline: Deadline) -> None:
        """Commit; a call that timed out is resumed until the deadline.

        Raises:
            TransactionAborted, TransactionUnknown, ProducerFenced: by what the client says.
        """
        while True:
            try:
                with plain_errors():
                    self._required.commit_transaction(
                        max(0.1, deadline.remaining_s(self._clock.monotonic_ns()))
                    )
            except KafkaException as error:
                if not is_resumable(error):
                    raise during_commit(self._named(error)) from error
                self._disturbed = True
                if deadline.passed(self._clock.monotonic_ns()):
                    raise TransactionUnknown(error_of(error).name()) from error
            else:
                return

    def abort(self, timeout_s: float) -> None:
        """Best effort: the successor's initialisation ends the transaction in any case.

        Raises:
            ProducerFenced: which the call that failed first may not have known.
        """
        try:
            with plain_errors():
                self._required.abort_transaction(timeout_s)
        except KafkaException as error:
            _log.info("abort failed", extra={"error": error_of(error).name()})
            remedy = before_commit(error)
            if isinstance(remedy, ProducerFenced):
                raise remedy from error

    @property
    def _required(self) -> Producer:
        if self._client is None:
            raise StreamerError("the producer is not built")
        return self._client

    def _named(self, error: KafkaException) -> KafkaException:
        """The real error where only the death of the client is known: any call repeats it."""
        if is_unnamed(error):
            try:
                self._required.begin_transaction()
            except KafkaException as real:
                return real
        return error

    def _on_trouble(self) -> None:
        self._disturbed = True

    def _on_statistics(self, text: str) -> None:
        wanted = self._wanted
        if wanted is not None:
            wanted(sum(map(int, _END_TXN.findall(text))))


class _Deliveries:
    """Counts the delivery reports of one transaction; the first error stays."""

    def __init__(self) -> None:
        self.good = 0
        self.error: KafkaError | None = None

    def report(self, error: KafkaError | None, message: Message) -> None:
        """One delivery report of the client."""
        if error is None:
            self.good += 1
        elif self.error is None:
            self.error = error
