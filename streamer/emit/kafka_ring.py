"""Transactional producers used in turn: carries out one emission plan at a time, exactly once.

The order inside a transaction is part of the proof: produce all, flush, check every delivery
report, then offsets, then commit. What may happen next to which producer is decided by the table in
``ring.py``; here the calls are made. Keeps the invariant *cover*: no record leaves without the
offsets that cover it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from confluent_kafka import KafkaException

from streamer.clock import Clock
from streamer.deadline import Deadline
from streamer.emit.kafka_producer import TransactionalProducer
from streamer.emit.kafka_targets import Targets
from streamer.emit.ring import FenceRule, Ring
from streamer.errors import (
    BrokerUnreachable,
    ProducerFenced,
    StreamerError,
    TransactionAborted,
    TransactionUnknown,
)
from streamer.event.lane import EmitPlan
from streamer.kafka_errors import during_init, error_of, is_resumable

_INIT_S: Final = 5.0
_ASK_S: Final = 5.0
_BACKOFF_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_IDLE_TICK_S: Final = 0.25
_log = logging.getLogger(__name__)


class Outcome(Enum):
    """How an emission ended. Whatever but COMMITTED: rewind to the committed offsets."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True, kw_only=True)
class RingLimits:
    """Size and pace of a ring.

    Attributes:
        producers: how many are used in turn.
        tick_ms: statistics interval; a producer begins again one tick after its commit.
        transaction_timeout_ms: the broker ends an older transaction.
        partitions_max: output partitions one transaction may touch.
        missing_topic_ms: how long a target may be unknown: metadata of a new topic lags behind.
    """

    producers: int
    tick_ms: int
    transaction_timeout_ms: int
    partitions_max: int = 16
    missing_topic_ms: int = 5_000

    @classmethod
    def for_lane(cls, lane: str) -> RingLimits:
        """Fast: 4 producers, 20 ms, 3 s. Bulk: 2 producers, 100 ms, 10 s."""
        if lane == "fast":
            return cls(producers=4, tick_ms=20, transaction_timeout_ms=3_000)
        return cls(producers=2, tick_ms=100, transaction_timeout_ms=10_000)


def _no_crash(point: str) -> None:
    del point


