"""The commands about jobs, as processes, against a scripted service on a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from streamer.__main__ import main
from streamer.client import Client
from streamer.event.records import OutputRun
from streamer.event.topics import TopicNames
from streamer.settings import Settings
from tests.support.scripted_service import ScriptedService, lane_topics

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]


Command = Callable[..., str]


@pytest.fixture
def names(kafka: str, prefix: str) -> TopicNames:
    return lane_topics(kafka, prefix)


@pytest.fixture
def streamer(
    kafka: str, names: TopicNames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Command:  # fmt: skip
    """Runs the command here, in an empty folder; returns its stdout."""
    monkeypatch.setenv("STREAMER_KAFKA__BOOTSTRAP", kafka)
    monkeypatch.setenv("STREAMER_KAFKA__PREFIX", names.prefix)
    monkeypatch.chdir(tmp_path)

    def run(*words: str, rc: int = 0) -> str:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["streamer", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        assert (ended.value.code or 0) == rc, out + err
        return out

    return run


@pytest.fixture
def started(kafka: str, names: TopicNames, tmp_path: Path) -> Callable[..., Any]:
    """Starts the command in an empty folder; returns the process."""
    env = {
        **os.environ, "PYTHONPATH": str(ROOT), "STREAMER_KAFKA__BOOTSTRAP": kafka,
        "STREAMER_KAFKA__PREFIX": names.prefix,
    }  # fmt: skip

    def start(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "streamer", *words], cwd=tmp_path, env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    return start


def write_requests(path: Path, count: int, extra: str = "") -> None:
    lines = [json.dumps({"custom_id": f"c{n}", "input": f"text {n}"}) for n in range(count)]
    path.write_text("\n".join(lines) + "\n" + extra)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_interrupted_submit_goes_on_where_it_stopped(
    kafka: str, names: TopicNames, streamer: Command, started: Callable[..., Any], tmp_path: Path
) -> None:
    write_requests(tmp_path / "in.jsonl", 300)
    out = tmp_path / "out.jsonl"
    words = ("submit", "in.jsonl", "--model", "fake", "--out", "out.jsonl")
    with ScriptedService(
        kafka, names, lane="bulk", hold=lambda request: (request.index or 0) >= 120
    ) as service:
        for sign, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
            first = started(*words)
            end_at = time.monotonic() + 60
            while first.poll() is None and time.monotonic() < end_at:
                if out.exists() and len(out.read_bytes().splitlines()) >= 120:
                    break
                time.sleep(0.05)
            first.send_signal(sign)
            _, err = first.communicate(timeout=30)
            assert first.returncode == code, err
        with out.open("ab") as cut:
            cut.write(b'{"custom_id": "cut o')
        service.hold = lambda request: False
        streamer(*words)
        before = out.read_bytes()
        streamer(*words)

    assert [row["index"] for row in rows_of(out)] == list(range(300))
    assert [row["custom_id"] for row in rows_of(out)] == [f"c{n}" for n in range(300)]
    assert out.read_bytes() == before
    assert len(service.received) == len(set(service.received)) == 300


def test_a_job_that_ends_with_errors_says_so_by_its_exit_code(
    kafka: str, names: TopicNames, streamer: Command, tmp_path: Path
) -> None:
    write_requests(tmp_path / "in.jsonl", 3, extra='{"custom_id": "broken", "input": \n')
    with ScriptedService(kafka, names, lane="bulk"):
        text = streamer(
            "submit", "in.jsonl", "--model", "fake", "--job-id", "mixed",
            "--out", "out.jsonl", "--json", rc=6,
        )  # fmt: skip
        shown = json.loads(streamer("status", "mixed", "--json"))
        lines = streamer("results", "mixed", rc=6)

    summary = json.loads(text)
    assert summary["counts"] == {"succeeded": 3, "errored": 1, "expired": 0, "cancelled": 0}
    assert (shown["state"], shown["final"], shown["total"]) == ("completed", 4, 4)
    assert lines == (tmp_path / "out.jsonl").read_text()
    assert rows_of(tmp_path / "out.jsonl")[3]["error"]["code"] == "invalid_json"


def test_results_stand_on_stdout_and_talk_on_stderr(
    kafka: str, names: TopicNames, streamer: Command, tmp_path: Path
) -> None:
    write_requests(tmp_path / "in.jsonl", 5)
    with ScriptedService(kafka, names, lane="fast"):
        text = streamer("submit", "in.jsonl", "--model", "fake", "--lane", "fast")

    assert [json.loads(line)["index"] for line in text.splitlines()] == list(range(5))


def test_cancelling_from_the_command_line_ends_the_job(
    kafka: str, names: TopicNames, streamer: Command, tmp_path: Path
) -> None:
    with (
        ScriptedService(kafka, names, lane="bulk", hold=lambda _: True),
        Client(Settings(kafka={"bootstrap": kafka, "prefix": names.prefix})) as client,
    ):
        client.submit(["a", "b"], model="fake", job_id="stopped")
        shown = json.loads(streamer("cancel", "stopped", "--wait", "--json"))

    assert shown["state"] == "cancelled"


@pytest.mark.parametrize(
    ("words", "rc"),
    [
        (("submit", "missing.jsonl", "--model", "fake"), 2),
        (("submit", "twice.jsonl", "--model", "fake"), 2),
        (("submit", "one.jsonl", "--model", "fake", "--lane", "slow"), 2),
        (("submit", "one.jsonl", "--model", "fake", "--deadline", "soon"), 2),
        (("submit", "one.jsonl", "--model", "fake", "--job-id", "a/b"), 2),
        (("submit", "one.jsonl", "--model", "fake", "--json"), 2),
        (("submit", "one.jsonl", "--model", "fake", "--prefix", "other."), 3),
        (("submit", "one.jsonl", "--model", "fake", "--bootstrap", "127.0.0.1:1"), 4),
        (("status", "nobody"), 2),
        (("audit", "nobody"), 2),
        (("audit",), 2),
        (("deadletters", "list"), 0),
    ],
)
def test_failures_have_their_exit_codes_and_one_line(
    streamer: Command, tmp_path: Path, words: tuple[str, ...], rc: int
) -> None:
    write_requests(tmp_path / "one.jsonl", 1)
    (tmp_path / "twice.jsonl").write_text('{"custom_id": "a", "input": "x"}\n' * 2)

    streamer(*words, rc=rc)


def _twice(run: OutputRun) -> list[OutputRun]:
    return [run, run] if run.first_index == 2 else [run]


def _dropped(run: OutputRun) -> list[OutputRun]:
    return [] if run.first_index == 2 else [run]


def _renamed(run: OutputRun) -> list[OutputRun]:
    items = replace(run.items, custom_id=["c9"])
    return [replace(run, items=items)] if run.first_index == 2 else [run]


def _other_answer(run: OutputRun) -> list[OutputRun]:
    assert run.outputs is not None
    outputs = replace(run.outputs, data=np.array([7, 7], np.float32).tobytes())
    return [replace(run, outputs=outputs)] if run.first_index == 2 else [run]


@pytest.mark.parametrize(
    ("form", "change", "problem"),
    [
        ("avro", _twice, "row 2 is there again"),
        ("json", _dropped, "index 2 was accepted and has no row"),
        ("avro", _renamed, "custom_id of another item"),
        ("avro", _other_answer, "running digest"),
        ("json", _other_answer, "digest of the completion"),
    ],
)
def test_the_audit_finds_what_a_broken_service_did(
    kafka: str, names: TopicNames, streamer: Command, form: str,
    change: Callable[[OutputRun], list[OutputRun]], problem: str,
) -> None:  # fmt: skip
    with (
        ScriptedService(kafka, names, lane="bulk", change=change),
        Client(Settings(kafka={"bootstrap": kafka, "prefix": names.prefix})) as client,
    ):
        client.submit([f"t{n}" for n in range(5)], model="fake", job_id="b", form=form).wait(20)

        verdict = json.loads(streamer("audit", "b", "--json", rc=5))

    assert not verdict["ok"]
    assert any(problem in text for text in verdict["problems"]), verdict["problems"]


def test_the_audit_of_a_good_job_ends_with_ok_and_names_dead_letters(
    kafka: str, names: TopicNames, streamer: Command
) -> None:
    with (
        ScriptedService(kafka, names, lane="bulk"),
        Client(Settings(kafka={"bootstrap": kafka, "prefix": names.prefix})) as client,
    ):
        job = client.submit(["a", "b", "c"], model="fake", job_id="good", form="json")
        bad = Producer({"bootstrap.servers": kafka})
        bad.produce(names.requests("bulk"), b'{"job_id": "good"', partition=1)
        assert bad.flush(10) == 0
        job.wait(20)
        deadline = time.monotonic() + 20
        letters = ""
        while not letters and time.monotonic() < deadline:
            letters = streamer("deadletters", "list")
        lines = streamer("audit", "good").splitlines()

    assert lines[-1] == "audit: ok"
    assert any(line.startswith("dead letter") and "invalid_json" in line for line in lines)
    assert "invalid_json" in letters


def test_the_audit_of_a_range_finds_a_request_without_answer(
    kafka: str, names: TopicNames, streamer: Command
) -> None:
    with (
        ScriptedService(kafka, names, lane="fast", hold=lambda r: r.rows[0].text == "q2"),
        Client(Settings(kafka={"bootstrap": kafka, "prefix": names.prefix})) as client,
    ):
        for n in range(2):
            client.request(f"q{n}", model="fake").result(20)
        good = json.loads(streamer("audit", "--range", "--lane", "fast", "--json"))
        client.request("q2", model="fake")
        client.request("q3", model="fake").result(20)
        bad = json.loads(streamer("audit", "--range", "--lane", "fast", "--json", rc=5))

    assert (good["items"], good["succeeded"], good["ok"]) == (2, 2, True)
    assert (bad["items"], bad["succeeded"], bad["pending"]) == (4, 3, 1)
