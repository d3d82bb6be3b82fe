"""Work, result and output records to and from the dictionaries of their schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamer.event.columns import (
    MAX_ITEMS,
    check_answers,
    errors_datum,
    errors_of,
    expect,
    items_datum,
    items_of,
    outputs_datum,
    outputs_of,
    pack,
    receipt_datum,
    receipt_of,
    total_of,
    unpack,
)
from streamer.event.records import DIGEST_BYTES, Completion, OutputRun, ResultRecord, WorkRecord

Datum = Mapping[str, Any]

_WORK_FIELDS = (
    "lane", "tenant", "job_id", "model", "task", "revision", "tokenizer_hash", "params",
    "params_key", "form", "encoding", "reply_to", "origin_topic", "plan_version", "group_reason",
)  # fmt: skip
_RESULT_FIELDS = (
    "lane", "tenant", "job_id", "model", "task", "form", "encoding", "origin_topic",
)  # fmt: skip


def work_datum(work: WorkRecord) -> dict[str, Any]:
    """The dictionary of a work record."""
    _check_work(work)
    datum: dict[str, Any] = {name: getattr(work, name) for name in _WORK_FIELDS}
    wide = work.token_ids.dtype.itemsize == 4
    datum |= {
        "items": items_datum(work.items),
        "lengths": pack(work.lengths, "<i4"),
        "token_dtype": "u4" if wide else "u2",
        "token_ids": pack(work.token_ids, "<u4" if wide else "<u2"),
        "pair_at": None if work.pair_at is None else pack(work.pair_at, "<i4"),
        "deadline_at_ms": pack(work.deadline_at_ms, "<i8"),
        "text": None if work.text is None else ("array", work.text),
    }
    return datum


def work_of(datum: Datum) -> WorkRecord:
    """The work record of a dictionary."""
    items = items_of(datum["items"])
    texts = total_of(items.rows, "rows")
    lengths = unpack(datum["lengths"], "<i4", texts, "lengths")
    expect(datum["token_dtype"] in ("u2", "u4"), "token_dtype: unknown")
    tokens = total_of(lengths, "lengths")
    pair_at = datum["pair_at"]
    work = WorkRecord(
        **{name: datum[name] for name in _WORK_FIELDS},
        items=items,
        lengths=lengths,
        token_ids=unpack(datum["token_ids"], "<" + datum["token_dtype"], tokens, "token_ids"),
        pair_at=None if pair_at is None else unpack(pair_at, "<i4", texts, "pair_at"),
        deadline_at_ms=unpack(datum["deadline_at_ms"], "<i8", len(items), "deadline_at_ms"),
        text=datum["text"],
    )
    _check_work(work)
    return work


def _check_work(work: WorkRecord) -> None:
    texts = total_of(work.items.rows, "rows")
    expect(len(work.lengths) == texts, "column lengths: not one a text")
    expect(len(work.token_ids) == total_of(work.lengths, "lengths"), "column token_ids: length")
    expect(work.token_ids.dtype.itemsize in (2, 4), "column token_ids: width")
    expect(len(work.deadline_at_ms) == len(work.items), "column deadline_at_ms: length")
    if work.text is not None:
        expect(len(work.text) == texts, "column text: not one a text")
    if work.pair_at is not None:
        expect(len(work.pair_at) == texts, "column pair_at: not one a text")
        inside = (work.pair_at >= 0) & (work.pair_at <= work.lengths)
        expect(bool(inside.all()), "column pair_at: outside its text")


def result_datum(result: ResultRecord) -> dict[str, Any]:
    """The dictionary of a result record."""
    datum: dict[str, Any] = {name: getattr(result, name) for name in _RESULT_FIELDS}
    datum |= _rows_datum(result)
    datum["receipt"] = receipt_datum(result.receipt)
    return datum


def result_of(datum: Datum) -> ResultRecord:
    """The result record of a dictionary."""
    return ResultRecord(
        **{name: datum[name] for name in _RESULT_FIELDS},
        **_rows_of(datum),
        receipt=receipt_of(datum["receipt"]),
    )


def output_datum(output: OutputRun | Completion) -> dict[str, Any]:
    """The dictionary of a run or a completion."""
    head = {name: getattr(output, name) for name in ("lane", "tenant", "job_id", "form")}
    if isinstance(output, Completion):
        completion = {
            "status": output.status,
            "total": output.total,
            "counts": output.counts,
            "digest": output.digest,
            "reason": output.reason,
        }
        return {**head, "run": None, "completion": ("streamer.Completion", completion)}
    check_run(output)
    run = {
        "model": output.model,
        "task": output.task,
        "encoding": output.encoding,
        "origin_topic": output.origin_topic,
        "first_index": output.first_index,
        **_rows_datum(output),
        "receipts": [receipt_datum(receipt) for receipt in output.receipts],
        "receipt_at": pack(output.receipt_at, "<u2"),
        "digest": output.digest,
    }
    return {**head, "run": ("streamer.Run", run), "completion": None}


def output_of(datum: Datum) -> OutputRun | Completion:
    """The run or completion of a dictionary."""
    head = {name: datum[name] for name in ("lane", "tenant", "job_id", "form")}
    run, completion = datum["run"], datum["completion"]
    expect((run is None) != (completion is None), "not exactly one of run and completion")
    if completion is not None:
        expect(head["job_id"] is not None, "a completion without a job")
        return Completion(**head, **completion)
    rows = _rows_of(run)
    output = OutputRun(
        **head,
        model=run["model"],
        task=run["task"],
        encoding=run["encoding"],
        origin_topic=run["origin_topic"],
        first_index=run["first_index"],
        **rows,
        receipts=tuple(receipt_of(receipt) for receipt in run["receipts"]),
        receipt_at=unpack(run["receipt_at"], "<u2", len(rows["items"]), "receipt_at"),
        digest=run["digest"],
    )
    check_run(output)
    return output


def check_run(run: OutputRun) -> None:
    """Raise unless the rows are one run of a job, or one reply, with receipts."""
    count = len(run.items)
    expect(len(run.receipt_at) == count, "column receipt_at: length")
    expect(0 < len(run.receipts) <= MAX_ITEMS, "a run without receipts")
    expect(int(run.receipt_at.max()) < len(run.receipts), "column receipt_at: no such receipt")
    expect(len(run.digest) in (0, DIGEST_BYTES), "digest: length")
    if run.job_id is None:
        expect(count == 1, "a reply of several items")
        return
    ascending = run.items.index == np.arange(run.first_index, run.first_index + count)
    expect(run.first_index >= 0 and bool(ascending.all()), "column index: not a run")


def _rows_datum(record: ResultRecord | OutputRun) -> dict[str, Any]:
    check_answers(record.items, record.status, record.outputs, record.errors, record.labels)
    expect(len(record.input_tokens) == len(record.items), "column input_tokens: length")
    return {
        "items": items_datum(record.items),
        "status": pack(record.status, "u1"),
        "outputs": outputs_datum(record.outputs),
        "errors": errors_datum(record.errors),
        "input_tokens": pack(record.input_tokens, "<i4"),
        "labels": None if record.labels is None else ("array", list(record.labels)),
    }


def _rows_of(datum: Datum) -> dict[str, Any]:
    items = items_of(datum["items"])
    labels = datum["labels"]
    rows: dict[str, Any] = {
        "items": items,
        "status": unpack(datum["status"], "u1", len(items), "status"),
        "outputs": outputs_of(datum["outputs"]),
        "errors": errors_of(datum["errors"]),
        "input_tokens": unpack(datum["input_tokens"], "<i4", len(items), "input_tokens"),
        "labels": None if labels is None else tuple(labels),
    }
    check_answers(items, rows["status"], rows["outputs"], rows["errors"], rows["labels"])
    return rows
