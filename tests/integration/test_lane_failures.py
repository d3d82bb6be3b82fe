"""Emissions that fail, drains, a broker that goes away: the loop goes on without losing any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streamer.deadline import Deadline
from streamer.errors import TransactionAborted, TransactionUnknown
from streamer.event.lane import EmitPlan, Now, TopicPartition
from tests.support.kafka_server import Topics
from tests.support.pass_core import PassCore
from tests.support.pass_process import build_pass_loop
from tests.support.passing import (
    CLOCK,
    emitted,
    end,
    feed,
    judge,
    running,
    spawn_passer,
    wait_until,
)

pytestmark = pytest.mark.integration


def failing(point: str, times: set[int], error: Callable[[], Exception]) -> Callable[[str], None]:
    """Raises at ``point`` at the given visits, counted from 1."""
    visits = 0

    def crash(reached: str) -> None:
        nonlocal visits
        if reached == point:
            visits += 1
            if visits in times:
                raise error()

    return crash


@pytest.mark.parametrize(
    ("point", "error"),
    [
        ("before_commit", TransactionAborted),
        ("before_commit", TransactionUnknown),
        ("after_commit", TransactionUnknown),
    ],
)
def test_after_a_failed_emission_everything_is_read_again_under_new_epochs(
    kafka: str, prefix: str, topics: Topics, point: str, error: type[Exception]
) -> None:
    topics.create("in", 2)
    out = topics.create("out", 2)
    feed(kafka, f"{prefix}in", 2, 120)
    loop, core = build_pass_loop(kafka, prefix)
    loop._ring._crash = failing(point, {2, 3, 5}, lambda: error("asked for by the test"))

    with running(loop):
        wait_until(lambda: emitted(kafka, out, 2) >= 120)
        feed(kafka, f"{prefix}in", 2, 20, first=120)
        wait_until(lambda: emitted(kafka, out, 2) >= 140)

    assert loop.failure is None
    assert judge(kafka, out, 2, 140).is_exact
    given = [a for kind, what in core.log if kind == "assigned" for a in what]
    epochs = [a.epoch for a in given if a.at.partition == 0]
    assert epochs[:3] == [1, 2, 3]


class _SlowCore(PassCore):
    """Work that takes a while: finished only when ``finish_at`` is passed."""

    finish_ns = 0

    def finish_some(self) -> bool:
        if CLOCK.monotonic_ns() >= self.finish_ns:
            return super().finish_some()
        return bool(self._undone)


def _slow_loop(kafka: str, prefix: str, out: str) -> tuple[object, _SlowCore]:
    core = _SlowCore(out)
    core.finish_ns = 1 << 62
    loop, _ = build_pass_loop(kafka, prefix, core=core)
    return loop, core


def test_stop_finishes_what_is_in_flight_and_emits_it(
    kafka: str, prefix: str, topics: Topics
) -> None:
    topics.create("in", 1)
    out = topics.create("out", 1)
    feed(kafka, f"{prefix}in", 1, 10)
    loop, core = _slow_loop(kafka, prefix, out)
    loop.start()
    wait_until(lambda: len(core._undone) == 10)
    now_ns = CLOCK.monotonic_ns()
    core.finish_ns = now_ns + 300_000_000

    assert loop.stop(Deadline.after(now_ns, 10_000))

    assert CLOCK.monotonic_ns() >= core.finish_ns
    assert judge(kafka, out, 1, 10).is_exact
    assert not loop.ready()


def test_stop_leaves_what_does_not_end_in_time_to_the_next_one(
    kafka: str, prefix: str, topics: Topics
) -> None:
    topics.create("in", 1)
    out = topics.create("out", 1)
    feed(kafka, f"{prefix}in", 1, 10)
    loop, core = _slow_loop(kafka, prefix, out)
    loop.start()
    wait_until(lambda: len(core._undone) == 10)

    assert not loop.stop(Deadline.after(CLOCK.monotonic_ns(), 300))

    assert loop.failure is None
    assert emitted(kafka, out, 1) == 0
    after, _ = build_pass_loop(kafka, prefix)
    with running(after):
        wait_until(lambda: emitted(kafka, out, 1) >= 10)
    assert judge(kafka, out, 1, 10).is_exact


class _FullCore(PassCore):
    """Has no room until told."""

    is_full = True

    def room(self, now: Now) -> int:
        return 0 if self.is_full else super().room(now)


def test_a_full_lane_keeps_its_membership_without_taking_records(
    kafka: str, prefix: str, topics: Topics
) -> None:
    source = topics.create("in", 1)
    out = topics.create("out", 1)
    core = _FullCore(out)
    loop, _ = build_pass_loop(
        kafka, prefix, core=core, session_timeout_ms=2_000, max_poll_interval_ms=2_000
    )
    loop._limits = type(loop._limits)(busy_poll_ms=1, silent_ms=300)

    with running(loop):
        wait_until(lambda: core.log, 10, "assigned while full")
        feed(kafka, source, 1, 20)
        since = CLOCK.monotonic_ns()
        wait_until(lambda: CLOCK.monotonic_ns() - since > 3_000_000_000)
        assert loop.ready()
        assert [kind for kind, _ in core.log] == ["assigned"]
        core.is_full = False
        wait_until(lambda: emitted(kafka, out, 1) >= 20)

    assert judge(kafka, out, 1, 20).is_exact
    assert [a.epoch for kind, what in core.log if kind == "assigned" for a in what] == [1]


def test_a_target_that_does_not_exist_ends_the_loop_with_its_name(
    kafka: str, prefix: str, topics: Topics
) -> None:
    topics.create("in", 1)
    feed(kafka, f"{prefix}in", 1, 5)
    loop, _ = build_pass_loop(kafka, prefix, out="nowhere")
    loop._ring._targets._missing_ms = 200

    with running(loop):
        wait_until(lambda: loop.failure is not None)

    assert f"{prefix}nowhere" in str(loop.failure)
    assert not loop.ready()


def test_sigterm_ends_a_process_cleanly_and_nothing_is_left_open(
    kafka: str, prefix: str, topics: Topics, tmp_path: Path
) -> None:
    topics.create("in", 2)
    out = topics.create("out", 2)
    feed(kafka, f"{prefix}in", 2, 60)
    child = spawn_passer(kafka, prefix, log=tmp_path / "child.log")
    wait_until(lambda: emitted(kafka, out, 2) > 0, 20, "it works")

    assert end(child) == 0

    loop, _ = build_pass_loop(kafka, prefix, slot=3)
    with running(loop):  # another slot, at once: no lock of an open transaction, no dead member
        wait_until(lambda: emitted(kafka, out, 2) >= 60, 3)
    assert judge(kafka, out, 2, 60).is_exact


def test_a_plan_never_leaves_without_a_member_id(kafka: str, prefix: str, topics: Topics) -> None:
    topics.create("in", 1)
    out = topics.create("out", 1)
    feed(kafka, f"{prefix}in", 1, 10)
    loop, _ = build_pass_loop(kafka, prefix)
    plans: list[EmitPlan] = []
    emit = loop._ring.emit
    metadata = loop._source.group_metadata
    asked = 0

    def not_yet() -> object | None:
        nonlocal asked
        asked += 1
        return None if asked < 20 else metadata()

    def noting(plan: EmitPlan, group_metadata: object) -> object:
        assert asked >= 20
        plans.append(plan)
        return emit(plan, group_metadata)

    loop._source.group_metadata = not_yet  # type: ignore[method-assign]
    loop._ring.emit = noting  # type: ignore[method-assign,assignment]
    with running(loop):
        wait_until(lambda: emitted(kafka, out, 1) >= 10)

    assert plans[0].offsets.keys() == {TopicPartition(f"{prefix}in", 0)}
    assert judge(kafka, out, 1, 10).is_exact
    assert loop.failure is None
