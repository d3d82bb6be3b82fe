"""What bad input gets, alone and among 63 good neighbours (invariant *isolate*)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from streamer.event.lane import Record
from tests.support.router import (
    WALL_MS,
    Emitted,
    a_core,
    a_record,
    a_request,
    assign,
    drained,
    now_at,
)

JOB = {"job_id": "j", "index": 63, "total": 64}


def raw(**fields: Any) -> dict[str, Any]:
    return {**a_request(custom_id="bad"), **JOB, **fields}


REFUSED: dict[str, tuple[Any, str]] = {
    "unknown model": (raw(model="nope"), "unknown_model"),
    "empty text": (raw(input=""), "empty_input"),
    "empty list": (raw(input=[]), "empty_input"),
    "megabyte": (raw(input="word " * 210_000), "input_too_long"),
    "too many tokens": (raw(input="w " * 257), "input_too_long"),
    "invalid utf-8": (
        orjson.dumps(raw()).replace(b"to be or not", b"to \xff be"), "invalid_utf8"),
    "wrong type": (raw(input=17), "invalid_type"),
    "wrong type in a list": (raw(input=["a", None]), "invalid_type"),
    "wrong type of a parameter": (raw(params={"truncate": "yes"}), "invalid_type"),
    "NaN": (orjson.dumps(raw(timeout_ms=1)).replace(b'"timeout_ms":1', b'"timeout_ms":NaN'),
            "non_finite_number"),
    "Infinity": (orjson.dumps(raw(timeout_ms=1)).replace(b'"timeout_ms":1',
                 b'"timeout_ms":Infinity'), "non_finite_number"),
    "no model": ({k: v for k, v in raw().items() if k != "model"}, "missing_field"),
    "no input": ({k: v for k, v in raw().items() if k != "input"}, "missing_field"),
    "expired": (raw(deadline_at_ms=WALL_MS - 5_000), "expired"),
    "other lane": (raw(lane="fast"), "invalid_type"),
    "foreign token id": (raw(input=[[1, 70_000]]), "invalid_type"),
    "broken by the sender": (raw(invalid={"code": "invalid_json", "message": "line 7"}),
                             "invalid_json"),
}  # fmt: skip
DEAD: dict[str, tuple[bytes | None, str]] = {
    "null": (None, "corrupt_record"),
    "empty": (b"", "corrupt_record"),
    "wrong magic": (b"\x07" + bytes(12), "unknown_schema"),
    "unknown schema": (b"\0\xff\xff\xff\xff\xff\xff\xff\xff", "unknown_schema"),
    "broken JSON": (b'{"job_id": "j", "index": 63, ', "invalid_json"),
    "no object": (b"[1, 2]", "invalid_type"),
    "nested bomb": (b'{"input":' + b"[" * 200_000, "invalid_json"),
    "no index": (b'{"job_id": "j", "model": "fake", "input": "a"}', "missing_field"),
    "index as text": (b'{"job_id": "j", "index": "1", "model": "fake"}', "invalid_type"),
    "negative index": (b'{"job_id": "j", "index": -1, "model": "fake"}', "index_out_of_range"),
}  # fmt: skip
ANSWERED = {
    "NUL": "a\0b", "control characters": "\x01\x02 \x1b[0m", "right to left": "\u202eabc",
    "emoji": "\U0001f600" * 3, "combining": "e\u0301" * 5, "one letter": "x",
}  # fmt: skip


def good(count: int) -> list[Record]:
    return [
        a_record(a_request(job_id="j", index=i, total=64, input="w " * (i + 1)), i)
        for i in range(count)
    ]


def routed(content: Any, neighbours: int) -> list[Emitted]:
    core = a_core()
    assign(core)
    records = good(neighbours)
    records.insert(neighbours // 2, a_record(content, 0))
    placed = [
        Record(one.topic, one.partition, offset, one.timestamp_ms, one.key, one.value, one.headers)
        for offset, one in enumerate(records)
    ]
    core.deliver(placed, now_at(0))
    emitted = drained(core)
    done = sorted(item for one in emitted for item in one.outcomes())
    assert done == [(0, offset) for offset in range(neighbours + 1)]
    return emitted


def indexes(emitted: list[Emitted]) -> list[int]:
    return sorted(i for one in emitted for work in one.work for i in work.items.index.tolist())


@pytest.mark.parametrize("neighbours", [0, 63])
@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_item_of_a_job_is_answered_errored(name: str, neighbours: int) -> None:
    content, code = REFUSED[name]

    emitted = routed(content, neighbours)

    (result,) = [result for one in emitted for result in one.results]
    assert result.job_id == "j"
    assert result.items.index.tolist() == [63]
    assert [error.code for error in result.errors] == [code]
    assert len(result.errors[0].message) > 5
    assert result.status.tolist() == [2 if code == "expired" else 1]
    assert indexes(emitted) == list(range(neighbours))


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_request_without_a_job_gets_its_own_reply(name: str) -> None:
    content, code = REFUSED[name]
    if isinstance(content, bytes):
        content = content.replace(b',"job_id":"j","index":63,"total":64', b"")
        assert b"job_id" not in content
    else:
        content = {key: value for key, value in content.items() if key not in JOB}

    (emitted,) = routed(content, 0)

    (reply,) = emitted.replies
    line = orjson.loads(reply.value)
    assert (line["custom_id"], line["error"]["code"]) == ("bad", code)
    assert line["status"] == ("expired" if code == "expired" else "errored")


@pytest.mark.parametrize("neighbours", [0, 63])
@pytest.mark.parametrize("name", DEAD)
def test_what_cannot_be_placed_is_a_dead_letter_with_its_bytes(name: str, neighbours: int) -> None:
    content, code = DEAD[name]

    emitted = routed(content, neighbours)

    (letter,) = [letter for one in emitted for letter in one.letters]
    assert (letter.code, letter.stage, letter.value) == (code, "route", content)
    assert (letter.topic, letter.partition) == ("t.requests.bulk", 0)
    assert letter.offset == neighbours // 2
    assert indexes(emitted) == list(range(neighbours))


@pytest.mark.parametrize("name", ANSWERED)
def test_odd_characters_are_answered(name: str) -> None:
    (emitted,) = routed(raw(input=ANSWERED[name]), 0)

    assert indexes([emitted]) == [63]


def test_a_megabyte_is_cut_with_a_flag_when_asked() -> None:
    (emitted,) = routed(raw(input="word " * 210_000, params={"truncate": True}), 0)

    (work,) = emitted.work
    assert work.lengths.tolist() == [256]
    assert work.items.flags.tolist() == [1]


def test_case_a10_one_line_over_the_limit_says_both_numbers() -> None:
    emitted = routed(raw(input="w " * 2_560), 63)

    (result,) = [result for one in emitted for result in one.results]
    assert "2560 tokens" in result.errors[0].message
    assert "at most 256" in result.errors[0].message


@pytest.mark.parametrize("order", [(1, 300, 3_000), (3_000, 1, 300), (300, 3_000, 1)])
def test_case_s1_short_and_cut_texts_in_any_order_are_all_answered(order: tuple[int, ...]) -> None:
    core = a_core()
    assign(core)
    core.deliver([
        a_record(a_request(job_id="j", index=i, input="w " * words, params={"truncate": True}), i)
        for i, words in enumerate(order)
    ], now_at(0))  # fmt: skip

    emitted = drained(core)

    assert indexes(emitted) == [0, 1, 2]
    lengths = {
        index: length
        for one in emitted for work in one.work
        for index, length in zip(work.items.index.tolist(), work.lengths.tolist(), strict=True)
    }  # fmt: skip
    assert [lengths[i] for i in range(3)] == [min(words, 256) for words in order]


def test_case_s8_truncate_holds_for_a_list_as_for_one_text() -> None:
    long = "w " * 300
    (emitted,) = routed(raw(input=["a", long, "b"], params={"truncate": True}), 0)

    (work,) = emitted.work
    assert work.lengths.tolist() == [1, 256, 1]
    assert work.items.flags.tolist() == [1 | 2]
