"""One terminal row as a caller reads it, the same from a JSON line and from an Avro run."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from streamer.errors import Undecodable
from streamer.event.codes import FLAG_LIST, FLAG_TRUNCATED, SUCCEEDED, status_name
from streamer.event.records import Completion, OutputRun, Receipt

_DTYPE_OF_ENCODING: Final = {"base64": "<f4", "f16": "<f2", "int8": "i1", "binary": "u1"}
_DTYPES: Final = {"f32": "<f4", "f16": "<f2", "i8": "i1", "u1": "u1"}
KINDS: Final = ("embedding", "scores", "labels")


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFailure:
    """Why a row has no answer."""

    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResultItem:
    """One row of a job's output, or one reply.

    Attributes:
        job_id, index: None for a reply.
        status: ``succeeded``, ``errored``, ``expired`` or ``cancelled``.
        kind: ``embedding``, ``scores`` or ``labels``; "" without an answer.
        output: the values, [*row_shape], or [texts, *row_shape] for a list input; float32 unless
            another encoding was asked for; None without an answer.
        labels: names along the last axis of ``output`` for classification.
        error: set exactly when ``status`` is not ``succeeded``.
        origin: topic, partition and offset of the request record.
        input_digest: BLAKE2b-128 of task, input and params.
        metadata: the JSON value given with the request.
    """

    custom_id: str
    job_id: str | None
    index: int | None
    status: str
    model: str
    kind: str
    output: NDArray[Any] | None
    labels: tuple[str, ...] | None
    error: ItemFailure | None
    usage: Mapping[str, int]
    truncated: bool
    origin: tuple[str, int, int]
    input_digest: bytes
    receipt: Receipt
    metadata: Any = None


def items_of(run: OutputRun) -> list[ResultItem]:
    """The rows of a run, in order."""
    errors = {error.row: error for error in run.errors}
    items, found, at = run.items, [], 0
    for row, custom_id in enumerate(items.custom_id):
        status, output = int(run.status[row]), None
        flags, texts = int(items.flags[row]), int(items.rows[row])
        if status == SUCCEEDED and run.outputs is not None:
            size = texts * run.outputs.row_bytes
            output = np.frombuffer(run.outputs.data[at : at + size], _DTYPES[run.outputs.dtype])
            at += size
            shape = () if _is_scalar(run) else run.outputs.row_shape
            output = output.reshape(texts, *shape)
            output = output if flags & FLAG_LIST or texts != 1 else output[0]
        error = errors.get(row)
        metadata = None if items.metadata is None else items.metadata[row]
        kind = "" if output is None or run.outputs is None else run.outputs.kind
        found.append(
            ResultItem(
                custom_id=custom_id,
                job_id=run.job_id,
                index=None if run.job_id is None else int(items.index[row]),
                status=status_name(status),
                model=run.model,
                kind=kind,
                output=None if output is None else np.asarray(output),
                labels=run.labels if kind == "labels" else None,
                error=_failure(status, error),
                usage={"input_tokens": int(run.input_tokens[row])},
                truncated=bool(flags & FLAG_TRUNCATED),
                origin=(
                    run.origin_topic,
                    int(items.origin_partition[row]),
                    int(items.origin_offset[row]),
                ),
                input_digest=items.digest_of(row),
                receipt=run.receipts[int(run.receipt_at[row])],
                metadata=None if metadata is None else orjson.loads(metadata),
            )
        )
    return found


def _is_scalar(run: OutputRun) -> bool:
    outputs = run.outputs
    return outputs is not None and outputs.kind == "scores" and outputs.row_shape == (1,)


def _failure(status: int, error: Any) -> ItemFailure | None:
    if error is not None:
        return ItemFailure(code=error.code, message=error.message, retryable=error.retryable)
    if status == SUCCEEDED:
        return None
    state = status_name(status)
    code = "model_error" if state == "errored" else state
    return ItemFailure(code=code, message="", retryable=False)


def parse_output_line(line: bytes) -> ResultItem | Completion:
    """The row or completion of one JSON message of ``outputs`` or ``replies``.

    Raises:
        Undecodable: ``invalid_json`` or ``corrupt_record``: no such line.
    """
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise Undecodable("invalid_json", "the line is no JSON") from None
    try:
        if "counts" in fields:
            return _completion(fields)
        return _item(fields)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, binascii.Error) as error:
        raise Undecodable(
            "corrupt_record", f"the line is no output row ({type(error).__name__})"
        ) from None


def read_completion(line: bytes) -> Completion:
    """The completion of one JSON message of ``outputs``.

    Raises:
        Undecodable: the line is something else.
    """
    found = parse_output_line(line)
    if not isinstance(found, Completion):
        raise Undecodable("corrupt_record", "the line is no completion")
    return found


def _completion(fields: Mapping[str, Any]) -> Completion:
    """Lane and tenant stand in the record key, not in the line."""
    return Completion(
        lane="",
        tenant="",
        job_id=fields["job_id"],
        form="json",
        status=fields["status"],
        total=int(fields["total"]),
        counts={str(state): int(count) for state, count in fields["counts"].items()},
        digest=bytes.fromhex(fields["digest"]),
        reason=fields["reason"],
    )


def _item(fields: Mapping[str, Any]) -> ResultItem:
    kind, output, labels = _output(fields["output"])
    error, origin = fields["error"], fields["origin"]
    receipt = dict(fields["receipt"])
    receipt["batch_ids"] = tuple(receipt["batch_ids"])
    return ResultItem(
        custom_id=fields["custom_id"],
        job_id=fields.get("job_id"),
        index=fields.get("index"),
        status=fields["status"],
        model=fields["model"],
        kind=kind,
        output=output,
        labels=labels,
        error=None if error is None else ItemFailure(**error),
        usage=dict(fields["usage"]),
        truncated=bool(fields["truncated"]),
        origin=(origin["topic"], origin["partition"], origin["offset"]),
        input_digest=bytes.fromhex(origin["input_digest"]),
        receipt=Receipt(**receipt),
        metadata=fields.get("metadata"),
    )


def _output(
    output: Mapping[str, Any] | None,
) -> tuple[str, NDArray[Any] | None, tuple[str, ...] | None]:
    if output is None:
        return "", None, None
    (kind,) = [name for name in KINDS if name in output]
    value = output[kind]
    if kind == "labels":
        texts = value if isinstance(value[0], list) else [value]
        labels = tuple(entry["label"] for entry in texts[0])
        scores = np.asarray([[entry["score"] for entry in text] for text in texts], np.float32)
        return kind, scores if isinstance(value[0], list) else scores[0], labels
    encoding = output.get("encoding_format")
    if encoding is None:
        return kind, np.asarray(value, dtype=np.float32), None
    dtype = _DTYPE_OF_ENCODING[encoding]
    if isinstance(value, str):
        return kind, np.frombuffer(base64.b64decode(value, validate=True), dtype), None
    vectors = [np.frombuffer(base64.b64decode(text, validate=True), dtype) for text in value]
    return kind, np.stack(vectors), None
