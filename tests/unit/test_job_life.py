"""Job life, deadlines, read-ups and closed marks, each alone."""

from __future__ import annotations

from itertools import product

import pytest

from streamer.reassemble.closed import ClosedMarks
from streamer.reassemble.deadlines import DeadlineLimits, DeadlineQueue, ReadUp, deadline_of
from streamer.reassemble.job import ENDED, LIFE, Event, IllegalTransition, Job, Life, step
from streamer.reassemble.mark import LowMark
from tests.support.results import an_entry

LIMITS = DeadlineLimits(default_ms=1_000, longest_ms=5_000, grace_ms=10)


def a_job(opened_at_ms: int = 100) -> Job:
    job = Job(key=b"k", tenant="default", job_id="job")
    job.saw(opened_at_ms)
    return job


@pytest.mark.parametrize(("life", "event"), list(product(Life, Event)))
def test_an_open_job_has_an_answer_to_every_event_and_an_ended_one_to_none(
    life: Life, event: Event
) -> None:
    if life in ENDED:
        with pytest.raises(IllegalTransition):
            step(life, event)
    else:
        assert step(life, event) is LIFE[life, event]
        assert (step(life, event) in ENDED) == (event is Event.FULL)


def test_the_earliest_named_deadline_wins_whatever_the_order() -> None:
    for deadlines in ((700, 600), (600, 700)):
        job = a_job()
        for at_ms in deadlines:
            job.learn(an_entry("seen", deadline_at_ms=at_ms))

        assert deadline_of(job, LIMITS) == 600


def test_the_descriptor_silences_deadlines_that_items_named_later() -> None:
    job = a_job()
    job.learn(an_entry("descriptor", deadline_at_ms=800))

    job.learn(an_entry("seen", deadline_at_ms=300))

    assert deadline_of(job, LIMITS) == 800


def test_a_job_that_names_no_deadline_gets_one_and_a_far_one_is_cut() -> None:
    silent, far = a_job(), a_job()
    far.learn(an_entry("seen", deadline_at_ms=1 << 60))

    assert deadline_of(silent, LIMITS) == 1_100
    assert deadline_of(far, LIMITS) == 5_100


def test_a_deadline_that_moved_earlier_is_due_once_at_the_earlier_time() -> None:
    job, queue = a_job(), DeadlineQueue(LIMITS)
    queue.note(job)
    job.learn(an_entry("seen", deadline_at_ms=500))
    queue.note(job)

    assert list(queue.due({job.key: job}, 509)) == []
    assert list(queue.due({job.key: job}, 510)) == [job]
    assert list(queue.due({job.key: job}, 9_999)) == []


def test_a_watermark_asked_for_before_the_wish_closes_nothing() -> None:
    read_up = ReadUp()
    read_up.want(b"early", Event.DUE, 10)
    read_up.want(b"late", Event.CANCEL, 20)

    read_up.answered(5, 15)

    assert read_up.finished(4) == {}
    assert read_up.finished(5) == {b"early": Event.DUE}
    assert read_up.wants_watermark()


def test_a_closed_mark_tells_origins_apart_by_partition() -> None:
    marks = ClosedMarks()
    marks.add(b"k", closed_at_ms=1, last_offset=7, origins={0: 5, 3: 9})

    assert marks.is_repeat_of_released(b"k", partition=3, offset=9)
    assert not marks.is_repeat_of_released(b"k", partition=0, offset=6)
    assert not marks.is_repeat_of_released(b"k", partition=1, offset=0)


def test_a_closed_mark_stays_until_its_last_result_is_below_the_mark() -> None:
    marks = ClosedMarks()
    marks.add(b"k", closed_at_ms=1, last_offset=7, origins={})
    marks.saw_result(b"k", 9)

    assert not marks.is_due(wall_ms=10, keep_ms=10, mark=100)
    assert not marks.is_due(wall_ms=11, keep_ms=10, mark=9)
    assert marks.is_due(wall_ms=11, keep_ms=10, mark=10)
    assert marks.take_oldest() == b"k"
    assert b"k" not in marks


def test_the_mark_is_the_lowest_held_offset_or_the_position() -> None:
    low = LowMark(3)
    for offset in (3, 5, 8):
        low.delivered(offset)
        low.hold(offset, 2)
    low.moved_to(11)

    assert low.mark() == 3
    assert [low.let_go(5), low.let_go(5)] == [False, True]
    assert low.mark() == 3
    assert [low.let_go(3), low.let_go(3)] == [False, True]
    assert low.mark() == 8
    assert [low.let_go(8), low.let_go(8)] == [False, True]
    assert low.mark() == 11


def test_an_offset_delivered_twice_is_our_mistake() -> None:
    low = LowMark(3)
    low.delivered(4)

    with pytest.raises(AssertionError):
        low.delivered(4)
