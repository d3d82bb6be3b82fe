"""The tests' own ledger must find what it is there to find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.ledger import Ledger, Put, Report, Seen, swapped, text_hash

COUNT = 6


def ledger(count: int = COUNT) -> Ledger:
    book = Ledger()
    for n in range(count):
        vector = np.array([n, -n], np.float32)
        book.put("j", n, Put(custom_id=f"c{n}", text_hash=text_hash(str(n)), vector=vector))
    return book


def rows(count: int = COUNT) -> list[Seen]:
    return [
        Seen(job_id="j", index=n, custom_id=f"c{n}", status="succeeded",
             vector=np.array([n, -n], np.float32))
        for n in range(count)
    ]  # fmt: skip


def test_one_right_row_each_is_fine() -> None:
    report = ledger().check_job("j", rows())

    assert report.ok
    assert report.states["succeeded"] == COUNT


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (lambda seen: seen.pop(2), "lost"),
        (lambda seen: seen.insert(5, seen[1]), "duplicated"),
        (lambda seen: seen.reverse(), "misordered"),
        (lambda seen: seen.__setitem__(1, replace(seen[1], custom_id="c2")), "wrong"),
        (lambda seen: seen.__setitem__(1, replace(seen[1], vector=seen[2].vector)), "wrong"),
        (lambda seen: seen.__setitem__(1, replace(seen[1], vector=None)), "wrong"),
        (lambda seen: seen.__setitem__(1, replace(seen[1], status="errored")), "wrong"),
        (lambda seen: seen.__setitem__(1, replace(seen[1], status="fine")), "wrong"),
        (lambda seen: seen.__setitem__(
            1, replace(seen[1], vector=np.array([np.nan, 0], np.float32))), "wrong"),
        (lambda seen: seen.__setitem__(
            1, replace(seen[1], vector=np.array([1], np.float32))), "wrong"),
        (lambda seen: seen.append(replace(seen[1], index=99)), "foreign"),
    ],
)  # fmt: skip
def test_each_way_to_spoil_the_output_is_counted(
    spoil: Callable[[list[Seen]], object], where: str
) -> None:
    seen = rows()
    spoil(seen)
    report = ledger().check_job("j", seen)

    assert not report.ok
    assert getattr(report, where) >= 1
    assert report.problems


def test_a_job_must_be_completed_once() -> None:
    assert not ledger().check_job("j", rows(), completions=0).ok
    assert not ledger().check_job("j", rows(), completions=2).ok


def test_rows_of_other_jobs_are_passed_over() -> None:
    other = [replace(row, job_id="k") for row in rows()]

    assert ledger().check_job("j", [*other, *rows()]).ok


def test_expected_states_are_compared() -> None:
    book = Ledger()
    book.put("j", 0, Put(custom_id="a", status="errored"))
    bad = Seen(job_id="j", index=0, custom_id="a", status="errored", error_code="empty_input")

    assert book.check_job("j", [bad]).ok
    assert book.check_job("j", [replace(bad, status="succeeded")]).wrong == 1


def test_single_requests_get_one_answer_each() -> None:
    book = Ledger()
    for n in range(3):
        book.put_single(Put(custom_id=f"c{n}"))
    good = [Seen(job_id=None, index=None, custom_id=f"c{n}", status="succeeded") for n in range(3)]

    assert book.check_single(good).ok
    assert book.check_single(good[1:]).lost == 1
    assert book.check_single([*good, good[0]]).duplicated == 1
    with pytest.raises(ValueError, match="in the ledger"):
        book.put_single(Put(custom_id="c1"))


def test_the_owner_of_a_swapped_vector_is_found() -> None:
    seen = rows()
    seen[1], seen[4] = (
        replace(seen[1], vector=seen[4].vector),
        replace(seen[4], vector=seen[1].vector),
    )

    assert swapped(ledger().jobs["j"], seen) == [(1, 4), (4, 1)]


@given(st.lists(st.integers(0, COUNT - 1), max_size=12))
def test_the_counts_are_those_of_a_naive_look(order: list[int]) -> None:
    good = rows()
    report: Report = ledger().check_job("j", [good[n] for n in order])

    firsts = list(dict.fromkeys(order))
    assert report.lost == COUNT - len(firsts)
    assert report.duplicated == len(order) - len(firsts)
    assert report.misordered == sum(n < max(firsts[:at], default=-1) for at, n in enumerate(firsts))
