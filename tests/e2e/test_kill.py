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
    "route": ("route.bulk.after_produce:2", "route.bulk.in_commit:3"),
    "work": ("work.bulk.after_offsets:2", "work.bulk.after_commit:3"),
    "aggregate": ("aggregate.bulk.after_produce:2", "aggregate.bulk.before_commit:3"),
}


@pytest.mark.parametrize("role", CRASHES)
def test_w4_w5_w6_w7_dying_inside_a_transaction_leaves_aborted_records_that_nobody_reads(
    stack_factory: StackFactory, tmp_path: Path, role: str
) -> None:
    points = ",".join(CRASHES[role])
    line = Line(
        stack_factory(
            models=SLOW_MODEL,
            env={"STREAMER_CRASH_AT": points, "STREAMER_CRASH_ONCE": str(tmp_path / "died")},
        )
    )

    with Client(line.settings) as client:
        progress = line.submit(client, ITEMS, job_id=f"die-{role}").wait(90)

    assert progress.succeeded == ITEMS
    assert (tmp_path / "died").exists()
    line.assert_exact()
    written = {
        "route": line.names.work("fake", "bulk"),
        "work": line.names.results("bulk"),
        "aggregate": line.names.outputs("bulk"),
    }
    assert line.aborted(written[role]) > 0
