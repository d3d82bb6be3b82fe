"""Watches what route decides by but does not consume: progress of work, published bucket plans.

One thread a process asks the brokers each second and hands readings over in queues; a lane's owner
thread takes them out and tells its core. Both are hints, so a broker that does not answer is logged
once and asked again, and nothing waits for it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from streamer.clock import Clock
from streamer.errors import Undecodable
from streamer.event.records import BucketPlan
from streamer.event.wire import decode_plan
from streamer.kafka_errors import error_of

_EVERY_S: Final = 1.0
_CALL_S: Final = 5.0
_READINGS_MAX: Final = 64
_PLANS_MAX: Final = 100
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """How far work is behind in each partition of a model's topic.

    Attributes:
        behind: partition -> end offset minus committed offset.
        read_ns: monotonic time before the reading began.
    """

    model: str
    behind: Mapping[int, int]
    read_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedLane:
    """Where to look for one lane.

    Attributes:
        group: consumer group of work.
        topics: work topic by model.
        partitions: of each of them.
    """

    lane: str
    group: str
    topics: Mapping[str, str]
    partitions: int


class RouteWatch:
    """The watching thread.

    Args:
        properties: client properties (bootstrap, security).
        lanes: where to look.
        plans_topic: topic of bucket plans.
        clock: source of time.
    """

    def __init__(
        self,
        *,
        properties: Mapping[str, Any],
        lanes: Sequence[WatchedLane],
        plans_topic: str,
        clock: Clock,
    ) -> None:
        self._properties = dict(properties)
        self._lanes = lanes
        self._plans_topic = plans_topic
        self._clock = clock
        self._news: dict[str, queue.Queue[Reading | BucketPlan]] = {
            one.lane: queue.Queue(maxsize=_READINGS_MAX) for one in lanes
        }
        self._stopping = threading.Event()
        self._silent = False
        self._thread = threading.Thread(target=self._run, name="route-watch", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._stopping.set()
        self._thread.join(_CALL_S + 1.0)

    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def news(self, lane: str) -> list[Reading | BucketPlan]:
        """What came in for this lane since the last call."""
        found = []
        while True:
            try:
                found.append(self._news[lane].get_nowait())
            except queue.Empty:
                return found

    def _run(self) -> None:
        admin = AdminClient(self._properties, logger=_log)
        plans = Consumer(
            {
                **self._properties,
                "group.id": "none",  # the client wants one; nothing is subscribed or committed
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            },
            logger=_log,
        )
        plans.assign([TopicPartition(self._plans_topic, 0, 0)])
        try:
            while not self._stopping.is_set():
                self._look(admin, plans)
                self._stopping.wait(_EVERY_S)
        finally:
            plans.close()

    def _look(self, admin: AdminClient, plans: Consumer) -> None:
        try:
            admin.poll(0)  # hands the client's log lines to our logger
            self._read_plans(plans)
            for lane in self._lanes:
                self._read_progress(admin, lane)
            self._silent = False
        except Exception as error:  # hints only: nothing here may end the thread
            if not self._silent:
                text = error_of(error).name() if isinstance(error, KafkaException) else ""
                _log.warning(
                    "progress of work is unknown",
                    extra={"error": text or type(error).__name__},
                )
            self._silent = True

    def _read_progress(self, admin: AdminClient, lane: WatchedLane) -> None:
        read_ns = self._clock.monotonic_ns()
        parts = [
            TopicPartition(topic, number)
            for topic in lane.topics.values()
            for number in range(lane.partitions)
        ]
        asked = ConsumerGroupTopicPartitions(lane.group, parts)
        groups = admin.list_consumer_group_offsets([asked], request_timeout=_CALL_S)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        ends = admin.list_offsets(dict.fromkeys(parts, latest), request_timeout=_CALL_S)
        found = groups[lane.group].result(_CALL_S).topic_partitions
        committed = {(one.topic, one.partition): max(0, one.offset) for one in found}
        for model, topic in lane.topics.items():
            behind = {
                part.partition: ends[part].result(_CALL_S).offset
                - committed.get((topic, part.partition), 0)
                for part in parts
                if part.topic == topic
            }
            self._tell(lane.lane, Reading(model, behind, read_ns))

    def _read_plans(self, plans: Consumer) -> None:
        for message in plans.consume(_PLANS_MAX, 0.05):
            if message.error() is not None or not message.value():
                continue
            try:
                plan = decode_plan(message.value())
            except Undecodable as error:
                _log.warning("a bucket plan cannot be read", extra={"code": error.code})
                continue
            if plan.lane in self._news:
                self._tell(plan.lane, plan)

    def _tell(self, lane: str, news: Reading | BucketPlan) -> None:
        try:
            self._news[lane].put_nowait(news)
        except queue.Full:
            # The owner thread is held up; newer readings follow and a plan is only a hint.
            _log.debug("news dropped", extra={"lane": lane})
