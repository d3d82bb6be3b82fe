"""What aggregate does with rows, jobs and time, case by case."""

from __future__ import annotations

import hashlib
import struct

import pytest

from streamer.event.codes import EXPIRED, SUCCEEDED
from streamer.event.lane import OutRecord, TopicPartition
from streamer.event.records import OutputRun
from tests.support.aggregate_world import (
    RESULTS,
    AggregateWorld,
    some_limits,
)
from tests.support.results import Row, a_result, an_entry, rows


def digest_of(*items: tuple[int, int, bytes, bytes]) -> bytes:
    """The running digest written out again: (index, status, input digest, answer)."""
    digest = bytes(16)
    for index, status, name, answer in items:
        data = digest + struct.pack("<qB", index, status) + name + answer
        digest = hashlib.blake2b(data, digest_size=16).digest()
    return digest


def test_rows_that_come_in_reverse_leave_in_order() -> None:
    world = AggregateWorld()
    world.entry(an_entry(total=9))
    for index in reversed(range(9)):
        world.result(a_result(rows(index, value=index)))

    world.settle()

    assert world.released() == list(range(9))
    (completion,) = world.completions()
    assert (completion.status, completion.total) == ("completed", 9)
    assert completion.counts["succeeded"] == 9
    expected = [
        (r.index, SUCCEEDED, r.digest, r.answer) for i in range(9) for r in rows(i, value=i)
    ]
    assert completion.digest == digest_of(*expected)


def test_a_hole_is_never_complete_and_holds_the_mark() -> None:
    world = AggregateWorld()
    world.entry(an_entry(total=3))
    world.result(a_result(rows(0)))
    hole = world.result(a_result(rows(2)))

    world.settle()

    assert world.released() == [0]
    assert world.completions() == []
    assert world.committed[0] == hole

    world.result(a_result(rows(1)))
    world.settle()

    assert world.released() == [0, 1, 2]
    assert len(world.completions()) == 1
    assert world.committed[0] == 3


def test_the_last_row_and_the_completion_share_a_transaction() -> None:
    world = AggregateWorld(some_limits(plan_rows=100))
    world.entry(an_entry(total=2))
    world.hear()
    world.result(a_result(rows(1, 0)))
    world.deliver()

    assert world.commit()

    assert world.released() == [0, 1]
    assert len(world.completions()) == 1


def test_no_completion_before_the_log_is_read_as_far_as_it_went_at_assignment() -> None:
    world = AggregateWorld()
    world.entry(an_entry(total=2))
    world.result(a_result(rows(0, 1)))
    world.result(a_result(rows(7), job_id="other"))
    world.restart()

    world.deliver(count=1)
    world.commit()

    assert world.released() == [0]
    assert world.completions() == []

    world.settle()

    assert world.released() == [0, 1]
    assert len(world.completions()) == 1


def test_a_late_total_completes_nothing_before_the_log_is_read_that_far() -> None:
    world = AggregateWorld()
    world.result(a_result(rows(0, 1)))
    world.settle()
    world.result(a_result(rows(7), job_id="other"))
    world.entry(an_entry("total", total=2))
    world.restart()

    world.commit()
    assert world.completions() == []
    world.settle()

    assert len(world.completions()) == 1


def test_a_restart_counts_what_is_read_again_and_writes_no_dead_letter() -> None:
    world = AggregateWorld()
    world.result(a_result(rows(5)))
    world.result(a_result(rows(0, 1)))
    world.settle()
    assert world.committed[0] == 0

    world.restart()
    world.settle()

    assert world.released() == [0, 1]
    assert world.core.tally.late == 2
    assert world.letters() == []


def test_an_empty_job_completes() -> None:
    world = AggregateWorld()
    world.entry(an_entry("descriptor", total=0, form="avro"))

    world.settle()

    (completion,) = world.completions()
    assert (completion.status, completion.total, completion.digest) == ("completed", 0, bytes(16))


def test_a_total_that_comes_after_the_last_row_completes_the_job() -> None:
    world = AggregateWorld()
    world.result(a_result(rows(0, 1)))
    world.settle()
    assert world.released() == [0, 1]

    world.entry(an_entry("total", total=2))
    world.settle()

    assert len(world.completions()) == 1


@pytest.mark.parametrize("same", ["origin", "input"])
def test_a_repeat_of_a_waiting_row_is_counted(same: str) -> None:
    world = AggregateWorld()
    world.result(a_result([Row(index=1, value=1, text="a", origin=(0, 5))]))
    again = (
        Row(index=1, value=2, text="b", origin=(0, 5))
        if same == "origin"
        else Row(index=1, value=2, text="a", origin=(0, 9))
    )
    world.result(a_result([again]))

    world.settle()

    assert world.core.tally.repeated == 1
    assert world.letters() == []


def test_another_request_under_a_waiting_index_becomes_a_dead_letter() -> None:
    world = AggregateWorld()
    world.entry(an_entry(total=2))
    world.result(a_result([Row(index=1, value=1, text="a", origin=(3, 5))]))
    world.result(a_result([Row(index=1, value=2, text="b", origin=(3, 9))]))

    world.settle()

    (letter,) = world.letters()
    assert (letter.code, letter.partition, letter.offset, letter.index) == (
        "repeated_index",
        3,
        9,
        1,
    )
    assert letter.value is None

    world.result(a_result(rows(0)))
    world.settle()

    assert [run.items.custom_id for run in world.outputs() if isinstance(run, OutputRun)][-1][
        -1
    ] == "c1@3:5"


