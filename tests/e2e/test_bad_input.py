"""Rubbish gets an answer of its own, or a dead letter; its neighbours never notice."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from loadgen.kafka_ledger import read_topic
from loadgen.ledger import Put
from streamer.client import Client
from streamer.event.wire import decode_dead_letter
from tests.support.line import Line, fake_put, words
from tests.support.stacks import StackFactory

pytestmark = pytest.mark.e2e

GOOD = 63
LIMIT_WORDS = 512

# What a job item at index 31 looks like, and the code of its answer ("" = answered).
ITEMS: dict[str, tuple[dict[str, Any] | bytes, str]] = {
    "p6_unknown_model": ({"model": "nobody", "input": "x"}, "unknown_model"),
    "p1_empty_text": ({"input": ""}, "empty_input"),
    "p2_a_million_characters": ({"input": "word " * 200_000}, "input_too_long"),
    "p2_a_million_characters_truncated": (
        {"input": "word " * 200_000, "params": {"truncate": True}}, ""),
    "p4_nul_and_control_characters": ({"input": "a\x00b \x07 c"}, ""),
    "wrong_type": ({"input": 17}, "invalid_type"),
    "wrong_type_inside_a_list": ({"input": ["a", None]}, "invalid_type"),
    "missing_input": ({}, "missing_field"),
    "deadline_passed": ({"input": "x", "deadline_at_ms": 1_000}, "expired"),
    "not_a_number": (
        b'{"custom_id":"bad","job_id":"%s","index":31,"total":64,"model":"fake","input":"x",'
        b'"params":{"dimensions":NaN}}', "non_finite_number"),
    "invalid_utf8_inside_a_field": (
        b'{"custom_id":"bad","job_id":"%s","index":31,"total":64,"model":"fake",'
        b'"input":"caf\xe9"}', "invalid_utf8"),
}  # fmt: skip

# Records in which not even (job, index) can be read, and the reason of their dead letter.
UNREADABLE: dict[str, tuple[bytes | None, str]] = {
    "p3_wrong_magic": (b"\x07garbage", "unknown_schema"),
    "p3_unknown_schema": (b"\x00\x00\x00\xff\xffrest", "unknown_schema"),
    "p3_broken_json": (b'{"custom_id": "x", "input": ', "invalid_json"),
    "p4_null_value": (None, "corrupt_record"),
    "p3_not_an_object": (b'["a"]', ""),
}


def _send(line: Line, topic: str, values: list[bytes | None]) -> None:
    producer = Producer({**line.broker, "message.max.bytes": 4_000_000})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def _item(job_id: str, index: int, **fields: Any) -> bytes:
    whole = {"custom_id": f"c{index}", "job_id": job_id, "index": index, "total": GOOD + 1,
             "model": "fake", **fields}  # fmt: skip
    return json.dumps(whole).encode()


def test_a9_a10_each_bad_item_among_63_good_ones_is_answered_alone(
    stack_factory: StackFactory,
) -> None:
    line = Line(stack_factory())
    topic = line.names.requests("bulk")
    values: list[bytes | None] = []
    for name, (bad, code) in ITEMS.items():
        for index in (n for n in range(GOOD + 1) if n != 31):
            line.ledger.put(name, index, fake_put(words(index), f"c{index}"))
            values.append(_item(name, index, input=words(index)))
        if isinstance(bad, bytes):
            values.insert(-20, bad % name.encode())
        else:
            values.insert(-20, _item(name, 31, **{"custom_id": "bad", **bad}))
        del code

    _send(line, topic, values)
    with Client(line.settings) as client:
        ends = {name: client.job(name) for name in ITEMS}
        rows = {name: list(job.results(timeout_s=60)) for name, job in ends.items()}

    for name, (_, code) in ITEMS.items():
        assert [row.index for row in rows[name]] == list(range(GOOD + 1)), name
        answer = rows[name][31]
        assert answer.custom_id == "bad", name
        if code:
            assert answer.status == ("expired" if code == "expired" else "errored"), name
            assert answer.error is not None, name
            assert answer.error.code == code, name
        else:
            assert answer.status == "succeeded", name
        others = [row for row in rows[name] if row.index != 31]
        assert all(row.status == "succeeded" for row in others), name
    assert rows["p2_a_million_characters_truncated"][31].truncated
    for name, report in line.verdict().items():
        assert report.wrong == report.lost == report.duplicated == report.misordered == 0, name
        assert report.foreign == 1, name  # the bad item itself


def test_p3_p4_what_cannot_be_read_is_dead_lettered_and_the_rest_goes_on(
    stack_factory: StackFactory,
) -> None:
    line = Line(stack_factory())
    topic = line.names.requests("bulk")
    good = [_item("around", n, input=words(n), total=GOOD) for n in range(GOOD)]
    for n in range(GOOD):
        line.ledger.put("around", n, fake_put(words(n), f"c{n}"))
    bad = [value for value, _ in UNREADABLE.values()]

    _send(line, topic, [*good[:30], *bad, *good[30:]])
    with Client(line.settings) as client:
        assert len(list(client.job("around").results(timeout_s=60))) == GOOD

    found = []
    read_topic(
        line.broker,
        line.names.dead_letters("bulk"),
        each=lambda message: found.append(decode_dead_letter(message.value() or b"")),
    )
    found.sort(key=lambda letter: letter.offset)
    assert [letter.offset for letter in found] == list(range(30, 30 + len(bad)))
    assert all((letter.topic, letter.partition) == (topic, 0) for letter in found)
    assert [letter.value for letter in found] == bad
    for letter, (name, (_, code)) in zip(found, UNREADABLE.items(), strict=True):
        assert not code or letter.code == code, name
    line.assert_exact()


def test_p5_repeated_and_outlying_indices_end_as_dead_letters(stack_factory: StackFactory) -> None:
    line = Line(stack_factory())
    # Which of two inputs for one index comes first in the results is open: route sorts.
    line.ledger.put("twice", 5, Put(custom_id="c5", status="succeeded"))
    for n in range(GOOD + 1):
        line.ledger.put("twice", n, fake_put(words(n), f"c{n}"))
    good = [_item("twice", n, input=words(n)) for n in range(GOOD + 1)]
    repeated = _item("twice", 5, input="something else")
    outside = _item("twice", 900, input="far away")

    _send(line, line.names.requests("bulk"), [*good[:40], repeated, outside, *good[40:]])
    with Client(line.settings) as client:
        rows = list(client.job("twice").results(timeout_s=60))
    until = time.monotonic() + 20
    while line.dead_letters() < 2 and time.monotonic() < until:
        time.sleep(0.2)

    assert len(rows) == GOOD + 1
    line.assert_exact()
    assert line.dead_letters() == 2


def test_s7_a13_a_file_with_a_byte_order_mark_and_broken_lines(
    stack_factory: StackFactory, tmp_path: Path
) -> None:
    line = Line(stack_factory())
    source = tmp_path / "in.jsonl"
    lines = [json.dumps({"custom_id": f"c{n}", "input": words(n)}).encode() for n in range(64)]
    lines[31] = b'{"custom_id": "c31", "input": '
    source.write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines) + b"\n")

    with Client(line.settings) as client:
        rows = list(client.submit(source, model="fake").results(timeout_s=60))

    assert [row.index for row in rows] == list(range(64))
    assert [row.status for row in rows].count("errored") == 1
    assert rows[31].error is not None
    assert rows[31].error.code == "invalid_json"
