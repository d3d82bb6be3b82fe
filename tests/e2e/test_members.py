"""One job uses all workers, also those that come and go while it runs."""

from __future__ import annotations

import pytest

from streamer.client import Client
from tests.support.line import Line
from tests.support.stacks import StackFactory

pytestmark = pytest.mark.e2e


def test_a_job_uses_two_workers_then_a_third_and_goes_on_when_one_leaves(
    stack_factory: StackFactory,
) -> None:
    models = {"fake": {"engine": "fake", "fake_fixed_ms": 20.0}}
    line = Line(stack_factory(models=models, workers=2, partitions=12))

    with Client(line.settings) as client:
        job = line.submit(client, 20_000, job_id="members")
        workers: set[str] = set()
        rows = job.results(timeout_s=60)
        for _ in range(4_000):
            workers.add(next(rows).receipt.worker)
        before = set(workers)
        line.stack.add_worker()
        for _ in range(8_000):
            workers.add(next(rows).receipt.worker)
        left_cleanly = line.stack.remove("work")
        for row in rows:
            workers.add(row.receipt.worker)

    assert len(before) == 2
    assert len(workers) == 3
    assert left_cleanly
    line.assert_exact()
