"""Requests to and from the dictionary of their schema.

Reading goes through the values a JSON object would hold, so that both forms pass one set of checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from streamer.event.columns import pack
from streamer.event.records import InferenceRequest, InputRow
from streamer.event.request_input import MAX_ROWS

_PLAIN = (
    "custom_id", "job_id", "index", "total", "model", "task", "deadline_at_ms", "timeout_ms",
    "tenant", "reply_to", "lane", "metadata", "created_at_ms",
)  # fmt: skip

Problem = tuple[str, str]


def request_datum(request: InferenceRequest) -> dict[str, Any]:
    """The dictionary of a request.

    Raises:
        ValueError: texts and token ids stand in one list.
    """
    datum: dict[str, Any] = {name: getattr(request, name) for name in _PLAIN}
    datum["input"] = _input_datum(request.rows, is_list=request.is_list)
    datum["params"] = dict(request.params)
    datum["invalid"] = None
    if request.invalid is not None:
        code, message = request.invalid
        datum["invalid"] = ("streamer.Invalid", {"code": code, "message": message})
    return datum


def _input_datum(rows: Sequence[InputRow], *, is_list: bool) -> object:
    if not rows:
        return None
    if not is_list and len(rows) == 1 and rows[0].ids is None and rows[0].pair is None:
        return rows[0].text
    with_ids = [row.ids is not None for row in rows]
    if any(with_ids) != all(with_ids):
        raise ValueError("texts and token ids do not mix in one input")
    datum: dict[str, Any] = {"texts": [], "text_pairs": [], "token_ids": [], "is_list": is_list}
    if with_ids[0]:
        datum["token_ids"] = [pack(row.ids or (), "<u4") for row in rows]
    else:
        datum["texts"] = [row.text for row in rows]
        if any(row.pair is not None for row in rows):
            datum["text_pairs"] = [row.pair for row in rows]
    return "streamer.Input", datum


def values_of(datum: dict[str, Any]) -> tuple[dict[str, Any], Problem | None]:
    """The values a JSON object would hold, and what is wrong with the Avro form of them."""
    problem = None
    if isinstance(datum["input"], dict):
        datum["input"], problem = _input_of(datum["input"])
    if datum["metadata"] is not None:
        try:
            datum["metadata"] = orjson.loads(datum["metadata"])
        except orjson.JSONDecodeError:
            datum["metadata"] = None
            problem = problem or ("invalid_json", "metadata must be JSON as text")
    return datum, problem


def _input_of(value: Mapping[str, Any]) -> tuple[object, Problem | None]:
    texts, pairs, ids = value["texts"], value["text_pairs"], value["token_ids"]
    if max(len(texts), len(ids)) > MAX_ROWS:
        return None, ("invalid_type", f"input: at most {MAX_ROWS} texts in one item")
    if texts and ids:
        return None, ("invalid_type", "input: fill texts or token_ids, not both")
    if pairs and len(pairs) != len(texts):
        return None, ("invalid_type", "input: text_pairs needs one entry a text")
    rows: list[object]
    if ids:
        if any(len(row) % 4 for row in ids):
            return None, ("invalid_type", "input: token_ids are uint32, little endian")
        rows = [np.frombuffer(row, dtype="<u4").tolist() for row in ids]
    elif pairs:
        rows = [
            text if pair is None else {"text": text, "text_pair": pair}
            for text, pair in zip(texts, pairs, strict=True)
        ]
    else:
        rows = list(texts)
    single = len(rows) == 1 and not value["is_list"]
    return (rows[0] if single else rows), None
