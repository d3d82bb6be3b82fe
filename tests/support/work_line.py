"""The work process on a real broker: topics, records in, results out."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from streamer.event import wire
from streamer.event.kafka_topics import apply_topics, wanted_topics
from streamer.event.records import WorkRecord
from streamer.event.topic_rows import TopicLayout
from streamer.event.topics import TopicNames

PARTITIONS = 3
ROOT = Path(__file__).parents[2]


def make_topics(bootstrap: str, prefix: str, models: Sequence[str] = ("fake",)) -> None:
    layout = TopicLayout(
        prefix=prefix, models=tuple(models), partitions=PARTITIONS, replication=1, min_insync=1,
        retention_ms=3_600_000, request_bytes=4 << 20,
    )  # fmt: skip
    apply_topics({"bootstrap.servers": bootstrap}, wanted_topics(layout))


class WorkProcess:
    """One ``streamer work`` process."""

    def __init__(self, bootstrap: str, prefix: str, folder: Path, **environment: str) -> None:
        (folder / "none.yaml").touch()  # no settings but those below
        self._environment = {
            **os.environ,
            "STREAMER_CONFIG": str(folder / "none.yaml"),
            "STREAMER_KAFKA__BOOTSTRAP": bootstrap,
            "STREAMER_KAFKA__PREFIX": prefix,
            "STREAMER_KAFKA__GROUP_PREFIX": prefix.replace(".", "-"),
            "STREAMER_KAFKA__PARTITIONS": str(PARTITIONS),
            "STREAMER_STATE_DIR": str(folder / "state"),
            "STREAMER_MODELS": '{"fake": {"engine": "fake", "fake_fixed_ms": 2}}',
            "PYTHONPATH": str(ROOT),
            **environment,
        }
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def start(self, slot: int = 0, *more: str) -> None:
        log = (self._folder / f"work-{slot}.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "streamer", "work", "--slot", str(slot), *more],
            env=self._environment, cwd=self._folder, stdout=log, stderr=log,
        )  # fmt: skip
        log.close()
        self._starts += 1

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def stop(self, timeout_s: float = 20) -> int:
        """SIGTERM once it has started; the exit code."""
        assert self._process is not None
        until = time.monotonic() + timeout_s
        while self.log().count('"event":"started"') < self._starts and time.monotonic() < until:
            time.sleep(0.05)
        self._process.terminate()
        return self._process.wait(timeout_s)

    def wait(self, timeout_s: float = 30) -> int:
        assert self._process is not None
        return self._process.wait(timeout_s)

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self._folder.glob("work-*.log")))


@contextmanager
def running(process: WorkProcess) -> Iterator[WorkProcess]:
    try:
        yield process
    finally:
        if process._process is not None and process._process.poll() is None:
            process.kill()


Work = tuple[int, WorkRecord | bytes]


def send_work(bootstrap: str, prefix: str, records: Iterable[Work]) -> None:
    """Write work records, or bytes that are none, to their partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    names = TopicNames(prefix)
    for partition, work in records:
        lane = work.lane if isinstance(work, WorkRecord) else "bulk"
        value = wire.encode_work(work) if isinstance(work, WorkRecord) else work
        producer.produce(names.work("fake", lane), value, partition=partition)
        producer.poll(0)
    assert producer.flush(20) == 0


def read_until(
    bootstrap: str, topic: str, enough: Callable[[list[Message]], bool], *,
    timeout_s: float = 30.0, isolation: str = "read_committed",
) -> list[Message]:  # fmt: skip
    """Everything of a topic from its beginning, until ``enough`` says so or time is up."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
            "isolation.level": isolation, "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    found: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and not enough(found):
            found += [m for m in consumer.consume(500, 0.1) if m.error() is None]
    finally:
        consumer.close()
    return found
