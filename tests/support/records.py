"""Records for tests: builders that show only what matters, and Hypothesis strategies."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from streamer.event.codes import ENCODINGS, ERRORED, FLAG_LIST, SUCCEEDED
from streamer.event.records import (
    BucketPlan,
    Completion,
    DeadLetter,
    Fact,
    InferenceRequest,
    InputRow,
    ItemColumns,
    ItemError,
    JobEntry,
    JobState,
    OutputRun,
    Outputs,
    Receipt,
    ResultRecord,
    WorkRecord,
)
from streamer.event.request_input import canonical_input

TEXT = st.text(max_size=20)
FILLED = st.text(min_size=1, max_size=20).filter(lambda text: not text.isspace())
NAME = st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True)
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
NATURAL = st.integers(0, 2**63 - 1)
JSON_TEXT = st.sampled_from(['{"a":[1,2.5,null]}', '"x"', "true", '{"ä":"ö"}'])


def same(left: Any, right: Any) -> bool:
    """Whether two records are equal, arrays by value and kind of number."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        kinds = np.asarray(left).dtype.newbyteorder("=") == np.asarray(right).dtype.newbyteorder(
            "="
        )
        return kinds and np.array_equal(left, right)
    if hasattr(left, "__dataclass_fields__"):
        return type(left) is type(right) and all(
            same(getattr(left, name), getattr(right, name)) for name in left.__dataclass_fields__
        )
    return bool(left == right)


def column(draw: st.DrawFn, values: st.SearchStrategy[Any], count: int, dtype: str) -> Any:
    return np.array(draw(st.lists(values, min_size=count, max_size=count)), dtype=dtype)


@st.composite
def items(draw: st.DrawFn, count: int, first: int | None = None) -> ItemColumns:
    index = column(draw, INT64, count, "<i8") if first is None else np.arange(first, first + count)
    rows = column(draw, st.integers(0, 3), count, "<i4")
    flags = column(draw, st.integers(0, 3), count, "u1")
    metadata = st.lists(st.none() | JSON_TEXT, min_size=count, max_size=count)
    return ItemColumns(
        index=index.astype("<i8"),
        custom_id=draw(st.lists(TEXT, min_size=count, max_size=count)),
        origin_partition=column(draw, INT32, count, "<i4"),
        origin_offset=column(draw, INT64, count, "<i8"),
        rows=rows,
        metadata=draw(st.none() | metadata),
        input_digest=draw(st.binary(min_size=16 * count, max_size=16 * count)),
        accepted_at_ms=column(draw, INT64, count, "<i8"),
        flags=flags | np.where(rows != 1, FLAG_LIST, 0).astype("u1"),
    )


