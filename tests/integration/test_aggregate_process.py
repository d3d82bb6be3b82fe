"""The aggregate process on a real broker: killed, restarted, waiting for deadlines."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from streamer.event.digest import running_digest
from streamer.event.records import Completion, ResultRecord
from streamer.event.topics import TopicNames
from tests.support.aggregate_line import (
    AggregateProcess,
    ResultWriter,
    read_outputs,
    released,
    running,
)
from tests.support.results import a_result, an_entry, rows
from tests.support.work_line import make_topics, read_until

pytestmark = pytest.mark.integration

JOBS = [f"job{n}" for n in range(6)]
TOTAL = 240


def _shuffled_results(seed: int) -> list[ResultRecord]:
    """Ten rows a record, indices and jobs mixed; some records come again with other bytes."""
    chance = random.Random(seed)
    placed: list[tuple[float, ResultRecord]] = []
    for job_id in JOBS:
        indices = sorted(range(TOTAL), key=lambda index: index + chance.uniform(0, 12))
        for at in range(0, TOTAL, 10):
            here = rows(*indices[at : at + 10], value=1.0)
            place = at + chance.uniform(0, 12)
            placed.append((place, a_result(here, job_id=job_id)))
            if chance.random() < 0.2:
                again = rows(*indices[at : at + 10], value=2.0)
                placed.append((place + chance.uniform(0, 30), a_result(again, job_id=job_id)))
    return [record for _, record in sorted(placed, key=lambda pair: pair[0])]


def _digest(total: int) -> bytes:
    digest = bytes(16)
    for row in rows(*range(total), value=1.0):
        digest = running_digest(digest, row.index, row.status, row.digest, row.answer)
    return digest


def _until_dead(process: AggregateProcess, timeout_s: float = 60.0) -> None:
    until = time.monotonic() + timeout_s
    while process.is_alive():
        assert time.monotonic() < until, f"its crash point was never reached: {process.log()}"
        time.sleep(0.02)


def test_kill_9_in_mid_job_loses_and_repeats_nothing(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    make_topics(kafka, prefix)
    writer = ResultWriter(kafka, prefix)
    records = _shuffled_results(7)
    share = len(records) // 4  # one for each life: none may starve the next of its crash
    aggregate = AggregateProcess(kafka, prefix, tmp_path)

    with running(aggregate):
        writer.entries(*[an_entry(job_id=job_id, total=TOTAL) for job_id in JOBS])
        for life, crash_at in enumerate(("after_produce", "in_commit", "after_commit")):
            aggregate.start(crash_at=f"aggregate.bulk.{crash_at}")
            aggregate.wait_for("assigned")
            for record in records[life * share : (life + 1) * share]:
                writer.results([record])
                time.sleep(0.01)  # several emissions, not one
            _until_dead(aggregate)
            writer.results(records[:3], abort=True)
        aggregate.start()
        writer.results(records[3 * share :])
        found = read_outputs(kafka, prefix, completions=len(JOBS))
        assert aggregate.stop() == 0, aggregate.log()

    for job_id in JOBS:
        assert released(found[job_id]) == list(range(TOTAL)), aggregate.log()
        (completion,) = [each for each in found[job_id] if isinstance(each, Completion)]
        assert found[job_id][-1] is completion
        assert (completion.status, completion.total) == ("completed", TOTAL)
        assert completion.digest == _digest(TOTAL)
    dirty = read_until(
        kafka, TopicNames(prefix).outputs("bulk"), lambda _: False, timeout_s=1.5,
        isolation="read_uncommitted",
    )  # fmt: skip
    committed = sum(len(each) for each in found.values())
    assert len(dirty) > committed, "no aborted output was there to be hidden"


def test_partitions_move_between_two_processes_in_mid_job(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    make_topics(kafka, prefix)
    writer = ResultWriter(kafka, prefix)
    records = _shuffled_results(11)
    share = len(records) // 3
    first = AggregateProcess(kafka, prefix, tmp_path, name="first")
    second = AggregateProcess(kafka, prefix, tmp_path, name="second")

    with running(first), running(second):
        writer.entries(*[an_entry(job_id=job_id, total=TOTAL) for job_id in JOBS])
        first.start(0)
        first.wait_for("assigned")
        _feed(writer, records[:share])
        second.start(1)
        second.wait_for("started")
        _feed(writer, records[share : 2 * share])
        second.wait_for("assigned")
        assert first.stop() == 0, first.log()
        _feed(writer, records[2 * share :])
        found = read_outputs(kafka, prefix, completions=len(JOBS))
        assert second.stop() == 0, second.log()

    for job_id in JOBS:
        assert released(found[job_id]) == list(range(TOTAL)), first.log() + second.log()
        (completion,) = [each for each in found[job_id] if isinstance(each, Completion)]
        assert completion.digest == _digest(TOTAL)


def _feed(writer: ResultWriter, records: list[ResultRecord]) -> None:
    for record in records:
        writer.results([record])
        time.sleep(0.01)  # several emissions, not one


def test_jobs_on_quiet_partitions_end_and_leave_no_entry_behind(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    make_topics(kafka, prefix)
    writer = ResultWriter(kafka, prefix)
    aggregate = AggregateProcess(kafka, prefix, tmp_path, STREAMER_AGGREGATE__GRACE_MS="100")
    soon = time.time_ns() // 1_000_000 + 2_500
    writer.entries(
        an_entry("descriptor", job_id="empty", total=0, form="avro"),
        an_entry("descriptor", job_id="late", total=3, form="avro", deadline_at_ms=soon),
        an_entry("descriptor", job_id="stopped", total=3, form="avro"),
        an_entry("cancel", job_id="stopped"),
    )
    writer.results([a_result(rows(1), job_id="late")])
    writer.results([a_result(rows(0), job_id="late")], abort=True)

    with running(aggregate):
        aggregate.start()
        found = read_outputs(kafka, prefix, completions=3, timeout_s=20)
        assert aggregate.stop() == 0, aggregate.log()

    ends = {job_id: outputs[-1] for job_id, outputs in found.items()}
    assert {job_id: end.status for job_id, end in ends.items()} == {
        "empty": "completed",
        "late": "expired",
        "stopped": "cancelled",
    }
    assert ends["late"].counts == {"succeeded": 1, "errored": 0, "expired": 2, "cancelled": 0}
    assert released(found["late"]) == [0, 1, 2]
    assert released(found["stopped"]) == [0, 1, 2]
    entries = read_until(
        kafka, TopicNames(prefix).jobs("bulk"), lambda found: len(found) >= 8, timeout_s=3
    )
    last = {message.key(): message.value() for message in entries}
    assert set(last.values()) == {None}
