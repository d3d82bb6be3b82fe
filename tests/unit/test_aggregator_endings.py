"""How jobs end: by deadline, by cancel, and what is remembered of them, case by case."""

from __future__ import annotations

from streamer.event.codes import CANCELLED, ERRORED, SUCCEEDED
from streamer.event.records import OutputRun
from tests.support.aggregate_world import (
    JOBS,
    START_MS,
    STATES,
    AggregateWorld,
    some_limits,
)
from tests.support.results import Row, a_result, an_entry, rows


def test_a_job_expires_with_a_row_for_every_hole() -> None:
    world = AggregateWorld()
    world.entry(an_entry(total=12, deadline_at_ms=START_MS + 500))
    world.result(a_result([*rows(1, 2, value=3), Row(index=5, status=ERRORED, origin=(0, 5))]))
    world.settle()
    assert world.released() == []

    world.pass_time(599)
    world.settle()
    assert world.completions() == []
    world.pass_time(1)
    world.settle()

    assert world.released() == list(range(12))
    (completion,) = world.completions()
    assert (completion.status, completion.reason) == ("expired", "deadline")
    assert completion.counts == {"succeeded": 2, "errored": 1, "expired": 9, "cancelled": 0}
    assert world.committed[0] == 1
    holes = [
        (run.first_index + error.row, error.code)
        for run in world.outputs()
        if isinstance(run, OutputRun)
        for error in run.errors
    ]
    assert holes == [
        (i, "model_error" if i == 5 else "expired") for i in range(12) if i not in (1, 2)
    ]


def test_expiry_waits_for_what_was_in_the_log_when_the_deadline_passed() -> None:
    world = AggregateWorld()
    world.entry(an_entry(total=2, deadline_at_ms=START_MS + 10))
    world.result(a_result(rows(0)))
    world.settle()
    world.pass_time(1_000)
    late = world.result(a_result(rows(1)))

    assert world.answer() == [(0, late + 1)]
    world.commit()
    assert world.completions() == []
    world.settle()

    (completion,) = world.completions()
    assert completion.status == "completed"


def test_a_job_without_total_expires_up_to_its_highest_index() -> None:
    world = AggregateWorld()
    world.result(a_result(rows(2)))
    world.settle()
    world.pass_time(10_100)

    world.settle()

    (completion,) = world.completions()
    assert (completion.status, completion.total) == ("expired", 3)
    assert completion.counts == {"succeeded": 1, "errored": 0, "expired": 2, "cancelled": 0}


def test_a_total_claimed_in_error_does_not_fill_the_disk() -> None:
    world = AggregateWorld(some_limits(fill_max=10))
    world.entry(an_entry(total=1 << 60, deadline_at_ms=START_MS + 1))
    world.result(a_result(rows(1)))
    world.settle()
    world.pass_time(1_000)

    world.settle()

    (completion,) = world.completions()
    assert (completion.status, completion.total) == ("expired", 2)
    assert "conflicting totals" in completion.reason


def test_a_restart_does_not_forget_that_the_descriptor_names_the_deadline() -> None:
    world = AggregateWorld()
    world.entry(an_entry("descriptor", total=2, deadline_at_ms=START_MS + 5_000, form="avro"))
    world.hear()
    world.entry(an_entry("seen", total=2, deadline_at_ms=START_MS + 10))
    world.settle()
    world.entry(an_entry("descriptor", total=2, deadline_at_ms=START_MS + 5_000, form="avro"))
    world.restart()
    world.pass_time(2_000)

    world.settle()
    assert world.completions() == []
    world.pass_time(3_100)
    world.settle()

    assert [each.status for each in world.completions()] == ["expired"]


def test_a_job_whose_items_all_vanished_ends_in_the_form_that_route_saw() -> None:
    world = AggregateWorld()
    world.entry(an_entry("seen", total=2, deadline_at_ms=START_MS + 10, form="avro"))
    world.settle()
    world.pass_time(1_000)

    world.settle()

    assert world.released() == [0, 1]
    assert [each.status for each in world.completions()] == ["expired"]


def test_a_restart_does_not_forget_the_last_result_of_an_ended_job() -> None:
    world = AggregateWorld(some_limits(closed_keep_ms=1_000))
    world.result(a_result(rows(1), job_id="slow"))
    world.entry(an_entry(job_id="slow", deadline_at_ms=START_MS + 50_000))
    world.entry(an_entry(total=1))
    world.result(a_result(rows(0)))
    world.settle()
    world.restart()
    world.pass_time(2_000)

    world.commit()

    assert len([key for key in world.live_keys(STATES) if b"/job" in key]) == 1