def test_after_release_a_repeat_is_judged_by_its_origin() -> None:
    world = AggregateWorld()
    world.result(a_result([Row(index=0, origin=(0, 5))]))
    world.settle()
    world.result(a_result([Row(index=0, text="x", origin=(0, 5))]))
    world.result(a_result([Row(index=0, text="y", origin=(0, 6))]))
    world.result(a_result([Row(index=0, text="z", origin=(1, 0))]))

    world.settle()

    assert world.core.tally.late == 1
    assert [(each.code, each.partition, each.offset) for each in world.letters()] == [
        ("repeated_index", 0, 6),
        ("repeated_index", 1, 0),
    ]
    assert world.released() == [0]


def test_a_row_twice_in_one_record_is_one_row() -> None:
    world = AggregateWorld()
    world.entry(an_entry(total=1))
    world.result(a_result([*rows(0, value=1), *rows(0, value=2)]))

    world.settle()

    assert world.released() == [0]
    assert world.core.tally.repeated == 1


def test_indices_outside_the_total_become_dead_letters_whenever_the_total_comes() -> None:
    world = AggregateWorld()
    world.result(a_result(rows(4, -1)))
    world.settle()
    world.entry(an_entry(total=4))
    world.settle()
    world.result(a_result(rows(9)))
    world.result(a_result(rows(3, 2, 1, 0)))

    world.settle()

    assert [(each.code, each.index) for each in world.letters()] == [
        ("index_out_of_range", -1),
        ("index_out_of_range", 4),
        ("index_out_of_range", 9),
    ]
    assert world.released() == [0, 1, 2, 3]
    assert world.committed[0] == 3


def test_carried_copies_are_no_duplicates() -> None:
    world = AggregateWorld()
    world.result(a_result(rows(1)))
    world.result(a_result(rows(1)), carried=True)

    world.settle()

    assert (world.core.tally.carried, world.core.tally.repeated) == (1, 0)


def test_the_first_total_wins_and_the_conflict_is_said() -> None:
    world = AggregateWorld()
    world.entry(an_entry(total=2))
    world.hear()
    world.commit()
    world.entry(an_entry("total", total=5))
    world.result(a_result(rows(0, 1)))

    world.settle()

    (completion,) = world.completions()
    assert (completion.status, completion.total) == ("completed", 2)
    assert completion.reason == "conflicting totals"


def test_garbage_in_results_becomes_a_dead_letter_with_its_bytes() -> None:
    world = AggregateWorld()
    offset = world.result(a_result(rows(0)))
    log = world.logs[TopicPartition(RESULTS, 0)]
    log.append(OutRecord(RESULTS, 0, b"k", b"not avro"), world.wall_ms)

    world.settle()

    (letter,) = world.letters()
    assert (letter.topic, letter.offset, letter.value) == (RESULTS, offset + 1, b"not avro")
    assert world.released() == [0]
    assert world.committed[0] == 2


def test_only_what_a_reader_shares_stands_in_one_run() -> None:
    world = AggregateWorld(some_limits(plan_rows=100))
    world.entry(an_entry(total=5))
    world.result(a_result(rows(0, 1), model="a"))
    world.result(a_result(rows(2), model="b"))
    world.result(a_result([Row(index=3, status=EXPIRED, origin=(0, 3))], model="b"))
    world.result(a_result(rows(4), model="b", kind="scores"))

    world.settle()

    runs = [run for run in world.outputs() if isinstance(run, OutputRun)]
    assert [(run.model, run.first_index, len(run.items)) for run in runs] == [
        ("a", 0, 2),
        ("b", 2, 2),
        ("b", 4, 1),
    ]


def test_pacing_waits_for_company_and_says_when_to_wake() -> None:
    world = AggregateWorld(some_limits(commit_ms=50, plan_rows=100))
    world.result(a_result(rows(0)))
    world.deliver()

    assert world.core.plan(world.now()) is None
    assert world.core.wake_at(world.now()) == 50_000_000
    world.pass_time(50)

    assert world.core.plan(world.now()) is not None


def test_one_emission_touches_at_most_sixteen_partitions() -> None:
    world = AggregateWorld(some_limits(12, plan_rows=1_000))
    for number in range(60):
        world.entry(an_entry(job_id=f"j{number}", total=1))
        world.result(a_result([Row(index=0, origin=(number % 12, 0))], job_id=f"j{number}"))
        world.result(a_result([Row(index=3, origin=(number % 12, 1))], job_id=f"j{number}"))

    world.settle()  # ``commit`` counts the partitions

    assert all(len(world.completions(f"j{number}")) == 1 for number in range(60))
    assert len(world.letters()) == 60


def test_a_result_that_no_check_foresaw_is_a_dead_letter_without_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = AggregateWorld()
    world.result(a_result(rows(0)))

    def decode(value: bytes) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr("streamer.reassemble.partition.wire.decode_result", decode)
    world.deliver()
    world.commit()

    (letter,) = world.letters()
    assert (letter.code, letter.message) == (
        "corrupt_record", "RuntimeError while reading the result",
    )  # fmt: skip
    assert world.committed[0] == 1
