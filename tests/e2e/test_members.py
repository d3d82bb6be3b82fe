"""One job uses all workers, also those that come and go while it runs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from streamer.client import Client
from tests.support.line import Line, fake_put, words
from tests.support.stacks import StackFactory

pytestmark = pytest.mark.e2e

STEP = 1_500
ITEMS_MAX = 400_000


def test_w13_a_job_uses_two_workers_then_a_third_and_goes_on_when_one_leaves(
    stack_factory: StackFactory,
) -> None:
    models = {"fake": {"engine": "fake", "fake_fixed_ms": 20.0}}
    line = Line(stack_factory(models=models, workers=2, partitions=12))
    enough = threading.Event()
    credit = threading.Semaphore(4 * STEP)

    def texts() -> Iterator[dict[str, Any]]:
        """Items without end until the test has seen enough, never far ahead of the reader."""
        for number in itertools.count():
            if enough.is_set() or number == ITEMS_MAX:
                return
            credit.acquire(timeout=30)
            text = words(number)
            line.ledger.put("members", number, fake_put(text, f"c{number}"))
            yield {"custom_id": f"c{number}", "input": text}

    def read(rows: Iterator[Any], wanted: int) -> set[str]:
        """Workers of rows until ``wanted`` different ones were seen, at least ``STEP`` rows."""
        seen: set[str] = set()
        for number, row in enumerate(rows):
            credit.release()
            seen.add(row.receipt.worker)
            if number >= STEP and len(seen) >= wanted:
                return seen
        return seen

    with Client(line.settings) as client:
        job = client.submit(texts(), model="fake", job_id="members", background=True)
        rows = job.results(timeout_s=60)
        two = read(rows, 2)
        line.stack.add_worker()
        three = read(rows, 3)
        left_cleanly = line.stack.remove("work")
        after = read(rows, 2)
        enough.set()
        credit.release(ITEMS_MAX)
        rest = read(rows, ITEMS_MAX)
        end = job.wait(60)

    assert len(two) == 2
    assert len(three) == 3
    assert left_cleanly
    assert len(after | rest) >= 2
    assert end.state == "completed"
    assert end.succeeded == end.total
    line.assert_exact()