class ProducerRing:
    """The only writer of a lane. Used from one thread at a time, ``close`` excepted.

    Args:
        properties: client properties (bootstrap, security).
        id_prefix: transactional ids are ``{id_prefix}-{k}``, e.g. ``streamer-work-bulk-0``.
        limits: size and pace.
        clock: source of time.
        crash: called with the names of crash points (tests); does nothing by default.
        rebuilt: told the cause of every rebuild (metrics).
    """

    def __init__(
        self,
        *,
        properties: Mapping[str, Any],
        id_prefix: str,
        limits: RingLimits,
        clock: Clock,
        crash: Callable[[str], None] = _no_crash,
        rebuilt: Callable[[str], None] = _no_crash,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._crash = crash
        self._tell_rebuilt = rebuilt
        self._ring = Ring(limits.producers)
        self._fence = FenceRule(timeout_ns=limits.transaction_timeout_ms * 1_000_000)
        self._closing = threading.Event()
        self._rebuilding = False
        self._producers = [
            TransactionalProducer(
                properties=properties,
                transactional_id=f"{id_prefix}-{k}",
                tick_ms=limits.tick_ms,
                timeout_ms=limits.transaction_timeout_ms,
                clock=clock,
            )
            for k in range(limits.producers)
        ]
        self._targets = Targets(
            ask=lambda topic: self._producers[0].partition_count(topic, _ASK_S),
            missing_ms=limits.missing_topic_ms,
            closing=self._closing,
            clock=clock,
        )

    @property
    def is_rebuilding(self) -> bool:
        """Whether a producer is being built anew: that may take as long as an outage."""
        return self._rebuilding

    def start(self, deadline: Deadline) -> None:
        """Build and initialise every producer; must be done before the first consume.

        Raises:
            BrokerUnreachable: not done by the deadline.
            ConfigurationError: the cluster refuses this client.
            ProducerFenced: another process with the same slot is starting as well.
        """
        for index in self._ring.to_rebuild():
            if not self._rebuild(index, deadline):
                raise BrokerUnreachable("no transactional producer could be initialised in time")

    def emit(self, plan: EmitPlan, group_metadata: object) -> Outcome:
        """One transaction: produce, flush, check deliveries, offsets, commit.

        Returns after the outcome is known as far as it can be: after anything but a commit the
        producer is already rebuilt, so that the committed offsets tell the truth.

        Raises:
            ConfigurationError: a target topic or partition does not exist.
            ProducerFenced: a rival holds our id.
        """
        if not plan.offsets:
            raise AssertionError("a transaction without offsets is not fenced by the group")
        targets = {record.at for record in plan.records}
        if len(targets) > self._limits.partitions_max:
            raise AssertionError(f"the plan touches {len(targets)} partitions")
        index = self._acquire()
        if index is None or not self._targets.exist(targets):
            return Outcome.ABORTED
        began_ns = self._clock.monotonic_ns()
        self._ring.begin(index)
        try:
            self._transact(self._producers[index], plan, group_metadata, began_ns)
        except (TransactionAborted, TransactionUnknown, ProducerFenced) as error:
            return self._failed(index, error, began_ns)
        self._ring.committed(index)
        self._producers[index].watch(lambda count: self._ring.tick(index, count))
        return Outcome.COMMITTED

    def tick(self) -> float:
        """Serve statistics, rebuild what is dirty; returns seconds until the next call is due."""
        self._serve(0.0)
        dirty = self._ring.to_rebuild()
        if dirty:
            self._rebuild(dirty[0], Deadline.after(self._clock.monotonic_ns(), 1_000 * _INIT_S))
        return self._limits.tick_ms / 1_000 if self._ring.awaiting() else _IDLE_TICK_S

    def close(self) -> None:
        """Give up waiting, in whatever thread that is; nothing can be emitted afterwards."""
        self._closing.set()

    def drop(self) -> None:
        """Forget the client objects; after the emitting thread has ended."""
        self._closing.set()
        for producer in self._producers:
            producer.drop()

    def _transact(
        self, producer: TransactionalProducer, plan: EmitPlan, metadata: object, began_ns: int
    ) -> None:
        # Half of the timeout for records and offsets: a commit is never begun on a transaction
        # that the broker is about to end.
        deadline = Deadline.after(began_ns, self._limits.transaction_timeout_ms / 2)
        crash = self._crash if plan.records else _no_crash
        crash("before_produce")
        producer.begin()
        producer.produce(plan.records, deadline)
        crash("after_produce")
        producer.send_offsets(plan.offsets, metadata, deadline)
        crash("after_offsets")
        crash("before_commit")
        crash("in_commit")
        producer.commit(Deadline.after(began_ns, self._limits.transaction_timeout_ms))
        crash("after_commit")

    def _failed(self, index: int, error: StreamerError, began_ns: int) -> Outcome:
        producer, now_ns = self._producers[index], self._clock.monotonic_ns()
        _log.warning(
            "transaction failed",
            extra={"producer": producer.transactional_id, "error": str(error)},
        )
        if isinstance(error, TransactionAborted):
            try:
                producer.abort(1.0)
            except ProducerFenced as fenced:
                error = fenced
        if isinstance(error, TransactionAborted):
            self._ring.aborted(index)
            outcome = Outcome.ABORTED
        else:
            self._ring.unknown(index)
            outcome = Outcome.UNKNOWN
        if isinstance(error, ProducerFenced):
            if self._fence.must_stop(began_ns=began_ns, now_ns=now_ns):
                raise ProducerFenced(
                    f"another process holds {producer.transactional_id}: give each its own slot"
                ) from error
            outcome = Outcome.FENCED
        while not self._closing.is_set():
            deadline = Deadline.after(self._clock.monotonic_ns(), 1_000 * _INIT_S)
            if self._rebuild(index, deadline, cause=outcome.value):
                break
        return outcome

    def _acquire(self) -> int | None:
        """A producer that may begin: rebuilds one, or waits for a tick; None when closing."""
        while not self._closing.is_set():
            self._serve(0.0)
            index = self._ring.pick()
            if index is not None:
                return index
            awaiting, dirty = self._ring.awaiting(), self._ring.to_rebuild()
            if dirty:
                deadline = Deadline.after(self._clock.monotonic_ns(), 1_000 * _INIT_S)
                self._rebuild(dirty[0], deadline)
            else:
                self._producers[awaiting[0]].serve(self._limits.tick_ms / 1_000)
        return None

    def _serve(self, timeout_s: float) -> None:
        for index, producer in enumerate(self._producers):
            producer.serve(timeout_s)
            if producer.took_disturbance():
                self._ring.disturbed(index)

    def _rebuild(self, index: int, deadline: Deadline, *, cause: str = "") -> bool:
        """Drop, build, initialise; tried again until the deadline."""
        cause = cause or self._ring.state(index).value
        self._rebuilding = True
        try:
            is_built = self._build(self._producers[index], deadline)
        finally:
            self._rebuilding = False
        if is_built:
            self._ring.rebuilt(index)
            self._tell_rebuilt(cause)
        return is_built

    def _build(self, producer: TransactionalProducer, deadline: Deadline) -> bool:
        attempt = 0
        while not self._closing.is_set():
            producer.drop()
            producer.build()
            if self._initialise(producer, deadline):
                producer.took_disturbance()
                return True
            if deadline.passed(self._clock.monotonic_ns()):
                return False
            self._closing.wait(_BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)])
            attempt += 1
        return False

    def _initialise(self, producer: TransactionalProducer, deadline: Deadline) -> bool:
        while not self._closing.is_set():
            left_s = deadline.remaining_s(self._clock.monotonic_ns())
            try:
                producer.initialise(max(0.1, min(_INIT_S, left_s)))
            except KafkaException as error:
                remedy = during_init(error)
                if remedy is not None:
                    raise remedy from error
                _log.warning("initialising failed", extra={"error": error_of(error).name()})
                if not is_resumable(error) or left_s <= 0:
                    return False
            else:
                return True
        return False
