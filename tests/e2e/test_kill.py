"""kill -9 of each process in mid-job: nothing lost, repeated or out of order."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamer.client import Client
from tests.support.line import Line
from tests.support.stacks import StackFactory

pytestmark = pytest.mark.e2e

ITEMS = 6_000
SLOW_MODEL = {"fake": {"engine": "fake", "fake_fixed_ms": 4.0}}


@pytest.mark.parametrize("role", ["route", "work", "aggregate"])
def test_w2_ag1_killing_a_process_in_mid_job_changes_no_output(
    stack_factory: StackFactory, role: str
) -> None:
    line = Line(stack_factory(models=SLOW_MODEL))

    with Client(line.settings) as client:
        job = line.submit(client, ITEMS, job_id=f"kill-{role}")
        rows = job.results(timeout_s=60)
        for _ in range(3):
            for _ in range(400):
                next(rows)
            line.stack.kill(role)
        left = sum(1 for _ in rows)

    assert 3 * 400 + left == ITEMS
    line.assert_exact()


CRASHES = {
    "route": ("after_produce:2", "in_commit:2"),
    "work": ("after_offsets:2", "after_commit:2"),
    # Its successor finds all that came meanwhile at once, and emits it in few transactions.
    "aggregate": ("after_produce:1", "before_commit:1"),
}


@pytest.mark.parametrize("role", CRASHES)
def test_w4_w5_w6_w7_dying_inside_a_transaction_leaves_aborted_records_that_nobody_reads(
    stack_factory: StackFactory, tmp_path: Path, role: str
) -> None:
    points = [f"{role}.bulk.{point}" for point in CRASHES[role]]
    died = tmp_path / "died"
    line = Line(
        stack_factory(
            models=SLOW_MODEL,
            env={"STREAMER_CRASH_AT": ",".join(points), "STREAMER_CRASH_ONCE": str(died)},
        )
    )

    with Client(line.settings) as client:
        progress = line.submit(client, ITEMS, job_id=f"die-{role}").wait(120)

    assert progress.succeeded == ITEMS
    for point in points:
        assert Path(f"{died}.{point.partition(':')[0]}").exists(), f"{point} was never reached"
    line.assert_exact()
    written = {
        "route": line.names.work("fake", "bulk"),
        "work": line.names.results("bulk"),
        "aggregate": line.names.outputs("bulk"),
    }
    assert line.aborted(written[role]) > 0