@st.composite
def works(draw: st.DrawFn) -> WorkRecord:
    columns = draw(items(draw(st.integers(1, 5))))
    texts = int(columns.rows.sum())
    lengths = column(draw, st.integers(0, 5), texts, "<i4")
    width = draw(st.sampled_from(["<u2", "<u4"]))
    ids = st.integers(0, 65_535 if width == "<u2" else 2**32 - 1)
    return WorkRecord(
        lane=draw(TEXT), model=draw(TEXT), revision=draw(TEXT), tokenizer_hash=draw(TEXT),
        task=draw(TEXT), params=draw(TEXT), params_key=draw(TEXT), tenant=draw(TEXT),
        job_id=draw(st.none() | TEXT), form=draw(TEXT), encoding=draw(TEXT),
        reply_to=draw(st.none() | INT32), origin_topic=draw(TEXT), plan_version=draw(INT64),
        group_reason=draw(TEXT), items=columns, lengths=lengths,
        token_ids=column(draw, ids, int(lengths.sum()), width),
        pair_at=draw(st.sampled_from([None, lengths // 2])),
        deadline_at_ms=column(draw, INT64, len(columns), "<i8"),
        text=draw(st.none() | st.lists(TEXT, min_size=texts, max_size=texts)),
    )  # fmt: skip


RECEIPTS = st.builds(
    Receipt, revision=TEXT, tokenizer_hash=TEXT, dtype=TEXT,
    batch_ids=st.lists(TEXT, max_size=3).map(tuple), batch_size=INT32, padded_tokens=INT32,
    attempt=INT32, source_partition=INT32, source_offset=INT64, worker=TEXT,
)  # fmt: skip


@st.composite
def answers(draw: st.DrawFn, columns: ItemColumns) -> dict[str, Any]:
    """Status, outputs, errors, labels and encoding that fit each other and the items."""
    count = len(columns)
    status = column(draw, st.integers(0, 5), count, "u1")
    status[columns.rows == 0] = ERRORED
    texts = int(columns.rows[status == SUCCEEDED].sum())
    kind = draw(st.sampled_from(["embedding", "scores", "labels"]))
    encoding = draw(st.sampled_from(ENCODINGS)) if kind == "embedding" else "float"
    dtype = {"f16": "f16", "int8": "i8", "binary": "u1"}.get(encoding, "f32")
    shape = draw(st.sampled_from([(), (1,)] if kind == "scores" else [(1,), (3,)]))
    size = texts * int(np.prod(shape, dtype=int))
    if dtype in ("f32", "f16"):
        finite = st.floats(allow_nan=False, allow_infinity=False, width=16)
        if dtype == "f32":
            finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
        data = column(draw, finite, size, "<f4" if dtype == "f32" else "<f2").tobytes()
    else:
        data = draw(st.binary(min_size=size, max_size=size))
    outputs = Outputs(kind=kind, dtype=dtype, row_shape=shape, data=data)
    bad = [row for row in range(count) if status[row] != SUCCEEDED]
    errors = [
        ItemError(row=row, code=draw(TEXT), message=draw(TEXT), retryable=draw(st.booleans()))
        for row in bad
        if draw(st.booleans())
    ]
    labels = tuple(draw(TEXT) for _ in range(shape[-1])) if kind == "labels" else None
    return {
        "status": status,
        "outputs": outputs if SUCCEEDED in status else None,
        "errors": tuple(errors),
        "labels": labels,
        "encoding": encoding,
        "input_tokens": column(draw, st.integers(0, 2**31 - 1), count, "<i4"),
    }


@st.composite
def results(draw: st.DrawFn) -> ResultRecord:
    columns = draw(items(draw(st.integers(1, 5))))
    return ResultRecord(
        lane=draw(TEXT), tenant=draw(TEXT), job_id=draw(st.none() | TEXT), model=draw(TEXT),
        task=draw(TEXT), form=draw(TEXT), origin_topic=draw(TEXT), items=columns,
        receipt=draw(RECEIPTS), **draw(answers(columns)),
    )  # fmt: skip


@st.composite
def runs(draw: st.DrawFn) -> OutputRun:
    job_id = draw(st.none() | NAME)
    first = -1 if job_id is None else draw(st.integers(0, 2**62))
    columns = draw(items(1 if job_id is None else draw(st.integers(1, 5)), first))
    receipts = tuple(draw(st.lists(RECEIPTS, min_size=1, max_size=3)))
    return OutputRun(
        lane=draw(TEXT), tenant=draw(TEXT), job_id=job_id, model=draw(TEXT), task=draw(TEXT),
        form=draw(st.sampled_from(["json", "avro"])), origin_topic=draw(TEXT), first_index=first,
        items=columns, receipts=receipts,
        receipt_at=column(draw, st.integers(0, len(receipts) - 1), len(columns), "<u2"),
        digest=draw(st.binary(min_size=16, max_size=16)), **draw(answers(columns)),
    )  # fmt: skip


DIGESTS = st.binary(min_size=16, max_size=16)
COUNTS = st.dictionaries(TEXT, INT64, max_size=4)
COMPLETIONS = st.builds(
    Completion, lane=TEXT, tenant=TEXT, job_id=NAME, form=st.sampled_from(["json", "avro"]),
    status=TEXT, total=INT64, counts=COUNTS, digest=DIGESTS, reason=TEXT,
)  # fmt: skip
JOB_STATES = st.builds(
    JobState, lane=TEXT, tenant=TEXT, job_id=TEXT, version=st.just(1), next_index=INT64,
    total=INT64, deadline_at_ms=INT64, counts=COUNTS, digest=DIGESTS, results_from=INT64,
    released_origin=st.dictionaries(INT32, INT64, max_size=4), closed=TEXT, closed_reason=TEXT,
    closed_at_ms=INT64, closed_at_offset=INT64, total_conflict=st.booleans(), form=TEXT,
    encoding=TEXT,
)  # fmt: skip
JOBS = st.builds(
    JobEntry, lane=TEXT, tenant=TEXT, job_id=TEXT, kind=TEXT, total=INT64, deadline_at_ms=INT64,
    model=TEXT, form=TEXT, source=TEXT, created_at_ms=INT64, metadata=TEXT,
)  # fmt: skip
PLANS = st.integers(1, 4).flatmap(
    lambda buckets: st.builds(
        BucketPlan, model=TEXT, lane=TEXT, version=INT64,
        bounds=st.lists(INT64, min_size=buckets, max_size=buckets, unique=True)
        .map(sorted).map(tuple),
        labels=st.permutations([*range(buckets), 0, buckets - 1]).map(tuple),
    )
)  # fmt: skip
DEAD_LETTERS = st.builds(
    DeadLetter, topic=TEXT, partition=INT32, offset=INT64, stage=TEXT, code=TEXT, message=TEXT,
    tenant=TEXT, job_id=st.none() | TEXT, index=INT64, custom_id=TEXT,
    key=st.none() | st.binary(max_size=20), value=st.none() | st.binary(max_size=20),
    timestamp_ms=INT64,
)  # fmt: skip
FACTS = st.builds(
    Fact, name=TEXT, process=TEXT, slot=INT32, at_ms=INT64, lane=TEXT, model=TEXT,
    fields=st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=4),
)  # fmt: skip

_TEXT_ROWS = st.builds(InputRow, text=FILLED, pair=st.none() | FILLED)
_ID_ROWS = st.builds(
    InputRow, ids=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5).map(tuple)
)
_PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "truncate": st.booleans(), "dimensions": st.integers(1, 65_536),
        "encoding_format": st.sampled_from(ENCODINGS), "prompt_name": st.just("query"),
        "truncation_direction": st.sampled_from(["left", "right"]), "normalize": st.booleans(),
        "pooling": st.sampled_from(["mean", "cls"]), "top_n": st.integers(1, 9),
        "raw_scores": st.booleans(),
    },
)  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> InferenceRequest:
    """A request without any fault, as intake gives it."""
    rows = draw(
        st.lists(_TEXT_ROWS, min_size=1, max_size=4) | st.lists(_ID_ROWS, min_size=1, max_size=4)
    )
    is_list = len(rows) > 1 or draw(st.booleans())
    job_id = draw(st.none() | NAME)
    timed = draw(st.sampled_from(["deadline_at_ms", "timeout_ms", ""]))
    times: dict[str, Any] = {timed: draw(st.integers(1, 2**63 - 1))} if timed else {}
    index = None if job_id is None else draw(NATURAL)
    return InferenceRequest(
        custom_id=draw(FILLED), model=draw(NAME), rows=tuple(rows), is_list=is_list, job_id=job_id,
        index=index, total=draw(st.none() | NATURAL),
        task=draw(st.sampled_from([None, "embed", "classify", "score"])), params=draw(_PARAMS),
        tenant=draw(NAME), reply_to=draw(st.none() | st.integers(0, 2**31 - 1)),
        lane=draw(st.sampled_from([None, "fast", "bulk"])), metadata=draw(st.none() | JSON_TEXT),
        created_at_ms=draw(NATURAL), input_canonical=canonical_input(rows, is_list=is_list),
        **times,
    )  # fmt: skip


