"""A process dies at each named point; its successor finishes; nothing is lost or doubled."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.support.kafka_server import Topics
from tests.support.pass_process import build_pass_loop
from tests.support.passing import (
    feed,
    judge,
    read_all,
    running,
    spawn_passer,
    wait_until,
)

pytestmark = pytest.mark.integration

COUNT = 240
PARTITIONS = 2
POINTS = (
    "after_poll:1",
    "before_produce:3",
    "after_produce:3",
    "after_offsets:3",
    "before_commit:1",
    "in_commit:3",
    "after_commit:3",
)
LEAVES_ABORTED = ("after_produce:3", "after_offsets:3", "before_commit:1")


def test_case_a2_a_kill_at_any_point_leaves_each_record_once(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    # All points at once, each under a prefix of its own: a dead member is waited for 3 s.
    prefixes = {point: f"{prefix}{point.replace(':', '-')}." for point in POINTS}
    for of_point in prefixes.values():
        topics = Topics(kafka, of_point)
        topics.create("in", PARTITIONS)
        topics.create("out", PARTITIONS)
        feed(kafka, f"{of_point}in", PARTITIONS, COUNT)

    children = {
        point: spawn_passer(
            kafka, of_point, crash_at=f"pass.fast.{point}", log=tmp_path / f"{point}.log"
        )
        for point, of_point in prefixes.items()
    }
    try:
        codes = {point: child.wait(30) for point, child in children.items()}
    finally:
        for child in children.values():
            child.kill()
    assert set(codes.values()) == {-signal.SIGKILL}

    loops = {point: build_pass_loop(kafka, of_point)[0] for point, of_point in prefixes.items()}
    with running(*loops.values()):
        for point, of_point in prefixes.items():
            wait_until(
                lambda topic=f"{of_point}out": len(read_all(kafka, topic, PARTITIONS)) >= COUNT,
                30,
                point,
            )
    for point, of_point in prefixes.items():
        assert loops[point].failure is None
        assert judge(kafka, f"{of_point}out", PARTITIONS, COUNT).is_exact, point
        everything = read_all(kafka, f"{of_point}out", PARTITIONS, committed=False)
        assert (len(everything) > COUNT) or point not in LEAVES_ABORTED, point


def test_two_processes_of_one_group_split_the_work_and_survive_a_kill(
    kafka: str, prefix: str, topics: Topics, tmp_path: Path
) -> None:
    topics.create("in", 4)
    out = topics.create("out", 4)
    count = 0
    dying = spawn_passer(
        kafka, prefix, "--slot=1", crash_at="pass.fast.after_offsets:4", log=tmp_path / "dying.log"
    )
    loop, core = build_pass_loop(kafka, prefix, slot=0)
    try:
        with running(loop):
            give_up = time.monotonic() + 30
            while dying.poll() is None and time.monotonic() < give_up:
                feed(kafka, f"{prefix}in", 4, 40, first=count)
                count += 40
            wait_until(lambda: len(read_all(kafka, out, 4)) >= count, 30, "the survivor finishes")
    finally:
        dying.kill()

    assert dying.returncode == -signal.SIGKILL
    assert judge(kafka, out, 4, count).is_exact
    assert any(kind == "settled" for kind, _ in core.log)
