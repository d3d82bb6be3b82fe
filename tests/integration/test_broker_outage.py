"""The broker goes away under a running loop and under a process that is told to stop."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.stack.kafka_home import prepare_home
from streamer.stack.kafka_server import KafkaServer, single_server
from streamer.stack.kafka_warm import warm_up
from tests.support.kafka_server import Topics
from tests.support.pass_process import build_pass_loop
from tests.support.passing import (
    CLOCK,
    emitted,
    feed,
    judge,
    running,
    spawn_passer,
    wait_until,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaServer]:
    server = single_server(tmp_path / "kafka", prepare_home())
    server.start()
    try:
        warm_up(server.bootstrap)
        yield server
    finally:
        server.stop()


def test_a_loop_lives_through_a_broker_that_is_killed_and_comes_back(
    broker: KafkaServer, prefix: str
) -> None:
    kafka = broker.bootstrap
    topics = Topics(kafka, prefix)
    topics.create("in", 2)
    out = topics.create("out", 2)
    feed(kafka, f"{prefix}in", 2, 100)
    loop, _ = build_pass_loop(kafka, prefix)

    with running(loop):
        # No transaction is open at the kill: 4.3.1, alone on its node, may leave one hanging (its
        # coordinator says Empty, the partition keeps it open), and no client can end that.
        wait_until(lambda: emitted(kafka, out, 2) >= 100)
        wait_until(lambda: not loop._commit.busy)
        broker.kill()
        since = CLOCK.monotonic_ns()
        wait_until(lambda: CLOCK.monotonic_ns() - since > 2_000_000_000)
        broker.start()
        feed(kafka, f"{prefix}in", 2, 100, first=100)
        wait_until(lambda: emitted(kafka, out, 2) >= 200, 40, "all is out")
        wait_until(loop.ready, 10)

    assert loop.failure is None
    assert judge(kafka, out, 2, 200).is_exact


def test_case_a7_a_process_told_to_stop_without_a_broker_ends_within_its_grace_time(
    broker: KafkaServer, prefix: str, tmp_path: Path
) -> None:
    kafka = broker.bootstrap
    topics = Topics(kafka, prefix)
    topics.create("in", 1)
    out = topics.create("out", 1)
    child = spawn_passer(kafka, prefix, log=tmp_path / "child.log")
    try:
        feed(kafka, f"{prefix}in", 1, 20)
        wait_until(lambda: emitted(kafka, out, 1) >= 20)
        broker.kill()
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            pytest.fail((tmp_path / "child.log").read_text()[-2_000:])
    finally:
        child.kill()

    broker.start()
    feed(kafka, f"{prefix}in", 1, 200, first=20)
    loop, _ = build_pass_loop(kafka, prefix)
    with running(loop):
        wait_until(lambda: emitted(kafka, out, 1) >= 220, 30)
    assert judge(kafka, out, 1, 220).is_exact