def a_run(**changes: Any) -> OutputRun:
    """A run of two answered texts of job j."""
    count = 2
    columns = ItemColumns(
        index=np.arange(count), custom_id=["a", "b"], origin_partition=np.zeros(count, "<i4"),
        origin_offset=np.array([7, 8]), rows=np.ones(count, "<i4"), metadata=None,
        input_digest=bytes(16 * count), accepted_at_ms=np.zeros(count, "<i8"),
        flags=np.zeros(count, "u1"),
    )  # fmt: skip
    vectors = np.array([[0.1, -2.0], [1e-7, 3.5]], dtype="<f4")
    fields: dict[str, Any] = {
        "lane": "bulk", "tenant": "default", "job_id": "j", "model": "m", "task": "embed",
        "form": "json", "encoding": "float", "origin_topic": "streamer.requests.bulk",
        "first_index": 0, "items": columns, "status": np.zeros(count, "u1"),
        "outputs": Outputs(kind="embedding", dtype="f32", row_shape=(2,), data=vectors.tobytes()),
        "errors": (), "input_tokens": np.array([3, 4], "<i4"), "labels": None,
        "receipts": (Receipt(revision="r1"),), "receipt_at": np.zeros(count, "<u2"),
        "digest": bytes(16),
    }  # fmt: skip
    return OutputRun(**{**fields, **changes})
