"""Rows scattered over records in any way come back as the same rows, one after another."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.event import wire
from streamer.event.codes import CANCELLED, ERRORED, SUCCEEDED
from streamer.event.records import ItemError, OutputRun
from streamer.reassemble.held import Held
from streamer.reassemble.job import Job
from streamer.reassemble.runs import RunBuilder, RunLimits
from tests.support.results import Row, a_result

HOLE = ItemError(row=0, code="cancelled", message="cancelled")


@st.composite
def rows_of_a_job(draw: st.DrawFn) -> list[Row | None]:
    count = draw(st.integers(1, 40))
    rows: list[Row | None] = []
    for index in range(count):
        if draw(st.integers(0, 9)) == 0:
            rows.append(None)
            continue
        status = draw(st.sampled_from([SUCCEEDED, SUCCEEDED, SUCCEEDED, ERRORED]))
        rows.append(
            Row(
                index=index, value=index + 0.5, origin=(index % 3, 10 * index), status=status,
                texts=draw(st.integers(1, 3)), metadata=draw(st.sampled_from([None, "{}"])),
            )
        )  # fmt: skip
    return rows


def scattered(rows: list[Row | None], per_record: int, seed: int) -> dict[int, tuple[Held, int]]:
    """Index -> where its row lies, in shuffled records."""
    known = [row for row in rows if row is not None]
    random.Random(seed).shuffle(known)
    places: dict[int, tuple[Held, int]] = {}
    for number, at in enumerate(range(0, len(known), per_record)):
        here = known[at : at + per_record]
        record = a_result(here, worker=f"w{number}", model="ab"[number % 2])
        held = Held(wire.decode_result(wire.encode_result(record)), 1)
        places |= {row.index: (held, position) for position, row in enumerate(here)}
    return places


def told_rows(run: OutputRun) -> list[tuple[object, ...]]:
    """Each row of a run as a reader sees it."""
    data = b"" if run.outputs is None else run.outputs.data
    errors = {error.row: error.code for error in run.errors}
    found = []
    for at in range(len(run.items)):
        size = 8 * int(run.items.rows[at]) if run.status[at] == SUCCEEDED else 0
        answer, data = data[:size], data[size:]
        found.append(
            (
                int(run.items.index[at]), run.items.custom_id[at], int(run.status[at]), answer,
                errors.get(at), run.receipts[run.receipt_at[at]].worker,
                None if run.items.metadata is None else run.items.metadata[at],
                (int(run.items.origin_partition[at]), int(run.items.origin_offset[at])),
                run.items.digest_of(at),
            )
        )  # fmt: skip
    assert data == b""
    return found


@settings(deadline=None)
@given(rows_of_a_job(), st.integers(1, 9), st.integers(0, 99), st.integers(1, 8),
       st.integers(100, 2_000))  # fmt: skip
def test_runs_tell_every_row_once_and_in_order(
    rows: list[Row | None], per_record: int, seed: int, items_max: int, bytes_max: int
) -> None:
    places = scattered(rows, per_record, seed)
    job = Job(key=b"k", tenant="default", job_id="job")
    limits = RunLimits(items_max=items_max, bytes_max=bytes_max)
    builder = RunBuilder(job, lane="bulk", limits=limits)

    for index, row in enumerate(rows):
        if row is None:
            builder.add_hole(CANCELLED, HOLE)
        else:
            builder.add(*places[index])
    builder.cut()

    runs = [wire.decode_output(wire.encode_output(run)) for run in builder.runs]
    expected = [
        (index, "", CANCELLED, b"", "cancelled", "", None, (-1, -1), bytes(16))
        if row is None
        else (
            index, row.custom_id, row.status, row.answer,
            None if row.status == SUCCEEDED else "model_error",
            places[index][0].record.receipt.worker, row.metadata, row.origin, row.digest,
        )
        for index, row in enumerate(rows)
    ]  # fmt: skip
    assert [told for run in runs for told in told_rows(run)] == expected
    for run in runs:
        assert len(run.items) <= items_max
        # Everything but the rows (names of the job, receipts, schema) fits into 1,000 bytes.
        assert len(wire.encode_output(run)) <= bytes_max + 1_000 or len(run.items) == 1
        models = {
            places[i][0].record.model for i in run.items.index.tolist() if rows[i] is not None
        }
        assert models <= {run.model}
    assert job.next_index == len(rows)
