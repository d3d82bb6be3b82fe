"""What becomes of each kind of bad request, alone and told by JSON and Avro alike."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest

from streamer.errors import Undecodable
from streamer.event.avro import schema_guid
from streamer.event.file_schemas import codec, read_schema
from streamer.event.intake import IntakeLimits, canonical_json, read_request
from streamer.event.json_form import request_json
from streamer.event.records import DeadLetter, InferenceRequest, InputRow
from streamer.event.wire import encode_dead_letter, encode_request

HELLO = (InputRow(text="hello"),)
FOREIGN = encode_dead_letter(
    DeadLetter(topic="t", partition=0, offset=0, stage="route", code="poison", message="")
)


def _json(**changes: Any) -> bytes:
    """A good request of job j, changed; a value of ... takes the field away."""
    fields = {"custom_id": "c", "job_id": "j", "index": 5, "model": "m", "input": "hello"}
    kept = {name: value for name, value in (fields | changes).items() if value is not ...}
    return json.dumps(kept).encode()


def _alone(**changes: Any) -> bytes:
    return _json(**{"job_id": ..., "index": ...} | changes)


def _avro(**changes: Any) -> bytes:
    datum = {"custom_id": "c", "job_id": "j", "index": 5, "model": "m", "input": "hello"}
    return codec("inference_request").encode(datum | changes)


def _input(**changes: Any) -> tuple[str, dict[str, Any]]:
    return "streamer.Input", {"texts": [], "text_pairs": [], "token_ids": []} | changes


def test_a_plain_request_is_read() -> None:
    request = read_request(_json(total=9, params={"truncate": True}, tenant="t", metadata={"a": 1}))

    assert request == InferenceRequest(
        custom_id="c", model="m", rows=HELLO, job_id="j", index=5, total=9,
        params={"truncate": True}, tenant="t", metadata='{"a":1}', input_canonical=b'"hello"',
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "corrupt_record"),
        (b"", "corrupt_record"),
        (b"hello", "unknown_schema"),
        (b"\x01\x00\x00\x00\x01", "unknown_schema"),
        (b"\x00\x00\x00\x00\x01abc", "unknown_schema"),
        (FOREIGN, "unknown_schema"),
        (_avro() + b"\x00", "corrupt_record"),
        (_avro()[:-1], "corrupt_record"),
        (codec("inference_request").prefix, "corrupt_record"),
        (b'{"job_id": "j", "index": 1', "invalid_json"),
        (b"{}}", "invalid_json"),
        (b'{"a": 01}', "invalid_json"),
        (b'{"a": ' + b"[" * 100_000, "invalid_json"),
        (b'{"a": ' + b"[" * 3_000 + b"]" * 3_000 + b"}", "invalid_json"),
        (b"[1]", "invalid_type"),
        (b"  []", "invalid_type"),
        (_json(job_id=7), "invalid_type"),
        (_json(job_id=""), "invalid_type"),
        (_json(job_id="a/b"), "invalid_type"),
        (_json(job_id="j\n"), "invalid_type"),
        (_json(job_id="j" * 65), "invalid_type"),
        (_json(tenant="a b"), "invalid_type"),
        (_json(tenant=["t"]), "invalid_type"),
        (_json(index=...), "missing_field"),
        (_json(index=None), "missing_field"),
        (_json(index=True), "invalid_type"),
        (_json(index="5"), "invalid_type"),
        (_json(index=5.0), "invalid_type"),
        (_json(index=-1), "index_out_of_range"),
        (_json(index=2**63), "index_out_of_range"),
        (_json(index=2**64), "invalid_type"),
        (_avro(index=-1), "index_out_of_range"),
        (_avro(index=None), "missing_field"),
    ],
)  # fmt: skip
def test_what_cannot_be_placed_is_a_dead_letter(value: bytes | None, code: str) -> None:
    with pytest.raises(Undecodable) as caught:
        read_request(value)

    assert caught.value.code == code


def test_a_dead_letter_knows_its_job_when_that_was_readable() -> None:
    with pytest.raises(Undecodable) as caught:
        read_request(_json(index=-1, tenant="t"))

    assert (caught.value.tenant, caught.value.job_id) == ("t", "j")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": ...}, "missing_field"),
    ({"model": ""}, "missing_field"),
    ({"model": 3}, "invalid_type"),
    ({"model": "m" * 257}, "invalid_type"),
    ({"input": ...}, "missing_field"),
    ({"input": None}, "missing_field"),
    ({"input": ""}, "empty_input"),
    ({"input": " \t\u2003"}, "empty_input"),
    ({"input": []}, "empty_input"),
    ({"input": ["a", ""]}, "empty_input"),
    ({"input": [[1], []]}, "empty_input"),
    ({"input": {"text": "a", "text_pair": ""}}, "empty_input"),
    ({"input": 3}, "invalid_type"),
    ({"input": True}, "invalid_type"),
    ({"input": 1.5}, "invalid_type"),
    ({"input": {}}, "missing_field"),
    ({"input": {"text": 1}}, "invalid_type"),
    ({"input": {"text": "a", "text_pair": 1}}, "invalid_type"),
    ({"input": {"text": "a", "pair": "b"}}, "invalid_type"),
    ({"input": ["a", 1]}, "invalid_type"),
    ({"input": [1, "a"]}, "invalid_type"),
    ({"input": [True]}, "invalid_type"),
    ({"input": [1, False]}, "invalid_type"),
    ({"input": [-1]}, "invalid_type"),
    ({"input": [2**32]}, "invalid_type"),
    ({"input": [1.0]}, "invalid_type"),
    ({"input": [[1], 2]}, "invalid_type"),
    ({"input": [["a"]]}, "invalid_type"),
    ({"input": [None]}, "invalid_type"),
    ({"input": ["a"] * 257}, "invalid_type"),
    ({"input": [[1]] * 257}, "invalid_type"),
    ({"custom_id": 3}, "invalid_type"),
    ({"custom_id": "c" * 257}, "invalid_type"),
    ({"total": "9"}, "invalid_type"),
    ({"total": -1}, "invalid_type"),
    ({"total": True}, "invalid_type"),
    ({"total": 2**64}, "invalid_type"),
    ({"task": "sing"}, "invalid_type"),
    ({"task": 1}, "invalid_type"),
    ({"params": []}, "invalid_type"),
    ({"params": {"truncate": 1}}, "invalid_type"),
    ({"params": {"truncate": "true"}}, "invalid_type"),
    ({"params": {"dimensions": True}}, "invalid_type"),
    ({"params": {"dimensions": 0}}, "invalid_type"),
    ({"params": {"dimensions": 1.0}}, "invalid_type"),
    ({"params": {"encoding_format": "f64"}}, "invalid_type"),
    ({"params": {"truncation_direction": "up"}}, "invalid_type"),
    ({"params": {"pooling": 1}}, "invalid_type"),
    ({"params": {"prompt_name": ""}}, "invalid_type"),
    ({"params": {"temperature": 1}}, "invalid_type"),
    ({"deadline_at_ms": "soon"}, "invalid_type"),
    ({"deadline_at_ms": 1.5}, "invalid_type"),
    ({"timeout_ms": 0}, "invalid_type"),
    ({"timeout_ms": -5}, "invalid_type"),
    ({"timeout_ms": 5, "deadline_at_ms": 5}, "invalid_type"),
    ({"reply_to": "replies"}, "invalid_type"),
    ({"reply_to": -1}, "invalid_type"),
    ({"lane": 1}, "invalid_type"),
    ({"metadata": "x" * 10_240}, "invalid_type"),
    ({"metadata": json.loads("[" * 300 + "]" * 300)}, "invalid_type"),
    ({"created_at_ms": "now"}, "invalid_type"),
    ({"invalid": "broken"}, "invalid_type"),
    ({"invalid": {"code": "made_up", "message": ""}}, "invalid_type"),
    ({"invalid": {"code": "invalid_json", "message": 3}}, "invalid_type"),
    ({"input": float("nan")}, "non_finite_number"),
    ({"metadata": {"a": float("-inf")}}, "non_finite_number"),
    ({"total": float("inf")}, "non_finite_number"),
    ({"input": "a\ud800b"}, "invalid_utf8"),
    ({"custom_id": "\udfff"}, "invalid_utf8"),
    ({"metadata": ["\ud800"]}, "invalid_utf8"),
]


@pytest.mark.parametrize(("changes", "code"), REFUSED)
def test_what_can_be_placed_is_answered_with_its_reason(changes: dict[str, Any], code: str) -> None:
    in_job, alone = read_request(_json(**changes)), read_request(_alone(**changes))

    assert in_job.invalid is not None
    assert in_job.invalid[0] == code
    assert (in_job.job_id, in_job.index) == ("j", 5)
    assert alone.invalid == in_job.invalid
    assert in_job.input_canonical
    in_job.custom_id.encode()
    assert read_request(request_json(in_job)).invalid == in_job.invalid, "a submitter sends it on"
    assert read_request(encode_request(in_job)).invalid == in_job.invalid


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b'{"job_id":"j","index":5,"model":"m","input":"a\xff"}', "invalid_utf8"),
        (b'{"job_id":"j","index":5,"model":"\xc3","input":"a"}', "invalid_utf8"),
        (b'{"job_id":"j","index":5,"model":"m","input":"a","x":1e400}', "non_finite_number"),
        (b'{"job_id":"j","index":5,"model":"m","input":"a","x":' + b"9" * 5_000 + b"}",
         "non_finite_number"),
        (b'{"job_id":"j","index":5,"model":"m","input":"\\ud83d"}', "invalid_utf8"),
    ],
)  # fmt: skip
def test_broken_bytes_inside_fields_leave_the_place_readable(value: bytes, code: str) -> None:
    request = read_request(value)

    assert request.invalid is not None
    assert request.invalid[0] == code
    assert (request.job_id, request.index) == ("j", 5)


AVRO_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": ""}, "missing_field"),
    ({"input": None}, "missing_field"),
    ({"input": ""}, "empty_input"),
    ({"input": _input(is_list=True)}, "empty_input"),
    ({"input": _input(texts=["a"], token_ids=[b"\x01\0\0\0"])}, "invalid_type"),
    ({"input": _input(texts=["a"], text_pairs=["b", "c"])}, "invalid_type"),
    ({"input": _input(token_ids=[b"\x01\0\0"])}, "invalid_type"),
    ({"input": _input(token_ids=[b""])}, "empty_input"),
    ({"input": _input(texts=["a"] * 257)}, "invalid_type"),
    ({"input": _input(token_ids=[b""] * 257)}, "invalid_type"),
    ({"params": {"truncate": 1}}, "invalid_type"),
    ({"params": {"nope": True}}, "invalid_type"),
    ({"metadata": "{"}, "invalid_json"),
    ({"metadata": "NaN"}, "invalid_json"),
    ({"timeout_ms": 0}, "invalid_type"),
]


@pytest.mark.parametrize(("changes", "code"), AVRO_REFUSED)
def test_avro_passes_the_same_checks(changes: dict[str, Any], code: str) -> None:
    request = read_request(_avro(**changes))

    assert request.invalid is not None
    assert request.invalid[0] == code
    assert (request.job_id, request.index, request.form) == ("j", 5, "avro")


def test_avro_with_a_text_that_is_no_utf8_keeps_its_place() -> None:
    request = read_request(_avro(input="hello").replace(b"hello", b"he\xff\xfeo"))

    assert request.invalid is not None
    assert request.invalid[0] == "invalid_utf8"
    assert request.index == 5


@pytest.mark.parametrize(
    ("value", "rows", "is_list"),
    [
        ("hello", HELLO, False),
        ({"text": "hello"}, HELLO, False),
        ({"text": "a", "text_pair": "b"}, (InputRow(text="a", pair="b"),), False),
        ({"text": "a", "text_pair": None}, (InputRow(text="a"),), False),
        (["hello"], HELLO, True),
        (["a", {"text": "b", "text_pair": "c"}],
         (InputRow(text="a"), InputRow(text="b", pair="c")), True),
        ([1, 2], (InputRow(ids=(1, 2)),), False),
        ([[1, 2], [3]], (InputRow(ids=(1, 2)), InputRow(ids=(3,))), True),
        (["a"] * 256, (InputRow(text="a"),) * 256, True),
        ("a\0b\x1b", (InputRow(text="a\0b\x1b"),), False),
        ("\u200b", (InputRow(text="\u200b"),), False),
    ],
)  # fmt: skip
def test_the_forms_of_an_input(value: Any, rows: tuple[InputRow, ...], is_list: bool) -> None:
    request = read_request(_json(input=value))

    assert request.invalid is None
    assert (request.rows, request.is_list) == (rows, is_list)
    from_avro = read_request(encode_request(request))
    assert from_avro == replace(request, form="avro")


def test_raw_control_characters_are_answered() -> None:
    request = read_request(b'{"model":"m","input":"a\nb\x01\x00"}')

    assert request.invalid is None
    assert request.rows == (InputRow(text="a\nb\x01\x00"),)


def test_the_last_of_two_equal_keys_counts() -> None:
    assert read_request(b'{"model":"a","model":"b","input":"x"}').model == "b"


def test_an_unknown_field_is_ignored() -> None:
    assert read_request(_json(colour="red")).invalid is None


def test_a_missing_custom_id_is_the_index_in_a_job_and_empty_outside() -> None:
    assert read_request(_json(custom_id=...)).custom_id == "5"
    assert read_request(_json(custom_id="")).custom_id == "5"
    assert read_request(_alone(custom_id=...)).custom_id == ""


def test_a_too_long_custom_id_is_echoed_shortened() -> None:
    assert read_request(_json(custom_id="ab" * 500)).custom_id == "ab" * 128


def test_an_index_without_a_job_is_answered() -> None:
    request = read_request(_json(job_id=...))

    assert request.invalid is not None
    assert request.invalid[0] == "missing_field"
    assert (request.job_id, request.index) == (None, None)


def test_a_bad_tenant_without_a_job_is_answered() -> None:
    request = read_request(_alone(tenant="a b"))

    assert request.invalid is not None
    assert request.tenant == "default"


def test_a_submitter_tells_what_was_wrong_with_its_line() -> None:
    value = _json(input=..., model=..., invalid={"code": "invalid_json", "message": "line 7: mend"})

    assert read_request(value).invalid == ("invalid_json", "line 7: mend")


def test_messages_never_repeat_a_value() -> None:
    for changes, _ in REFUSED:
        secret = {name: "SeCrEt" if name == "input" else v for name, v in changes.items()}
        request = read_request(_json(**secret | {"metadata": 5, "custom_id": "SeCrEt" * 50}))
        assert "SeCrEt" not in str(request.invalid)


def test_a_record_over_the_limit_is_not_looked_into() -> None:
    with pytest.raises(Undecodable, match="the limit is 100"):
        read_request(_json(input="x" * 100), {}, IntakeLimits(max_record_bytes=100))


@pytest.mark.parametrize("kind", [b"application/json", b"Application/JSON; charset=utf-8", b"???"])
def test_the_content_type_tells_the_form_and_a_garbled_one_does_not_matter(kind: bytes) -> None:
    assert read_request(b"\n " + _json(), {"content-type": kind}).form == "json"


def test_json_announced_as_avro_is_a_dead_letter() -> None:
    with pytest.raises(Undecodable, match="unknown_schema"):
        read_request(_json(), {"content-type": b"avro/binary"})


def test_the_header_form_of_avro_is_read() -> None:
    guid = schema_guid(read_schema("inference_request"))

    request = read_request(_avro()[5:], {"__value_schema_id": b"\x01" + guid})

    assert request == read_request(_avro())


def test_equal_inputs_have_one_canonical_text() -> None:
    forms = ["hello", {"text": "hello"}, {"text_pair": None, "text": "hello"}]
    texts = {read_request(_json(input=form)).input_canonical for form in forms}

    assert texts == {b'"hello"'}
    assert canonical_json({"b": 1, "a": [True, None]}) == '{"a":[true,null],"b":1}'


def test_bad_items_leave_their_neighbours_alone() -> None:
    lines = [_json(index=i, input=f"text {i}") for i in range(64)]
    lines[20] = _json(index=20, input="")

    read = [read_request(line) for line in lines]

    assert [request.index for request in read if request.invalid] == [20]
    assert orjson.loads(read[63].input_canonical) == "text 63"
