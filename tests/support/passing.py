"""Feeds topics, reads them back and judges: what integration tests of the lane loop share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from streamer.clock import SystemClock
from streamer.deadline import Deadline
from streamer.emit.kafka_reader import read_up
from streamer.event.lane import Record, TopicPartition
from streamer.process.lane_loop import LaneLoop

CLOCK = SystemClock()
ROOT = Path(__file__).resolve().parents[2]


def wait_until(holds: Callable[[], object], seconds: float = 20.0, what: str = "") -> None:
    """Look every 20 ms until ``holds``; fails after ``seconds``."""
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up, f"not within {seconds} s: {what or holds}"
        time.sleep(0.02)


def feed(bootstrap: str, topic: str, partitions: int, count: int, first: int = 0) -> None:
    """Records ``first`` … with their number as value, spread over the partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(20) == 0


def read_all(
    bootstrap: str, topic: str, partitions: int, *, committed: bool = True
) -> list[Record]:
    """Everything in a topic up to now."""
    starts = {TopicPartition(topic, partition): 0 for partition in range(partitions)}
    chunks = read_up(
        {"bootstrap.servers": bootstrap},
        starts,
        deadline=Deadline.after(CLOCK.monotonic_ns(), 25_000),
        clock=CLOCK,
        committed=committed,
    )
    return [record for chunk in chunks for record in chunk]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the records that went in."""

    lost: int
    duplicated: int
    misordered: int

    @property
    def is_exact(self) -> bool:
        return self == Verdict(0, 0, 0)


def judge(bootstrap: str, topic: str, partitions: int, count: int) -> Verdict:
    """Compare a read_committed reading with the numbers 0 … ``count``."""
    records = read_all(bootstrap, topic, partitions)
    seen = Counter(int(record.value or b"-1") for record in records)
    last: dict[int, int] = {}
    misordered = 0
    for record in records:
        number = int(record.value or b"-1")
        misordered += number < last.get(record.partition, -1)
        last[record.partition] = number
    return Verdict(
        lost=sum(1 for number in range(count) if not seen[number]),
        duplicated=sum(times - 1 for times in seen.values()),
        misordered=misordered,
    )


def emitted(bootstrap: str, topic: str, partitions: int) -> int:
    """How many committed records there are."""
    return len(read_all(bootstrap, topic, partitions))


@contextmanager
def running(*loops: LaneLoop, drain_ms: int = 5_000) -> Iterator[None]:
    """The loops run inside the block and are stopped after it."""
    for loop in loops:
        loop.start()
    try:
        yield
    finally:
        for loop in loops:
            if loop.alive():
                loop.stop(Deadline.after(CLOCK.monotonic_ns(), drain_ms))


def spawn_passer(
    bootstrap: str, prefix: str, *options: str, crash_at: str = "", log: Path | None = None
) -> subprocess.Popen[bytes]:
    """A process that passes records on and dies at ``crash_at``."""
    environ = {**os.environ, "STREAMER_CRASH_AT": crash_at, "PYTHONPATH": str(ROOT)}
    output = log.open("wb") if log is not None else subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.pass_process", bootstrap, prefix, *options],
        env=environ,
        cwd=ROOT,
        stdout=output,
        stderr=output,
    )


def end(process: subprocess.Popen[bytes]) -> int:
    """SIGTERM, then wait; the exit code."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(15)
    finally:
        process.kill()
