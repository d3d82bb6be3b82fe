"""JSON of requests, output rows, replies and completions.

A row is one object, its keys in this order:

    custom_id job_id index status model output error usage truncated origin receipt [metadata]

A reply has neither ``job_id`` nor ``index``. ``output`` holds ``embedding``, ``scores`` or
``labels``, or is null beside an ``error``. One text is answered by one vector (number, list of
labels), a list input by a list of them. Vectors are numbers with the shortest decimals that give
the same float32 back; asked for in another encoding, they are base64 of the little-endian bytes
and ``encoding_format`` stands beside them. A completion has counts and no ``index``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from streamer.event.codes import FLAG_LIST, FLAG_TRUNCATED, SUCCEEDED, status_name
from streamer.event.records import (
    Completion,
    InferenceRequest,
    ItemError,
    OutputRun,
    Outputs,
    Receipt,
)
from streamer.event.request_input import input_value
from streamer.event.result_item import ResultItem, items_of, parse_output_line, read_completion

__all__ = [
    "ResultItem", "completion_line", "items_of", "output_lines", "parse_output_line",
    "read_completion", "request_json",
]  # fmt: skip

DTYPES: Final = {"f32": "<f4", "f16": "<f2", "i8": "i1", "u1": "u1"}
_NUMPY = orjson.OPT_SERIALIZE_NUMPY
_NON_FINITE = ItemError(
    row=0,
    code="non_finite_output",
    message="the model answered NaN or infinity; check the input or try another model",
)
_REQUEST_FIELDS = (
    "job_id", "index", "total", "model", "task", "deadline_at_ms", "timeout_ms", "reply_to", "lane",
)  # fmt: skip


def request_json(request: InferenceRequest) -> bytes:
    """The request as a JSON object; ``intake.read_request`` reads it back."""
    fields: dict[str, Any] = {"custom_id": request.custom_id}
    for name in _REQUEST_FIELDS:
        value = getattr(request, name)
        if value is not None and value != "":
            fields[name] = value
    if request.rows:
        fields["input"] = input_value(request.rows, is_list=request.is_list)
    if request.params:
        fields["params"] = dict(request.params)
    if request.tenant != "default":
        fields["tenant"] = request.tenant
    if request.metadata is not None:
        fields["metadata"] = orjson.Fragment(request.metadata)
    if request.created_at_ms:
        fields["created_at_ms"] = request.created_at_ms
    if request.invalid is not None:
        code, message = request.invalid
        fields["invalid"] = {"code": code, "message": message}
    return orjson.dumps(fields)


def output_lines(run: OutputRun) -> list[bytes]:
    """One JSON object for each row of a run or reply, in order, without line ends."""
    items = run.items
    answers = _answers(run)
    errors = {error.row: error for error in run.errors}
    receipts = [_receipt(receipt) for receipt in run.receipts]
    digests = items.input_digest.hex()
    index, status = items.index.tolist(), run.status.tolist()
    partition, offset = items.origin_partition.tolist(), items.origin_offset.tolist()
    tokens, flags = run.input_tokens.tolist(), items.flags.tolist()
    lines = []
    for row, custom_id in enumerate(items.custom_id):
        state, output, error = _state_of(status[row], next(answers), errors.get(row))
        fields: dict[str, Any] = {"custom_id": custom_id}
        if run.job_id is not None:
            fields["job_id"] = run.job_id
            fields["index"] = index[row]
        fields["status"] = state
        fields["model"] = run.model
        fields["output"] = output
        fields["error"] = error
        fields["usage"] = {"input_tokens": tokens[row]}
        fields["truncated"] = bool(flags[row] & FLAG_TRUNCATED)
        fields["origin"] = {
            "topic": run.origin_topic,
            "partition": partition[row],
            "offset": offset[row],
            "input_digest": digests[row * 32 : row * 32 + 32],
        }
        fields["receipt"] = receipts[run.receipt_at[row]]
        metadata = None if items.metadata is None else items.metadata[row]
        if metadata is not None:
            fields["metadata"] = orjson.Fragment(metadata)
        lines.append(orjson.dumps(fields, option=_NUMPY))
    return lines


def completion_line(completion: Completion) -> bytes:
    """The completion as a JSON object."""
    return orjson.dumps(
        {
            "job_id": completion.job_id,
            "status": completion.status,
            "total": completion.total,
            "counts": dict(completion.counts),
            "digest": completion.digest.hex(),
            "reason": completion.reason,
        }
    )


def _state_of(
    status: int, answer: dict[str, Any] | None, error: ItemError | None
) -> tuple[str, dict[str, Any] | None, dict[str, Any] | None]:
    """Status, output and error of a row; never an answer without numbers."""
    if status == SUCCEEDED and answer is not None:
        return status_name(status), answer, None
    if status == SUCCEEDED:
        error = _NON_FINITE
    state = "errored" if status == SUCCEEDED else status_name(status)
    if error is None:
        code = "model_error" if state == "errored" else state
        return state, None, {"code": code, "message": "", "retryable": False}
    failure = {"code": error.code, "message": error.message, "retryable": error.retryable}
    return state, None, failure


def _answers(run: OutputRun) -> Iterator[dict[str, Any] | None]:
    """The ``output`` object of each row; None for rows without a (finite) answer."""
    outputs = run.outputs
    if outputs is None:
        yield from [None] * len(run.items)
        return
    values = np.frombuffer(outputs.data, dtype=DTYPES[outputs.dtype])
    values = values.reshape(-1, *outputs.row_shape)
    finite = values.dtype.kind != "f" or bool(np.isfinite(values).all())
    wrap = _writer_of(outputs, run)
    rows, flags = run.items.rows.tolist(), run.items.flags.tolist()
    at = 0
    for row, status in enumerate(run.status.tolist()):
        if status != SUCCEEDED:
            yield None
            continue
        part = values[at : at + rows[row]]
        at += rows[row]
        if not finite and not np.isfinite(part).all():
            yield None
            continue
        is_list = bool(flags[row] & FLAG_LIST) or len(part) != 1
        yield wrap(part, is_list)


def _writer_of(outputs: Outputs, run: OutputRun) -> Callable[[NDArray[Any], bool], dict[str, Any]]:
    """How one row's values become its ``output`` object."""
    if outputs.kind == "labels":
        names = run.labels or tuple(str(i) for i in range(outputs.row_shape[-1]))

        def labels(part: NDArray[Any], is_list: bool) -> dict[str, Any]:
            texts = [
                [{"label": n, "score": s} for n, s in zip(names, text, strict=True)]
                for text in part
            ]
            return {"labels": texts if is_list else texts[0]}

        return labels

    if outputs.kind == "embedding" and run.encoding not in ("", "float"):
        size = outputs.row_bytes

        def encoded(part: NDArray[Any], is_list: bool) -> dict[str, Any]:
            data = part.tobytes()
            texts = [
                base64.b64encode(data[at : at + size]).decode() for at in range(0, len(data), size)
            ]
            return {
                "embedding": texts if is_list else texts[0],
                "encoding_format": run.encoding,
            }

        return encoded

    squeeze = outputs.kind == "scores" and outputs.row_shape == (1,)

    def numbers(part: NDArray[Any], is_list: bool) -> dict[str, Any]:
        part = part[:, 0] if squeeze else part
        return {outputs.kind: part if is_list else part[0]}

    return numbers


def _receipt(receipt: Receipt) -> orjson.Fragment:
    return orjson.Fragment(
        orjson.dumps(
            {
                "revision": receipt.revision,
                "tokenizer_hash": receipt.tokenizer_hash,
                "dtype": receipt.dtype,
                "batch_ids": receipt.batch_ids,
                "batch_size": receipt.batch_size,
                "padded_tokens": receipt.padded_tokens,
                "attempt": receipt.attempt,
                "source_partition": receipt.source_partition,
                "source_offset": receipt.source_offset,
                "worker": receipt.worker,
            }
        )
    )
