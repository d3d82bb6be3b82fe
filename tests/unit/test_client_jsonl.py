"""Lines of request files: what is read, what is answered with an error, what is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from streamer.client.errors import InputRefused
from streamer.client.file_source import FileSource
from streamer.client.jsonl import BOM, LINE_BYTES_MAX, Line, numbered_lines, read_line


def line(content: object) -> Line:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return read_line(3, raw)


def file_of(tmp_path: Path, raw: bytes) -> FileSource:
    path = tmp_path / "in.jsonl"
    path.write_bytes(raw)
    return FileSource(path)


def rows(count: int) -> list[bytes]:
    return [json.dumps({"custom_id": f"c{n}", "input": f"text {n}"}).encode() for n in range(count)]


@pytest.mark.parametrize("count", [1, 4, 5])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_case_s7_a_byte_order_mark_loses_no_line(tmp_path: Path, count: int, end: bytes) -> None:
    source = file_of(tmp_path, BOM + end.join(rows(count)) + end)

    lines = list(source.items())

    assert [item.custom_id for item in lines] == [f"c{n}" for n in range(count)]
    assert all(item.invalid is None for item in lines)
    assert source.scan().total == count


def test_blank_lines_take_no_place_but_keep_their_number(tmp_path: Path) -> None:
    first, second = rows(2)
    source = file_of(tmp_path, b"\n" + first + b"\n  \r\n\n" + second)

    assert [(item.number, item.custom_id) for item in source.items()] == [(2, "c0"), (5, "c1")]


def test_an_empty_file_is_a_job_of_nothing(tmp_path: Path) -> None:
    assert file_of(tmp_path, b"").scan().total == 0
    assert file_of(tmp_path, BOM + b"\n\n").scan().total == 0


def test_case_a13_a_name_given_twice_is_refused_with_its_line_numbers(tmp_path: Path) -> None:
    content = rows(6)
    content[4] = content[1]

    with pytest.raises(InputRefused, match=r"duplicate_custom_id.*'c1' on lines 2, 5"):
        file_of(tmp_path, b"\n".join(content)).scan()


def test_names_made_up_for_broken_lines_are_no_duplicates(tmp_path: Path) -> None:
    raw = b'{"custom_id": "line-2", "input": "x"}\nbroken\nbroken'

    facts = file_of(tmp_path, raw).scan()

    assert (facts.total, facts.invalid) == (3, 2)


def test_the_digest_names_the_bytes(tmp_path: Path) -> None:
    one = file_of(tmp_path, rows(1)[0] + b"\n").scan().digest
    two = file_of(tmp_path, rows(1)[0] + b" \n").scan().digest

    assert one != two
    assert file_of(tmp_path, rows(1)[0] + b"\n").scan().digest == one


@pytest.mark.parametrize(
    ("start", "word"), [(b"\xff\xfe", "UTF-16"), (b"\x1f\x8b\x08", "compressed")]
)
def test_a_file_in_another_encoding_is_refused_as_a_whole(
    tmp_path: Path, start: bytes, word: str
) -> None:
    with pytest.raises(InputRefused, match=word):
        file_of(tmp_path, start + b"x\x00y\x00").scan()


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match=r"none\.jsonl"):
        FileSource(tmp_path / "none.jsonl").scan()


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b'{"custom_id": "a", "input": "x"', "invalid_json"),
        (b"not json", "invalid_json"),
        (b'{"custom_id": "a", "input": "\xff"}', "invalid_utf8"),
        (b'{"custom_id": "a", "input": "\\ud800"}', "invalid_utf8"),
        (b'{"custom_id": "a", "input": "x", "params": {"dimensions": NaN}}', "non_finite_number"),
        (b'{"custom_id": "a", "input": -Infinity}', "non_finite_number"),
        (b'{"custom_id": "a", "input": ' + b"[" * 100_000, "invalid_json"),
        (b'["a"]', "invalid_type"),
        (b"null", "invalid_type"),
        (b'{"input": "x"}', "missing_field"),
        (b'{"custom_id": "a"}', "missing_field"),
        (b'{"custom_id": 7, "input": "x"}', "invalid_type"),
        (b'{"custom_id": "", "input": "x"}', "invalid_type"),
        (b'{"custom_id": "' + b"x" * 257 + b'", "input": "x"}', "invalid_type"),
        (b'{"custom_id": "a", "input": "x", "params": 3}', "invalid_type"),
        (b'{"custom_id": "a", "url": "/v1/chat/completions", "body": {}}', "invalid_type"),
        (b'{"custom_id": "a", "method": "GET", "url": "/v1/embeddings", "body": {}}',
         "invalid_type"),
        (b'{"custom_id": "a", "url": "/v1/embeddings", "body": {}}', "missing_field"),
        (b'{"custom_id": "a", "url": "/v1/embeddings", "body": 1}', "invalid_type"),
        (b'{"custom_id": "a", "url": "/v1/score", "body": {"text_1": "x"}}', "missing_field"),
        (b'{"custom_id": "a", "url": "/v1/score", "body": {"text_1": ["x", "y"], '
         b'"text_2": ["z"]}}', "invalid_type"),
    ],
)  # fmt: skip
def test_a_broken_line_becomes_an_error_with_its_number(raw: bytes, code: str) -> None:
    found = line(raw)

    assert found.invalid is not None
    assert found.invalid[0] == code
    assert found.invalid[1].startswith("line 3: ")
    assert not found.fields


@pytest.mark.parametrize(
    "raw",
    [
        b'{"custom_id": "mine \\u00e9", "input": "cut off',
        b'{"custom_id": "mine \xc3\xa9", "input": "\xff"}',
        b'{"input": NaN, "custom_id": "mine \\u00e9"}',
        b'{"custom_id": "mine \\u00e9"}',
    ],
)
def test_the_name_of_a_broken_line_is_saved_when_it_can_be_read(raw: bytes) -> None:
    assert line(raw).custom_id == "mine é"
    assert line(raw).named


def test_a_broken_line_without_a_name_is_named_by_its_number() -> None:
    assert line(b"{{{").custom_id == "line-3"
    assert not line(b"{{{").named


def test_messages_never_repeat_what_the_line_says() -> None:
    secret = "hunter2"
    for raw in (
        b'{"custom_id": "a", "input": "hunter2"',
        b'{"custom_id": "a", "url": "hunter2", "body": {}}',
        b'{"custom_id": "a", "input": {"hunter2": NaN}}',
    ):
        found = line(raw)
        assert found.invalid is not None
        assert secret not in found.invalid[1]


def test_a_line_over_the_limit_is_answered_and_the_next_one_is_read() -> None:
    big = b'{"custom_id": "big", "input": "' + b"x" * LINE_BYTES_MAX + b'"}\n'
    stream = io.BytesIO(rows(1)[0] + b"\n" + big * 2 + rows(2)[1])

    found = [read_line(number, raw) for number, raw in numbered_lines(stream.readline)]

    assert [item.custom_id for item in found] == ["c0", "line-2", "line-3", "c1"]
    assert found[1].invalid is not None
    assert found[1].invalid[0] == "input_too_long"


def test_a_line_of_exactly_the_limit_is_read() -> None:
    stream = io.BytesIO(b"x" * 10 + b"\n" + b"y" * 11 + b"\n" + b"z" * 10)

    found = list(numbered_lines(stream.readline, limit_bytes=10))

    assert found == [(1, b"x" * 10), (2, None), (3, b"z" * 10)]


def test_plain_lines_may_carry_parameters_beside_the_input() -> None:
    found = line(
        {"custom_id": "a", "input": "x", "truncate": True, "model": "m",
         "params": {"normalize": False}, "metadata": {"k": 1}, "timeout_ms": 5}
    )  # fmt: skip

    assert found.fields == {
        "input": "x", "model": "m", "metadata": {"k": 1}, "timeout_ms": 5,
        "params": {"truncate": True, "normalize": False},
    }  # fmt: skip


def test_an_openai_batch_line_becomes_an_embedding_request() -> None:
    found = line(
        {"custom_id": "a", "method": "POST", "url": "/v1/embeddings",
         "body": {"model": "m", "input": ["x", "y"], "dimensions": 8, "user": "u",
                  "encoding_format": "base64"}}
    )  # fmt: skip

    assert found.invalid is None
    assert found.fields == {
        "task": "embed", "model": "m", "input": ["x", "y"],
        "params": {"dimensions": 8, "encoding_format": "base64"},
    }  # fmt: skip


def test_score_rerank_and_classify_lines_become_pairs_and_texts() -> None:
    pair = {"text": "q", "text_pair": "d"}
    single = line({"custom_id": "a", "url": "/v1/score", "body": {"text_1": "q", "text_2": "d"}})
    many = line(
        {"custom_id": "a", "url": "/v1/score", "body": {"text_1": "q", "text_2": ["d", "d"]}}
    )
    rerank = line(
        {"custom_id": "a", "url": "/v1/rerank",
         "body": {"query": "q", "documents": ["d"], "top_n": 1}}
    )  # fmt: skip
    classify = line({"custom_id": "a", "url": "/v1/classify", "body": {"input": "x"}})

    assert single.fields == {"task": "score", "input": pair}
    assert many.fields == {"task": "score", "input": [pair, pair]}
    assert rerank.fields == {"task": "score", "input": [pair]}
    assert classify.fields == {"task": "classify", "input": "x"}
