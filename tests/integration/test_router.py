"""Route as a process of its own parts on a real broker: requests in, committed records out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from streamer.clock import SystemClock
from streamer.deadline import Deadline
from streamer.event.kafka_topics import apply_topics, wanted_topics
from streamer.event.records import BucketPlan
from streamer.event.topic_rows import TopicLayout
from streamer.event.topics import TopicNames
from streamer.event.wire import (
    decode_dead_letter,
    decode_job,
    decode_result,
    decode_work,
    encode_plan,
)
from streamer.process.engines import model_files
from streamer.process.lane_loop import LaneLoop
from streamer.process.route_watch import RouteWatch
from streamer.process.router import _lane, _watch, routed_topics
from streamer.process.runtime import ProcessContext
from streamer.process.topic_counts import check_partitions
from streamer.settings import Settings, load_settings
from streamer.telemetry.prometheus_metrics import Metrics

pytestmark = pytest.mark.integration
PARTITIONS = 4
WAIT_S = 30.0


@pytest.fixture
def settings(kafka: str, prefix: str, tmp_path: Path) -> Settings:
    found = load_settings(
        kafka={"bootstrap": kafka, "prefix": prefix, "group_prefix": f"{prefix}streamer-",
               "partitions": PARTITIONS},
        models={"fake": {"engine": "fake"}},
        state_dir=tmp_path,
    )  # fmt: skip
    layout = TopicLayout(
        prefix=prefix, models=("fake",), partitions=PARTITIONS, replication=1, min_insync=1,
        retention_ms=3_600_000, request_bytes=4 << 20,
    )  # fmt: skip
    apply_topics({"bootstrap.servers": kafka}, wanted_topics(layout))
    return found


class Running:
    """A started router in this process."""

    def __init__(self, settings: Settings, lanes: list[str], slot: int = 0) -> None:
        context = ProcessContext(
            settings=settings, role="route", slot=slot, clock=SystemClock(),
            metrics=Metrics(role="route", slot=slot, version="0"),
        )  # fmt: skip
        files = {slug: model_files(slug, model) for slug, model in settings.models.items()}
        names = TopicNames(settings.kafka.prefix)
        check_partitions(settings, routed_topics(names, lanes, settings.models))
        self.watch: RouteWatch = _watch(context, lanes)
        self.watch.start()
        self.loops: list[LaneLoop] = [_lane(context, lane, files, self.watch) for lane in lanes]
        for loop in self.loops:
            loop.start()

    def stop(self) -> None:
        clock = SystemClock()
        for loop in self.loops:
            assert loop.stop(Deadline.after(clock.monotonic_ns(), 10_000))
            assert loop.failure is None
        self.watch.close()


@pytest.fixture
def router(settings: Settings) -> Iterator[Running]:
    running = Running(settings, ["fast", "bulk"])
    yield running
    running.stop()


def _send(bootstrap: str, topic: str, values: list[Any]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for at, value in enumerate(values):
        raw = value if isinstance(value, bytes) else orjson.dumps(value)
        producer.produce(topic, raw, partition=at % PARTITIONS)
    assert producer.flush(15) == 0


def _read(bootstrap: str, topic: str, enough: Any) -> list[Message]:
    """Committed records of a topic from its start, until ``enough`` of them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x",
                         "isolation.level": "read_committed",
                         "enable.auto.commit": False})  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[Message] = []
    end = time.monotonic() + WAIT_S
    while not enough(found) and time.monotonic() < end:
        found += [one for one in consumer.consume(500, 0.1) if one.error() is None]
    consumer.close()
    assert enough(found), f"{len(found)} records of {topic}"
    return found


def _items(messages: list[Message]) -> int:
    return sum(len(decode_work(one.value()).items) for one in messages)


def test_a_job_is_grouped_spread_and_announced_once(
    kafka: str, settings: Settings, router: Running
) -> None:
    names, count = TopicNames(settings.kafka.prefix), 3_000
    _send(kafka, names.requests("bulk"), [
        {"job_id": "j", "index": i, "total": count, "model": "fake", "input": "w " * (1 + i % 90)}
        for i in range(count)
    ])  # fmt: skip

    work = _read(kafka, names.work("fake", "bulk"), lambda found: _items(found) >= count)

    records = [decode_work(one.value()) for one in work]
    indexes = sorted(i for record in records for i in record.items.index.tolist())
    assert indexes == list(range(count))
    assert {one.partition() for one in work} == set(range(PARTITIONS))
    assert len(records) < count / 8
    seen = _read(kafka, names.jobs("bulk"), lambda found: len(found) >= 1)
    entry = decode_job(seen[0].value())
    assert (entry.job_id, entry.kind, entry.total) == ("j", "seen", count)
    assert len(seen) == 1


def test_fast_requests_bad_input_and_dead_letters_go_their_ways(
    kafka: str, settings: Settings, router: Running
) -> None:
    names = TopicNames(settings.kafka.prefix)
    _send(kafka, names.requests("fast"), [
        {"custom_id": "good", "model": "fake", "input": "hello you"},
        {"custom_id": "bad", "model": "nope", "input": "hello"},
        b"{broken",
        {"job_id": "j", "index": 0, "model": "fake", "input": ""},
    ])  # fmt: skip

    (work,) = _read(kafka, names.work("fake", "fast"), lambda found: len(found) >= 1)
    (reply,) = _read(kafka, names.replies("fast"), lambda found: len(found) >= 1)
    (letter,) = _read(kafka, names.dead_letters("fast"), lambda found: len(found) >= 1)
    (result,) = _read(kafka, names.results("fast"), lambda found: len(found) >= 1)

    assert decode_work(work.value()).items.custom_id == ["good"]
    assert orjson.loads(reply.value())["error"]["code"] == "unknown_model"
    dead = decode_dead_letter(letter.value())
    assert (dead.partition, dead.offset, dead.value) == (2, 0, b"{broken")
    assert decode_result(result.value()).errors[0].code == "empty_input"


def test_a_published_plan_is_taken_over_and_progress_is_read(
    kafka: str, settings: Settings, router: Running
) -> None:
    names = TopicNames(settings.kafka.prefix)
    core = router.loops[1]._core
    plan = BucketPlan(model="fake", lane="bulk", version=3, bounds=(512,), labels=(0,) * PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(names.plans, encode_plan(plan), key=b"fake/bulk")
    assert producer.flush(15) == 0

    ledger = core._ledgers["fake"]
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if core.plan_of("fake").version == 3 and ledger._read_ns is not None:
            break
        time.sleep(0.05)

    assert core.plan_of("fake") == plan
    assert ledger._read_ns is not None


def test_a_second_router_takes_over_without_loss(kafka: str, settings: Settings) -> None:
    names, count = TopicNames(settings.kafka.prefix), 2_000
    first = Running(settings, ["bulk"], slot=0)
    lines = [{"job_id": "j", "index": i, "model": "fake", "input": "a b c"} for i in range(count)]
    _send(kafka, names.requests("bulk"), lines[: count // 2])
    second = Running(settings, ["bulk"], slot=1)
    _send(kafka, names.requests("bulk"), lines[count // 2 :])
    first.stop()

    work = _read(kafka, names.work("fake", "bulk"), lambda found: _items(found) >= count)
    second.stop()

    indexes = [i for one in work for i in decode_work(one.value()).items.index.tolist()]
    assert sorted(indexes) == list(range(count))
