"""Kafka's own console tools are enough: JSON in, JSON out."""

from __future__ import annotations

import json

import numpy as np
import pytest

from streamer.infer.fake_engine import fake_vector
from streamer.route.fake_tokenizer import fake_ids
from tests.support import console
from tests.support.line import FAKE_DIMENSION, Line
from tests.support.stacks import StackFactory

pytestmark = pytest.mark.e2e


def _is_right(values: list[float], text: str) -> bool:
    """Decimal text carries float32 exactly: not one bit may differ."""
    wanted = fake_vector(np.array(fake_ids(text), np.uint16), FAKE_DIMENSION)
    return np.array_equal(np.array(values, np.float32), wanted)


def test_single_json_requests_are_answered_in_json(stack_factory: StackFactory) -> None:
    line = Line(stack_factory())
    lines = [
        json.dumps({"custom_id": "one", "model": "fake", "input": "to be or not"}),
        json.dumps({"custom_id": "two", "model": "fake", "input": ["to be", "or not"]}),
        json.dumps({"custom_id": "three", "model": "nobody", "input": "x"}),
    ]

    console.produce(line.stack.bootstrap, line.names.requests("fast"), lines)
    answers = console.consume(line.stack.bootstrap, line.names.replies("fast"), len(lines))

    by_id = {answer["custom_id"]: answer for answer in map(json.loads, answers)}
    assert by_id["one"]["status"] == "succeeded"
    assert _is_right(by_id["one"]["output"]["embedding"], "to be or not")
    first, second = by_id["two"]["output"]["embedding"]
    assert _is_right(first, "to be")
    assert _is_right(second, "or not")
    assert by_id["three"]["status"] == "errored"
    assert by_id["three"]["error"]["code"] == "unknown_model"
    assert "fake" in by_id["three"]["error"]["message"]


def test_a_json_job_comes_back_in_order_with_its_completion(stack_factory: StackFactory) -> None:
    line = Line(stack_factory())
    texts = [f"text number {number}" for number in range(50)]
    lines = [
        json.dumps(
            {"custom_id": f"c{n}", "job_id": "console", "index": n, "total": len(texts),
             "model": "fake", "input": text}
        )
        for n, text in enumerate(texts)
    ]  # fmt: skip

    console.produce(line.stack.bootstrap, line.names.requests("bulk"), lines[::-1])
    rows = [
        json.loads(text)
        for text in console.consume(line.stack.bootstrap, line.names.outputs("bulk"), 51)
    ]

    assert [row["index"] for row in rows[:-1]] == list(range(50))
    assert [row["custom_id"] for row in rows[:-1]] == [f"c{n}" for n in range(50)]
    for row, text in zip(rows[:-1], texts, strict=True):
        assert _is_right(row["output"]["embedding"], text)
    assert rows[-1]["job_id"] == "console"
    assert rows[-1]["status"] == "completed"
    assert rows[-1]["total"] == 50
    assert rows[-1]["counts"]["succeeded"] == 50
    assert "index" not in rows[-1]
