"""Work's decisions one by one; the histories are in tests/property."""

from __future__ import annotations

import numpy as np

from streamer.batch.limits import BatchLimits, Budget
from streamer.emit.offset_metadata import OffsetMetadata, encode_metadata, parse_metadata
from streamer.event import codes, wire
from streamer.event.lane import Assignment, EmitPlan
from streamer.event.records import ResultRecord
from streamer.infer.launch import News
from streamer.process.work_plan import ended_with
from streamer.process.worker_core import WorkerCore
from tests.support.work_builders import (
    MODEL,
    NAMES,
    WALL_MS,
    a_core,
    a_work,
    all_failed,
    answered,
    assigned,
    at_ms,
    delivered,
    run_all,
    work_at,
)


def _results(plan: EmitPlan | None) -> list[ResultRecord]:
    assert plan is not None
    return [
        wire.decode_result(record.value)
        for record in plan.records
        if record.topic == NAMES.results("bulk")
    ]


def _finished(core: WorkerCore, *works: object, now_ms: float = 0) -> list[ResultRecord]:
    """Deliver to partition 0, run, and look at what would be emitted."""
    core.deliver([delivered(work, n) for n, work in enumerate(works)], at_ms(now_ms))
    run_all(core, at_ms(now_ms))
    return _results(core.plan(at_ms(now_ms)))


# --- attempts ---


def test_nothing_is_launched_before_the_attempts_are_committed() -> None:
    core = a_core()
    core.assigned([Assignment(work_at(), 1, 0)], at_ms())
    core.deliver([delivered(a_work(), 0)], at_ms())

    assert core.next_batch(at_ms(), model=MODEL) is None

    plan = core.plan(at_ms())
    assert plan.records == ()
    mark = plan.offsets[work_at()]
    assert mark.offset == 0
    assert parse_metadata(mark.metadata) == OffsetMetadata(attempts=0, offset=0)
    core.settled(plan, at_ms())
    assert core.next_batch(at_ms(), model=MODEL) is not None


def test_a_partition_begun_in_vain_runs_in_order_in_small_batches_and_says_so() -> None:
    core = a_core()
    twice = encode_metadata(OffsetMetadata(attempts=1, offset=0))
    assigned(core, 0, metadata=twice)
    core.deliver([delivered(a_work(8), 0), delivered(a_work(8, first_index=8), 1)], at_ms())

    first = core.next_batch(at_ms(), model=MODEL)

    assert first.reason == "suspect"
    assert len(first) == 2
    assert core.next_batch(at_ms(), model=MODEL) is None, "one batch at a time"
    core.batch_done(answered(first), at_ms())
    run_all(core)
    results = _results(core.plan(at_ms()))
    assert [result.receipt.attempt for result in results] == [3, 3]
    assert results[0].outputs.data == answered_rows(a_work(8))


def answered_rows(work: object) -> bytes:
    core = a_core()
    assigned(core, 0)
    (result,) = _finished(core, work)
    return result.outputs.data


def test_progress_ends_the_suspicion() -> None:
    core = a_core()
    assigned(core, 0, metadata=encode_metadata(OffsetMetadata(attempts=0, offset=0)))
    core.deliver([delivered(a_work(2, first_index=2 * n), n) for n in range(6)], at_ms())
    for _ in range(2):
        core.batch_done(answered(core.next_batch(at_ms(), model=MODEL)), at_ms())

    plan = core.plan(at_ms())
    core.settled(plan, at_ms())

    assert plan.offsets[work_at()].offset == 1
    rest = core.next_batch(at_ms(), model=MODEL)
    assert rest.reason != "suspect"
    assert len(rest) == 10


# --- what must not reach a device ---


def test_a_record_of_another_tokenizer_is_answered_errored_without_device_time() -> None:
    core = a_core()
    assigned(core, 0)

    (result,) = _finished(core, a_work(2, tokenizer_hash="abc"))

    assert result.status.tolist() == [codes.ERRORED] * 2
    assert result.errors[0].code == "model_error"
    assert result.errors[0].retryable
    assert "tokenizer 'abc'" in result.errors[0].message


