"""What a user sees: the JSON of rows, and the row object of the client."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamer.errors import Undecodable
from streamer.event.json_form import completion_line, output_lines, read_completion
from streamer.event.records import Completion, ItemError, OutputRun, Outputs
from streamer.event.result_item import parse_output_line
from tests.support.records import a_run


def _lines(run: OutputRun) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output_lines(run)]


def _with_items(run: OutputRun, **changes: Any) -> OutputRun:
    return replace(run, items=replace(run.items, **changes))


def test_a_row_has_its_fields_in_their_order() -> None:
    line = _lines(a_run())[1]

    assert list(line) == [
        "custom_id", "job_id", "index", "status", "model", "output", "error", "usage", "truncated",
        "origin", "receipt",
    ]  # fmt: skip
    assert line["custom_id"] == "b"
    assert line["output"] == {"embedding": [1e-7, 3.5]}
    assert line["error"] is None
    assert line["usage"] == {"input_tokens": 4}
    assert line["truncated"] is False
    assert line["origin"] == {
        "topic": "streamer.requests.bulk", "partition": 0, "offset": 8, "input_digest": "00" * 16,
    }  # fmt: skip
    assert line["receipt"]["revision"] == "r1"


def test_metadata_is_echoed_only_where_given() -> None:
    first, second = _lines(_with_items(a_run(), metadata=[None, '{"a":[1]}']))

    assert "metadata" not in first
    assert second["metadata"] == {"a": [1]}


def test_a_truncated_row_says_so() -> None:
    lines = _lines(_with_items(a_run(), flags=np.array([1, 0], "u1")))

    assert [line["truncated"] for line in lines] == [True, False]


def test_a_list_input_is_answered_by_a_list_also_for_one_text() -> None:
    run = _with_items(a_run(), flags=np.array([2, 0], "u1"))

    first, second = _lines(run)

    assert np.shape(first["output"]["embedding"]) == (1, 2)
    assert np.shape(second["output"]["embedding"]) == (2,)


@pytest.mark.parametrize(
    ("encoding", "dtype", "data"),
    [
        ("base64", "f32", np.array([[0.1, 2], [3, 4]], "<f4")),
        ("f16", "f16", np.array([[0.1, 2], [3, 4]], "<f2")),
        ("int8", "i8", np.array([[-127, 2], [3, 4]], "i1")),
        ("binary", "u1", np.array([[255, 2], [3, 4]], "u1")),
    ],
)
def test_an_encoded_vector_is_base64_of_its_bytes(encoding: str, dtype: str, data: Any) -> None:
    outputs = Outputs(kind="embedding", dtype=dtype, row_shape=(2,), data=data.tobytes())
    run = a_run(encoding=encoding, outputs=outputs)

    line = _lines(run)[0]["output"]
    item = parse_output_line(output_lines(run)[0])

    assert base64.b64decode(line["embedding"]) == data[0].tobytes()
    assert line["encoding_format"] == encoding
    assert item.output.tolist() == data[0].tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_score_is_a_number(shape: tuple[int, ...]) -> None:
    data = np.array([0.25, 0.5], "<f4").tobytes()
    outputs = Outputs(kind="scores", dtype="f32", row_shape=shape, data=data)

    lines = _lines(a_run(outputs=outputs))

    assert [line["output"] for line in lines] == [{"scores": 0.25}, {"scores": 0.5}]


def test_classes_are_named_beside_their_scores() -> None:
    data = np.array([[0.25, 0.75], [0.5, 0.5]], "<f4").tobytes()
    outputs = Outputs(kind="labels", dtype="f32", row_shape=(2,), data=data)
    run = a_run(outputs=outputs, labels=("good", "bad"))

    item = parse_output_line(output_lines(run)[0])

    assert _lines(run)[0]["output"] == {
        "labels": [{"label": "good", "score": 0.25}, {"label": "bad", "score": 0.75}]
    }
    assert item.labels == ("good", "bad")  # type: ignore[union-attr]
    assert item.output.tolist() == [0.25, 0.75]  # type: ignore[union-attr]


def test_an_errored_row_has_its_reason_and_no_bytes() -> None:
    error = ItemError(row=0, code="empty_input", message="input is empty")
    vector = np.array([5, 6], "<f4").tobytes()
    run = a_run(
        status=np.array([1, 0], "u1"), errors=(error,),
        outputs=Outputs(kind="embedding", dtype="f32", row_shape=(2,), data=vector),
    )  # fmt: skip

    first, second = _lines(run)

    assert first["status"] == "errored"
    assert first["output"] is None
    assert first["error"] == {
        "code": "empty_input", "message": "input is empty", "retryable": False,
    }  # fmt: skip
    assert second["output"] == {"embedding": [5, 6]}


@pytest.mark.parametrize(("status", "code"), [(1, "model_error"), (2, "expired"), (3, "cancelled")])
def test_a_row_without_a_reason_still_has_a_code(status: int, code: str) -> None:
    line = _lines(a_run(status=np.full(2, status, "u1"), outputs=None))[0]

    assert line["error"]["code"] == code


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_never_leaves(bad: float) -> None:
    data = np.array([[1, bad], [3, 4]], "<f4").tobytes()
    run = a_run(outputs=Outputs(kind="embedding", dtype="f32", row_shape=(2,), data=data))

    first, second = _lines(run)

    assert first["output"] is None
    assert first["status"] == "errored"
    assert first["error"]["code"] == "non_finite_output"
    assert second["output"] == {"embedding": [3, 4]}


def test_a_completion_has_counts_and_no_index() -> None:
    completion = Completion(
        lane="", tenant="", job_id="j", form="json", status="expired", total=3,
        counts={"succeeded": 2, "expired": 1}, digest=bytes(range(16)), reason="deadline",
    )  # fmt: skip

    line = completion_line(completion)

    assert list(json.loads(line)) == ["job_id", "status", "total", "counts", "digest", "reason"]
    assert read_completion(line) == completion


def test_a_row_is_no_completion() -> None:
    with pytest.raises(Undecodable):
        read_completion(output_lines(a_run())[0])
