"""The audit accepts the one right order and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamer.client.kafka_jobs import IndexSet
from tests.support.audit_history import History

COUNT = 6


@given(st.one_of(st.permutations(range(COUNT)), st.lists(st.integers(0, COUNT - 1), max_size=9)))
def test_only_the_whole_job_in_order_is_proven(order: list[int]) -> None:
    history = History(COUNT)
    honest = history.completion()
    history.rows = [history.rows[n] for n in order]
    history.completions = [honest]

    verdict = history.audit()

    firsts = list(dict.fromkeys(order))
    assert verdict.ok == (list(order) == list(range(COUNT)))
    assert verdict.lost == COUNT - len(firsts)
    assert verdict.duplicated == len(order) - len(firsts)
    assert verdict.misordered == sum(
        n < max(firsts[:at], default=-1) for at, n in enumerate(firsts)
    )


@given(st.sets(st.integers(0, 100_000)), st.lists(st.integers(0, 100_000), max_size=20))
def test_a_set_of_indexes_holds_what_was_put_in(put: set[int], asked: list[int]) -> None:
    found = IndexSet()
    for index in put:
        found.add(index)

    assert all(index in found for index in put)
    assert all((index in found) == (index in put) for index in asked)