def test_a_record_of_another_revision_or_model_or_task_is_refused_too() -> None:
    core = a_core()
    assigned(core, 0)
    works = [a_work(1, revision="r2"), a_work(1, model="m2"), a_work(1, task="score")]

    results = _finished(core, *works)

    assert [r.errors[0].message.split(",")[0] for r in results] == [
        "prepared for revision 'r2'", "prepared for model 'm2'", "prepared for task 'score'",
    ]  # fmt: skip


def test_items_that_are_late_at_delivery_or_at_launch_expire_and_their_neighbours_run() -> None:
    core = a_core()
    assigned(core, 0)
    deadlines = [WALL_MS + 1, 0, WALL_MS + 50]
    core.deliver([delivered(a_work(3, deadlines=deadlines), 0)], at_ms(10))

    launch = core.next_batch(at_ms(60), model=MODEL)

    assert len(launch) == 1
    core.batch_done(answered(launch), at_ms(60))
    (result,) = _results(core.plan(at_ms(60)))
    assert result.status.tolist() == [codes.EXPIRED, codes.SUCCEEDED, codes.EXPIRED]
    assert [error.code for error in result.errors] == ["expired", "expired"]


def test_a_batch_of_late_items_only_is_never_launched() -> None:
    core = a_core()
    assigned(core, 0)
    core.deliver([delivered(a_work(2, deadlines=[WALL_MS + 5] * 2), 0)], at_ms())

    assert core.next_batch(at_ms(20), model=MODEL) is None
    assert _results(core.plan(at_ms(20)))[0].status.tolist() == [codes.EXPIRED] * 2


def test_an_item_without_tokens_does_not_reach_the_batcher() -> None:
    core = a_core()
    assigned(core, 0)

    (result,) = _finished(core, a_work(2, rows=[1, 0], lengths=[3]))

    assert {error.code for error in result.errors} == {"corrupt_record"}


def test_bytes_that_are_no_work_record_become_a_dead_letter_and_the_offset_moves() -> None:
    core = a_core()
    assigned(core, 0)
    core.deliver([delivered(b"\x00junk", 4)], at_ms())

    plan = core.plan(at_ms())

    letter = wire.decode_dead_letter(plan.records[0].value)
    assert (letter.topic, letter.offset, letter.value) == (work_at().topic, 4, b"\x00junk")
    assert plan.offsets[work_at()].offset == 5


def test_a_record_of_another_lane_never_leaves_its_rail() -> None:
    core = a_core()
    assigned(core, 0)
    stray = delivered(wire.encode_work(a_work(1, lane="fast")), 0)
    core.deliver([stray], at_ms())

    (record,) = core.plan(at_ms()).records

    assert record.topic == NAMES.dead_letters("bulk")


def test_answers_that_cannot_be_written_are_errored_rows_and_the_offset_moves() -> None:
    core = a_core()
    assigned(core, 0)

    (result,) = _finished(core, a_work(2, params="no JSON"))

    assert [error.code for error in result.errors] == ["model_error"] * 2
    assert "no JSON" not in result.errors[0].message


# --- news ---


def test_news_of_an_assignment_that_is_over_are_dropped() -> None:
    core = a_core()
    assigned(core, 0)
    core.deliver([delivered(a_work(2), 0)], at_ms())
    old = core.next_batch(at_ms(), model=MODEL)
    core.revoked([work_at()], at_ms())
    assigned(core, 0, epoch=2)
    core.deliver([delivered(a_work(2), 0)], at_ms())

    core.batch_done(answered(old), at_ms())

    assert core.plan(at_ms()) is None
    assert run_all(core) == 1
    assert len(_results(core.plan(at_ms()))) == 1


def test_a_failed_item_is_errored_and_a_culprit_becomes_a_dead_letter() -> None:
    core = a_core()
    assigned(core, 0)
    core.deliver([delivered(a_work(1), 0)], at_ms())

    core.batch_done(all_failed(core.next_batch(at_ms(), model=MODEL)), at_ms())

    plan = core.plan(at_ms())
    assert [record.topic for record in plan.records] == [
        NAMES.results("bulk"), NAMES.dead_letters("bulk"),
    ]  # fmt: skip
    assert ended_with(plan) == {"succeeded": 0, "errored": 1, "expired": 0, "cancelled": 0}


