"""What is written is read back, and nothing but ``Undecodable`` comes out of foreign bytes."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamer.errors import Undecodable
from streamer.event import wire
from streamer.event.file_schemas import NAMES, codec
from streamer.event.intake import read_request
from streamer.event.json_form import completion_line, items_of, output_lines, request_json
from streamer.event.records import Completion, OutputRun
from streamer.event.result_item import parse_output_line
from tests.support import records

CODECS: dict[str, tuple[Any, Any, st.SearchStrategy[Any]]] = {
    "work": (wire.encode_work, wire.decode_work, records.works()),
    "result": (wire.encode_result, wire.decode_result, records.results()),
    "output": (wire.encode_output, wire.decode_output, records.runs() | records.COMPLETIONS),
    "job_state": (wire.encode_job_state, wire.decode_job_state, records.JOB_STATES),
    "job": (wire.encode_job, wire.decode_job, records.JOBS),
    "bucket_plan": (wire.encode_plan, wire.decode_plan, records.PLANS),
    "dead_letter": (wire.encode_dead_letter, wire.decode_dead_letter, records.DEAD_LETTERS),
    "event": (wire.encode_fact, wire.decode_fact, records.FACTS),
    "inference_request": (wire.encode_request, read_request, records.requests()),
}


def test_every_schema_has_a_codec_under_test() -> None:
    assert set(CODECS) == set(NAMES)


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=40)
@given(data=st.data())
def test_a_record_comes_back_as_it_was(name: str, data: st.DataObject) -> None:
    encode, decode, strategy = CODECS[name]
    record = data.draw(strategy)
    if name == "inference_request":
        record = replace(record, form="avro")

    assert records.same(decode(encode(record)), record)


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=100)
@given(data=st.data())
def test_damaged_bytes_are_undecodable_or_still_a_record(name: str, data: st.DataObject) -> None:
    encode, decode, strategy = CODECS[name]
    value = bytearray(encode(data.draw(strategy)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(value) - 1))
        how = data.draw(st.sampled_from(["set", "cut", "insert"]))
        if how == "set":
            value[at] = data.draw(st.integers(0, 255))
        elif how == "cut" and len(value) > 1:
            del value[at : at + data.draw(st.integers(1, 9))]
        else:
            value[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        if not value:
            break

    with contextlib.suppress(Undecodable):
        decode(bytes(value))


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=100)
@given(body=st.binary(max_size=60))
@example(b"")
@example(b"\xff" * 30)
@example(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01")
def test_random_bytes_under_a_known_schema_raise_nothing_else(name: str, body: bytes) -> None:
    decode = CODECS[name][1]

    with contextlib.suppress(Undecodable):
        decode(codec(name).prefix + body)


@settings(max_examples=100)
@given(value=st.binary(max_size=60), braces=st.booleans())
def test_random_bytes_as_a_request_raise_nothing_else(value: bytes, braces: bool) -> None:
    with contextlib.suppress(Undecodable):
        read_request(b"{" + value + b"}" if braces else value)


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=40)
@given(data=st.data())
def test_bytes_after_the_end_are_refused(name: str, data: st.DataObject) -> None:
    encode, decode, strategy = CODECS[name]
    value = encode(data.draw(strategy)) + data.draw(st.binary(min_size=1, max_size=5))

    with pytest.raises(Undecodable, match="corrupt_record"):
        decode(value)


@given(request=records.requests())
def test_a_request_is_the_same_in_both_forms(request: Any) -> None:
    from_json = read_request(request_json(request))
    from_avro = read_request(wire.encode_request(request))

    assert from_json == request
    assert from_avro == replace(request, form="avro")


@given(run=records.runs())
def test_json_lines_and_columns_tell_the_same(run: OutputRun) -> None:
    from_lines = [parse_output_line(line) for line in output_lines(run)]

    assert all(
        records.same(left, right) for left, right in zip(from_lines, items_of(run), strict=True)
    )


@given(run=records.runs())
def test_a_json_line_holds_no_null_vector_and_no_nan(run: OutputRun) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    for line in output_lines(run):
        fields = json.loads(line, parse_constant=refuse)
        assert (fields["output"] is None) == (fields["status"] != "succeeded")
        assert (fields["error"] is None) == (fields["status"] == "succeeded")
        assert "null" not in json.dumps(fields["output"]) or fields["output"] is None or run.labels


@given(completion=records.COMPLETIONS)
def test_a_completion_line_comes_back(completion: Completion) -> None:
    read = parse_output_line(completion_line(completion))

    assert read == replace(completion, lane="", tenant="", form="json")


@settings(max_examples=200)
@given(bits=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=32))
def test_float32_survives_its_shortest_decimals(bits: list[int]) -> None:
    values = np.array(bits, dtype="<u4").view("<f4")
    values = np.where(np.isfinite(values), values, np.float32(0)).astype("<f4")
    run = records.a_run()
    outputs = run.outputs
    assert outputs is not None
    wide = replace(
        run,
        outputs=replace(outputs, row_shape=(len(bits),), data=values.tobytes() * 2),
    )

    read = parse_output_line(output_lines(wide)[0])

    assert read.output.tobytes() == values.tobytes()  # type: ignore[union-attr]


@given(run=records.runs(), data=st.data())
def test_a_line_with_a_foreign_value_is_a_row_or_undecodable(
    run: OutputRun, data: st.DataObject
) -> None:
    fields = json.loads(output_lines(run)[0])
    target = fields
    for _ in range(data.draw(st.integers(0, 2))):
        inner = [value for value in target.values() if isinstance(value, dict) and value]
        target = data.draw(st.sampled_from(inner)) if inner else target
    foreign = st.sampled_from(
        [None, 1, -1.5, True, "", "x", [], ["x"], [[1], [1, 2]], {}, {"a": 1}]
    )
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(foreign)

    with contextlib.suppress(Undecodable):
        parse_output_line(json.dumps(fields).encode())


@settings(max_examples=200)
@given(line=st.binary(max_size=40) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["counts", "output", "error", "origin"]), inner, max_size=3),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_a_foreign_line_is_undecodable(line: bytes) -> None:
    with pytest.raises(Undecodable):
        parse_output_line(line)
