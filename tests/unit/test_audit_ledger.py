"""The audit finds every way in which a good history can be spoiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from streamer.audit.ledger import NO_DIGEST, JobLedger
from streamer.audit.range_ledger import RangeLedger
from streamer.audit.trail import Trail, WorkSeen
from streamer.audit.verdict import Verdict
from streamer.event.result_item import ResultItem
from tests.support.audit_history import (
    JOB,
    PARAMS,
    REQUESTS,
    WORK,
    History,
    digest_of,
    hole,
    request,
    row_of,
)


def test_a_good_history_is_proven() -> None:
    verdict = History().audit()

    assert verdict.ok, verdict.problems
    assert (verdict.items, verdict.succeeded, verdict.lost) == (6, 6, 0)


def test_an_empty_job_is_proven() -> None:
    assert History(0).audit().ok


def test_an_item_sent_twice_and_answered_once_is_proven() -> None:
    history = History()
    history.requests.append(((1, 50), request(3)))
    history.results.append((1, 50))

    assert history.audit().ok


def _spoil_rows(at: int, **changes: object) -> Callable[[History], None]:
    def spoil(history: History) -> None:
        history.rows[at] = replace(history.rows[at], **changes)

    return spoil


def _missing(history: History) -> None:
    honest = history.completion()
    del history.rows[2]
    history.completions = [honest]


def _repeated(history: History) -> None:
    honest = history.completion()
    history.rows.insert(4, history.rows[2])
    history.completions = [honest]


def _swapped(history: History) -> None:
    honest = history.completion()
    history.rows[2], history.rows[3] = history.rows[3], history.rows[2]
    history.completions = [honest]


def _swapped_answers(history: History) -> None:
    honest = history.completion()
    two, three = history.rows[2], history.rows[3]
    history.rows[2] = replace(two, output=three.output)
    history.rows[3] = replace(three, output=two.output)
    history.completions = [honest]


def _swapped_owners(history: History) -> None:
    two, three = history.rows[2], history.rows[3]
    history.rows[2], history.rows[3] = replace(three, index=2), replace(two, index=3)


def _cut_short(history: History) -> None:
    honest = history.completion()
    history.rows = history.rows[:-1]
    history.completions = [honest]


def _cut_short_with_a_total_to_match(history: History) -> None:
    history.rows = history.rows[:-1]


def _wrong_counts(history: History) -> None:
    history.completions = [replace(history.completion(), counts={"succeeded": 5, "errored": 1})]


def _two_completions(history: History) -> None:
    history.completions = [history.completion()] * 2


def _no_completion(history: History) -> None:
    history.completions = []


def _wrong_work_input(history: History) -> None:
    origin = history.origins[1]
    history.work[origin] = history.work[origin]._replace(digest=bytes(16))


def _expired_though_answered_by_work(history: History) -> None:
    history.rows[2] = hole(2)
    history.results.remove(history.origins[2])


def _expired_though_route_had_it(history: History) -> None:
    _expired_though_answered_by_work(history)
    del history.work[history.origins[2]]


@pytest.mark.parametrize(
    ("spoil", "lost", "duplicated", "misordered", "words"),
    [
        (_missing, 1, 0, 0, "index 2 was accepted and has no row"),
        (_repeated, 0, 1, 0, "row 2 is there again"),
        (_swapped, 0, 0, 1, "row 2 comes after row 3"),
        (_swapped_answers, 0, 0, 0, "digest of the completion"),
        (_swapped_owners, 0, 0, 0, "origin that has not this index"),
        (_cut_short, 1, 0, 0, "index 5 was accepted and has no row"),
        (_cut_short_with_a_total_to_match, 0, 0, 0, "beyond the total and has no dead letter"),
        (_wrong_counts, 0, 0, 0, "counts 5 succeeded"),
        (_two_completions, 0, 1, 0, "completion is there again"),
        (_no_completion, 0, 0, 0, "not finished"),
        (_wrong_work_input, 0, 0, 0, "work has the digest of another input"),
        (_expired_though_answered_by_work, 1, 0, 0, "lost in work"),
        (_expired_though_route_had_it, 1, 0, 0, "lost in route"),
        (_spoil_rows(1, input_digest=b"x" * 16), 0, 0, 0, "digest of another input"),
        (_spoil_rows(1, custom_id="other"), 0, 0, 0, "custom_id of another item"),
        (_spoil_rows(1, model="other"), 0, 0, 0, "another model"),
        (_spoil_rows(1, origin=(REQUESTS, 0, 77)), 0, 0, 0, "origin that has not this index"),
        (_spoil_rows(1, output=None), 0, 0, 0, "does not fit its answer"),
        (_spoil_rows(1, status="errored"), 0, 0, 0, "does not fit its answer"),
        (_spoil_rows(1, input_digest=NO_DIGEST), 0, 0, 0, "succeeded without an input"),
    ],
)
def test_each_way_to_spoil_it_is_found(
    spoil: Callable[[History], None], lost: int, duplicated: int, misordered: int, words: str
) -> None:
    history = History()
    spoil(history)
    verdict = history.audit()

    assert not verdict.ok
    assert (verdict.lost, verdict.duplicated, verdict.misordered) == (lost, duplicated, misordered)
    assert any(words in problem for problem in verdict.problems), verdict.problems


def test_a_run_that_claims_another_digest_is_found() -> None:
    ledger = JobLedger(JOB, Trail({}, {}))
    ledger.add_request((0, 0), request(0))
    asked = replace(request(0), task="embed")
    ledger.add_row(row_of(asked, (0, 0)), b"y" * 16)

    assert any("running digest" in text for text in ledger.close(state="").problems)


def test_rows_that_nobody_asked_for_are_found() -> None:
    history = History()
    del history.requests[3]

    assert any("row 3 answers a request that is not" in t for t in history.audit().problems)


def test_an_expired_job_is_right_when_its_items_never_came() -> None:
    history = History()
    history.rows[2] = hole(2)
    del history.requests[2]
    history.results.remove(history.origins[2])
    history.completions = [history.completion("expired")]
    history.state = "expired"
    verdict = history.audit()

    assert verdict.ok, verdict.problems
    assert (verdict.expired, verdict.state) == (1, "expired")


def test_an_expired_item_still_on_its_way_is_not_lost() -> None:
    history = History()
    history.rows[2] = hole(2)
    history.results.remove(history.origins[2])
    history.work_committed = {WORK: 2}
    history.completions = [history.completion("expired")]
    history.state = "expired"

    assert history.audit().ok


def test_a_dead_lettered_item_is_named_and_not_lost() -> None:
    history = History()
    history.requests.append(((0, 60), request(40)))
    history.letters.append(
        replace(history.letter(40, "index_out_of_range"), partition=0, offset=60)
    )
    verdict = history.audit()

    assert verdict.ok, verdict.problems
    assert "index_out_of_range" in verdict.dead_letters[0]


def test_an_item_beyond_the_total_without_a_letter_is_found() -> None:
    history = History()
    history.requests.append(((0, 60), request(40)))

    assert any("index 40" in problem for problem in history.audit().problems)


def test_an_open_job_counts_what_is_on_its_way() -> None:
    history = History()
    history.rows = history.rows[:3]
    history.completions = []
    history.state = "open"
    history.results = history.results[:4]
    history.work_committed = {WORK: 4}
    verdict = history.audit()

    assert (verdict.pending, verdict.lost) == (3, 0)
    assert not verdict.ok


def test_states_that_contradict_each_other_are_found() -> None:
    history = History()
    history.state = "open"

    assert any("job-state says open" in problem for problem in history.audit().problems)


def audit_range(change: Callable[[list[ResultItem]], None], passed: int = 100) -> Verdict:
    trail = Trail({0: 100}, {WORK: passed})
    asked = [replace(request(None, f"text {n}"), custom_id=f"s{n}") for n in range(4)]
    for n, one in enumerate(asked):
        trail.add_work((0, n), WorkSeen(*WORK, n, digest_of(one), "embed", PARAMS))
    ledger = RangeLedger("range", trail, {0: 4})
    for n, one in enumerate(asked):
        ledger.add_request((0, n), one)
    ledger.add_request((0, 9), request(1))
    replies = [row_of(one, (0, n)) for n, one in enumerate(asked)]
    change(replies)
    for reply in replies:
        ledger.add_reply(reply)
    return ledger.close()


def test_a_range_with_one_answer_each_is_proven() -> None:
    verdict = audit_range(lambda replies: None)

    assert verdict.ok, verdict.problems
    assert verdict.items == verdict.succeeded == 4


@pytest.mark.parametrize(
    ("change", "lost", "duplicated"),
    [
        (lambda replies: replies.pop(1), 1, 0),
        (lambda replies: replies.append(replies[1]), 0, 1),
        (lambda replies: replies.__setitem__(1, replace(replies[1], custom_id="x")), 0, 0),
        (lambda replies: replies.__setitem__(1, replace(replies[1], input_digest=b"z" * 16)), 0, 0),
        (lambda replies: replies.__setitem__(1, replace(replies[1], model="x")), 0, 0),
        (lambda replies: replies.__setitem__(1, replace(replies[1], output=None)), 0, 0),
    ],
)
def test_each_way_to_spoil_a_range_is_found(
    change: Callable[[list[ResultItem]], None], lost: int, duplicated: int
) -> None:
    verdict = audit_range(change)

    assert not verdict.ok
    assert (verdict.lost, verdict.duplicated) == (lost, duplicated)


def test_a_request_that_work_has_not_reached_is_pending() -> None:
    verdict = audit_range(lambda replies: replies.pop(3), passed=3)

    assert (verdict.pending, verdict.lost, verdict.ok) == (1, 0, False)