def test_a_cancel_closes_after_what_is_in_the_log() -> None:
    world = AggregateWorld()
    world.entry(an_entry(total=4))
    world.result(a_result(rows(0)))
    world.settle()
    world.result(a_result(rows(2)))
    world.entry(an_entry("cancel"))

    world.settle()

    (completion,) = world.completions()
    assert (completion.status, completion.reason) == ("cancelled", "cancel")
    assert completion.counts == {"succeeded": 2, "errored": 0, "expired": 0, "cancelled": 2}
    statuses = [
        int(status)
        for run in world.outputs()
        if isinstance(run, OutputRun)
        for status in run.status
    ]
    assert statuses == [SUCCEEDED, CANCELLED, SUCCEEDED, CANCELLED]


def test_filling_goes_on_after_a_crash_without_judging_again() -> None:
    world = AggregateWorld()
    world.entry(an_entry(total=30, deadline_at_ms=START_MS + 1))
    world.result(a_result(rows(20)))
    world.settle()
    world.pass_time(1_000)
    world.answer()
    world.commit()
    begun = len(world.released())
    assert 0 < begun < 30

    for index in range(30):
        world.result(a_result(rows(index)))
    world.restart()
    world.settle()

    assert world.released() == list(range(30))
    (completion,) = world.completions()
    assert completion.status == "expired"
    assert completion.counts["expired"] == begun


def test_what_arrives_for_an_ended_job_is_counted_or_a_dead_letter() -> None:
    world = AggregateWorld()
    world.entry(an_entry(total=1))
    world.result(a_result([Row(index=0, origin=(0, 5))]))
    world.settle()
    world.restart()
    world.result(a_result([Row(index=0, origin=(0, 5))]))
    world.result(a_result([Row(index=0, origin=(0, 6))]))

    world.settle()

    assert world.core.tally.late == 1
    assert [each.code for each in world.letters()] == ["job_closed"]
    assert len(world.completions()) == 1


def test_entries_of_an_ended_job_get_tombstones_also_when_they_come_back() -> None:
    world = AggregateWorld()
    world.entry(an_entry("descriptor", total=1))
    world.entry(an_entry("seen", total=1))
    world.result(a_result(rows(0)))
    world.settle()
    assert world.live_keys(JOBS) == {}

    world.entry(an_entry("cancel"))
    assert world.live_keys(JOBS) != {}
    world.settle()

    assert world.live_keys(JOBS) == {}
    assert len(world.completions()) == 1


def test_a_closed_mark_goes_after_its_time_but_never_before_its_last_result() -> None:
    world = AggregateWorld(some_limits(closed_keep_ms=1_000))
    held = world.result(a_result(rows(1), job_id="slow"))
    world.entry(an_entry(total=1))
    world.entry(an_entry(job_id="slow", deadline_at_ms=START_MS + 50_000))
    world.result(a_result(rows(0)))
    world.settle()
    assert len(world.completions()) == 1
    assert world.committed[0] == held

    world.pass_time(2_000)
    world.settle()
    assert len([key for key in world.live_keys(STATES) if b"/job" in key]) == 1

    world.result(a_result(rows(0), job_id="slow"))
    world.settle()
    assert [key for key in world.live_keys(STATES) if b"/job" in key] == []


def test_an_index_typed_in_error_does_not_fill_the_disk() -> None:
    world = AggregateWorld(some_limits(fill_max=10))
    world.entry(an_entry(deadline_at_ms=START_MS + 1))
    world.result(a_result(rows(0, 2)))
    world.result(a_result(rows(1 << 52)))
    world.settle()
    world.pass_time(1_000)

    world.settle()

    assert world.released() == [0, 1, 2]
    (completion,) = world.completions()
    assert (completion.status, completion.total) == ("expired", 3)
    assert completion.reason == "deadline, conflicting totals"
    assert [(letter.code, letter.index) for letter in world.letters()] == [
        ("index_out_of_range", 1 << 52)
    ]


def test_rows_far_apart_are_released_as_long_as_few_holes_lie_between() -> None:
    world = AggregateWorld(some_limits(fill_max=10))
    world.entry(an_entry(total=40, deadline_at_ms=START_MS + 1))
    world.result(a_result(rows(*range(5, 35))))
    world.settle()
    world.pass_time(1_000)

    world.settle()

    (completion,) = world.completions()
    assert (completion.status, completion.total) == ("expired", 40)
    assert completion.counts["expired"] == 10
