"""A whole process around the loop: signals, exit codes, health; and a broker that goes away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka_server import Topics
from tests.support.passing import ROOT, emitted, feed, judge, wait_until

pytestmark = pytest.mark.integration


class Child:
    """A process under ``run_process`` that passes the fast lane on."""

    def __init__(self, bootstrap: str, prefix: str, folder: Path, **environ: str) -> None:
        self.health_file = folder / "health"
        self.log = folder / "child.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.runtime_process"],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "STREAMER_KAFKA__BOOTSTRAP": bootstrap,
                    "STREAMER_KAFKA__PREFIX": prefix,
                    "STREAMER_KAFKA__GROUP_PREFIX": prefix,
                    "STREAMER_STATE_DIR": str(folder),
                    "STREAMER_HEALTH_FILE": str(self.health_file),
                    **environ,
                },
            )

    def get(self, page: str) -> tuple[int, str]:
        url = self.health_file.read_text() + page
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def is_ready(self) -> bool:
        return self.health_file.exists() and self.get("/ready")[0] == 200

    def events(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"]


@pytest.fixture
def children() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for child in started:
        child.process.kill()
        child.process.wait(10)


def test_a_process_serves_its_health_and_ends_with_0_on_sigterm(
    kafka: str, prefix: str, topics: Topics, tmp_path: Path, children: list[Child]
) -> None:
    topics.create("in", 2)
    out = topics.create("out", 2)
    feed(kafka, f"{prefix}in", 2, 40)
    child = Child(kafka, prefix, tmp_path)
    children.append(child)

    wait_until(child.is_ready)
    wait_until(lambda: emitted(kafka, out, 2) >= 40)
    assert child.get("/live") == (200, "live\n")
    metrics = child.get("/metrics")[1]
    assert 'streamer_transactions_total{lane="fast",outcome="committed"}' in metrics
    assert 'streamer_records_delivered_total{lane="fast"} 40.0' in metrics
    child.process.send_signal(signal.SIGTERM)

    assert child.process.wait(15) == 0
    assert [e["event"] for e in child.events()][-1] == "stopped"
    assert all({"time", "level", "event", "role", "slot"} <= e.keys() for e in child.events())
    assert judge(kafka, out, 2, 40).is_exact


def test_a_second_signal_ends_at_once_with_130(
    kafka: str, prefix: str, topics: Topics, tmp_path: Path, children: list[Child]
) -> None:
    topics.create("in", 1)
    topics.create("out", 1)
    feed(kafka, f"{prefix}in", 1, 10)
    child = Child(kafka, prefix, tmp_path, PASS_NEVER_FINISHES="1")
    children.append(child)
    wait_until(child.is_ready)
    wait_until(lambda: 'delivered_total{lane="fast"} 10.0' in child.get("/metrics")[1])

    child.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        child.process.wait(1.0)
    assert child.get("/ready")[0] == 503
    child.process.send_signal(signal.SIGINT)

    assert child.process.wait(10) == 130


def test_an_unreachable_broker_at_the_start_is_exit_code_4(
    prefix: str, tmp_path: Path, children: list[Child]
) -> None:
    child = Child("127.0.0.1:1", prefix, tmp_path, PASS_START_MS="1500")
    children.append(child)

    assert child.process.wait(25) == 4


def test_a_wrong_target_is_exit_code_3_and_named(
    kafka: str, prefix: str, topics: Topics, tmp_path: Path, children: list[Child]
) -> None:
    topics.create("in", 1)
    feed(kafka, f"{prefix}in", 1, 1)
    child = Child(kafka, prefix, tmp_path)
    children.append(child)

    assert child.process.wait(30) == 3
    failed = [e for e in child.events() if e["event"] == "process failed"]
    assert f"{prefix}out" in str(failed[0]["error"])
