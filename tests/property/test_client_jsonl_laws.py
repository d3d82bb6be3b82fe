"""Whatever stands in a file: each line that holds something takes exactly one place."""

from __future__ import annotations

import io
import json

from hypothesis import given
from hypothesis import strategies as st

from streamer.client.jsonl import BOM, numbered_lines, read_line
from streamer.client.kafka_submit import request_of
from streamer.event.intake import read_request
from streamer.event.json_form import request_json
from streamer.event.wire import encode_request

ANY_LINE = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=60).map(str.encode),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["custom_id", "input", "body", "url", "params", "model", "x"]),
                inner, max_size=4,
            ),
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
).map(lambda raw: raw.replace(b"\n", b""))  # fmt: skip


@given(st.lists(ANY_LINE, max_size=8), st.booleans(), st.sampled_from([b"\n", b"\r\n"]))
def test_every_line_that_holds_something_comes_out_once(
    lines: list[bytes], with_mark: bool, end: bytes
) -> None:
    raw = (BOM if with_mark else b"") + end.join(lines)
    found = list(numbered_lines(io.BytesIO(raw).readline))

    physical = raw.removeprefix(BOM).split(b"\n")
    expected = [
        (number, line.rstrip(b"\r")) for number, line in enumerate(physical, 1) if line.strip()
    ]
    assert [number for number, _ in found] == [number for number, _ in expected]
    assert [(line or b"").rstrip(b"\r") for _, line in found] == [line for _, line in expected]


@given(ANY_LINE)
def test_every_line_becomes_a_request_that_can_be_sent_in_both_forms(raw: bytes) -> None:
    line = read_line(7, raw)
    place: dict[str, object] = {"job_id": "j", "index": 3}
    request = request_of(line, model="m", place=place)

    for value in (encode_request(request), request_json(request)):
        back = read_request(value, {})
        assert (back.job_id, back.index, back.custom_id) == ("j", 3, request.custom_id)
        assert back.invalid == request.invalid
        if request.invalid is None:
            assert back.input_canonical == request.input_canonical
    if request.invalid is not None:
        assert request.invalid[1].startswith("line 7: ")


@given(st.text(max_size=40), st.text(min_size=1, max_size=20))
def test_good_lines_keep_their_text_and_name(text: str, name: str) -> None:
    raw = json.dumps({"custom_id": name, "input": "a" + text}).encode()
    request = request_of(read_line(1, raw), model="m", place={})

    if request.invalid is None:
        assert request.rows[0].text == "a" + text
        assert request.custom_id == name
    else:
        assert request.invalid[0] == "invalid_utf8"