def test_after_running_out_of_memory_batches_stay_smaller() -> None:
    core = a_core(batch=BatchLimits(tokens_max=1_000))
    assigned(core, 0)
    core.deliver([delivered(a_work(60, lengths=[10] * 60), 0)], at_ms())
    first = core.next_batch(at_ms(), model=MODEL)
    no_rows = np.empty((0, 4), np.float32)
    nothing = np.empty(0, np.int64)
    core.batch_done(
        News(launch=first, done=nothing, rows=no_rows, final=False, tokens_max=200), at_ms()
    )
    core.deliver([delivered(a_work(60, lengths=[10] * 60, first_index=60), 1)], at_ms())

    assert core.next_batch(at_ms(), model=MODEL).padded_tokens <= 200


def test_a_momentary_budget_makes_the_batch_shorter() -> None:
    core = a_core()  # 1 ms and 5 us a token
    assigned(core, 0)
    core.deliver([delivered(a_work(60, lengths=[20] * 60), 0)], at_ms())

    launch = core.next_batch(at_ms(), model=MODEL, budget=Budget(ms_max=3.0))

    assert 0 < launch.predicted_ms <= 3.0


def test_items_of_several_records_share_a_batch_and_keep_their_own_answers() -> None:
    core = a_core()
    assigned(core, 0, 1)
    core.deliver([delivered(a_work(2, lengths=[3, 9]), 0, 0)], at_ms())
    core.deliver([delivered(a_work(2, lengths=[9, 3], first_index=2), 0, 1)], at_ms())

    assert run_all(core) == 1

    together = {r.items.custom_id[0]: r.outputs.data for r in _results(core.plan(at_ms()))}
    assert together["c0"] == answered_rows(a_work(2, lengths=[3, 9]))
    assert together["c2"] == answered_rows(a_work(2, lengths=[9, 3], first_index=2))


# --- pace and bounds ---


def test_bulk_waits_for_its_pace_and_final_does_not() -> None:
    core = a_core(commit_ns=100_000_000)
    assigned(core, 0)
    core.deliver([delivered(a_work(), 0)], at_ms())
    run_all(core)

    assert core.plan(at_ms(99)) is None
    assert core.wake_at(at_ms(99)) == at_ms(100).mono_ns
    assert core.plan(at_ms(99), final=True) is not None


def test_room_ends_at_the_bound_and_returns_with_the_commit() -> None:
    core = a_core(buffer_items=256, record_items=64)
    assigned(core, 0)
    assert core.room(at_ms()) == 4
    core.deliver([delivered(a_work(64, first_index=64 * n), n) for n in range(4)], at_ms())
    assert core.room(at_ms()) == 0
    run_all(core)
    assert core.room(at_ms()) == 0, "finished and uncommitted items count"

    core.settled(core.plan(at_ms()), at_ms())

    assert core.room(at_ms()) == 4


def test_room_ends_when_two_seconds_of_device_time_wait() -> None:
    core = a_core(buffer_ms=20.0)  # 1 ms a batch and 5 us a token
    assigned(core, 0)
    core.deliver([delivered(a_work(64, lengths=[80] * 64), 0)], at_ms())

    assert core.waiting_ms > 20
    assert core.room(at_ms()) == 0


def test_one_record_is_always_welcome_when_nothing_is_held() -> None:
    core = a_core(buffer_items=10, record_items=64)
    assigned(core, 0)

    assert core.room(at_ms()) == 1


def test_a_revoked_partition_leaves_nothing_behind() -> None:
    core = a_core()
    assigned(core, 0, 1)
    core.deliver([delivered(a_work(5), 0, 0), delivered(a_work(5), 0, 1)], at_ms())
    run_all(core)
    core.deliver([delivered(a_work(5, first_index=9), 1, 0)], at_ms())

    core.revoked([work_at(0), work_at(1)], at_ms())

    assert core.held_items == 0
    assert core.plan(at_ms(), final=True) is None
    core.check()
