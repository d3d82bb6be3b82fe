"""Jobs and single requests through all processes on a real broker."""

from __future__ import annotations

import numpy as np
import pytest

from streamer.client import Client
from streamer.infer.fake_engine import fake_vector
from streamer.route.fake_tokenizer import fake_ids
from tests.support.line import FAKE_DIMENSION, Line, words
from tests.support.stacks import StackFactory

pytestmark = pytest.mark.e2e


def test_jobs_of_both_lanes_and_single_requests_come_out_exact(
    stack_factory: StackFactory,
) -> None:
    line = Line(stack_factory())

    with Client(line.settings) as client:
        big = line.submit(client, 5_000, job_id="big")
        small = line.submit(client, 1, job_id="small")
        empty = client.submit([], model="fake", job_id="empty")
        vectors = client.embed([words(n) for n in range(100)], model="fake")
        fast = Line(line.stack)
        fast_job = fast.submit(client, 500, job_id="fast", lane="fast")
        rows = list(big.results(timeout_s=30))
        ends = [job.wait(30) for job in (big, small, empty, fast_job)]

    assert [row.index for row in rows] == list(range(5_000))
    assert [end.state for end in ends] == ["completed"] * 4
    assert [end.succeeded for end in ends] == [5_000, 1, 0, 500]
    for number in range(100):
        ids = np.array(fake_ids(words(number)), np.uint16)
        assert np.array_equal(vectors[number], fake_vector(ids, FAKE_DIMENSION))
    line.assert_exact()
    fast.assert_exact("fast")
    assert line.dead_letters() == line.dead_letters("fast") == 0


def test_a_finished_job_can_be_read_again_from_any_index(stack_factory: StackFactory) -> None:
    line = Line(stack_factory())

    with Client(line.settings) as client:
        line.submit(client, 700, job_id="again").wait(30)
        later = client.job("again")
        tail = list(later.results(start=650, timeout_s=20))
        repeated = line.submit(client, 700, job_id="again").wait(30)

    assert [row.index for row in tail] == list(range(650, 700))
    assert repeated.succeeded == 700
    line.assert_exact()
