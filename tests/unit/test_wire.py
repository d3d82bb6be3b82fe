"""Framing, caps and consistency of records; the messages a run leaves as."""

from __future__ import annotations

import json
import struct
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamer.errors import Undecodable
from streamer.event import headers, wire
from streamer.event.columns import Inconsistent
from streamer.event.file_schemas import codec
from streamer.event.json_form import output_lines
from streamer.event.records import BucketPlan, Completion, ItemError, JobState, Outputs
from streamer.event.result_item import parse_output_line
from tests.support.records import a_run

COMPLETION = Completion(
    lane="bulk", tenant="default", job_id="j", form="json", status="completed", total=2,
    counts={"succeeded": 2}, digest=bytes(16),
)  # fmt: skip


def _long(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "corrupt_record"),
        (b"", "corrupt_record"),
        (b"\x00", "corrupt_record"),
        (b"\x00\x00\x00\x00", "corrupt_record"),
        (b"\x00\x00\x00\x00\x01", "unknown_schema"),
        (b"\x01" + bytes(20), "unknown_schema"),
        (b"{}", "unknown_schema"),
    ],
)
def test_foreign_framing_is_told_apart(value: bytes | None, code: str) -> None:
    with pytest.raises(Undecodable) as caught:
        wire.decode_output(value)

    assert caught.value.code == code


def test_a_value_over_the_limit_is_not_looked_into() -> None:
    limit = wire.MAX_BYTES["work"]

    with pytest.raises(Undecodable, match=f"the limit is {limit}"):
        wire.decode_work(bytes(limit + 1))


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("filler", [b"", b"\x00" * 1_000_000])
def test_an_array_that_claims_billions_stays_small(filler: bytes, blocks: int) -> None:
    """A count costs nothing by itself; entries cost bytes, of which there is a limit."""
    head = b"\x02a\x02b\x02c" + struct.pack("b", 2)  # model, lane, version, then bounds
    value = codec("bucket_plan").prefix + head + (_long(50_000_000) + filler) * blocks

    tracemalloc.start()
    with pytest.raises(Undecodable, match="corrupt_record"):
        wire.decode_plan(value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 20 * len(value) + 1_000_000


def test_the_densest_forged_array_is_bounded_by_its_bytes() -> None:
    """Errors take four bytes each on the wire and become dictionaries."""
    run = a_run(form="avro")
    value = wire.encode_output(run)
    assert run.outputs is not None
    at = value.index(run.outputs.data) + len(run.outputs.data)
    assert value[at] == 0, "the empty array of errors follows the data"
    count = 50_000
    bomb = value[:at] + _long(count) + bytes(4 * count) + value[at:]

    tracemalloc.start()
    with pytest.raises(Undecodable, match="too many errors"):
        wire.decode_output(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 64 * len(bomb)


@pytest.mark.parametrize(
    "change",
    [
        {"status": np.zeros(3, "u1")},
        {"input_tokens": np.zeros(1, "<i4")},
        {"receipt_at": np.array([0, 1], "<u2")},
        {"receipts": ()},
        {"outputs": None},
        {"outputs": Outputs(kind="embedding", dtype="f32", row_shape=(2,), data=bytes(12))},
        {"outputs": Outputs(kind="embedding", dtype="f32", row_shape=(-2,), data=bytes(16))},
        {"outputs": Outputs(kind="embedding", dtype="f64", row_shape=(1,), data=bytes(16))},
        {"outputs": Outputs(kind="music", dtype="f32", row_shape=(2,), data=bytes(16))},
        {"errors": (ItemError(row=0, code="poison", message=""),)},
        {"errors": (ItemError(row=2, code="poison", message=""),)},
        {"first_index": 1},
        {"job_id": None},
        {"digest": bytes(3)},
    ],
)
def test_columns_that_disagree_are_never_written(change: dict[str, Any]) -> None:
    with pytest.raises(Inconsistent):
        wire.encode_output(a_run(**change))


def _forged(**changes: Any) -> bytes:
    """A run as a stranger could write it, without our checks."""
    datum = codec("output").decode(wire.encode_output(a_run()))
    run = datum["run"]
    for path, value in changes.items():
        target = run
        *parents, last = path.split("__")
        for parent in parents:
            target = target[parent]
        target[last] = value
    datum["run"] = ("streamer.Run", run)
    return codec("output").encode(datum)


@pytest.mark.parametrize(
    "change",
    [
        {"status": b"\x00"},
        {"items__index": bytes(15)},
        {"items__custom_id": ["a"]},
        {"items__custom_id": []},
        {"items__rows": struct.pack("<2i", 3, -1)},
        {"items__rows": struct.pack("<2i", 2**31 - 1, 2**31 - 1)},
        {"items__input_digest": bytes(31)},
        {"items__metadata": ["1"]},
        {"outputs__row_shape": [1 << 30, 1 << 30]},
        {"outputs__row_shape": []},
        {"errors": [{"row": 1, "code": "", "message": "", "retryable": False}] * 2},
        {"receipt_at": b"\xff\xff\xff\xff"},
    ],
)
def test_columns_that_disagree_are_corrupt(change: dict[str, Any]) -> None:
    with pytest.raises(Undecodable, match="corrupt_record"):
        wire.decode_output(_forged(**change))


def test_a_reader_takes_an_unknown_state_for_errored() -> None:
    run = a_run(status=np.array([9, 9], "u1"), outputs=None)

    read = wire.decode_output(wire.encode_output(run))
    lines = [json.loads(line) for line in output_lines(run)]

    assert read.status.tolist() == [9, 9]  # type: ignore[union-attr]
    assert [line["status"] for line in lines] == ["errored", "errored"]


@pytest.mark.parametrize(
    "plan",
    [
        {"bounds": (8, 8), "labels": (0, 1)},
        {"bounds": (8, 16), "labels": (0, 0)},
        {"bounds": (8,), "labels": (0, 1)},
        {"bounds": (), "labels": ()},
    ],
)
def test_a_plan_leaves_no_bucket_without_partition(plan: dict[str, Any]) -> None:
    with pytest.raises(Inconsistent):
        wire.encode_plan(BucketPlan(model="m", lane="bulk", version=1, **plan))


def test_a_job_state_of_a_later_layout_is_refused() -> None:
    state = JobState(lane="bulk", tenant="t", job_id="j", version=2)

    with pytest.raises(Undecodable, match="too new"):
        wire.decode_job_state(wire.encode_job_state(state))


def test_json_leaves_as_one_message_an_item() -> None:
    out = wire.output_records(a_run(), "streamer.outputs.bulk", 3)

    assert [record.key for record in out] == [b"bulk/default/j"] * 2
    assert {(record.topic, record.partition) for record in out} == {("streamer.outputs.bulk", 3)}
    assert out[0].headers == {
        headers.KIND: b"run",
        headers.JOB: b"bulk/default/j",
        headers.CONTENT_TYPE: b"application/json",
    }
    assert [json.loads(record.value or b"")["index"] for record in out] == [0, 1]


def test_avro_leaves_as_one_run() -> None:
    (out,) = wire.output_records(a_run(form="avro"), "t", 0)

    assert out.headers[headers.CONTENT_TYPE] == b"avro/binary"
    assert len(wire.decode_output(out.value).items) == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("form", ["json", "avro"])
def test_a_completion_leaves_in_the_form_of_its_job(form: str) -> None:
    (out,) = wire.output_records(replace(COMPLETION, form=form), "t", 0)

    assert out.headers[headers.KIND] == b"completion"
    assert out.key == b"bulk/default/j"
    assert (out.value or b"")[:1] == (b"{" if form == "json" else b"\x00")


def test_a_reply_has_its_custom_id_as_key_and_no_job_fields() -> None:
    run = a_run()
    reply = replace(
        run, job_id=None, first_index=-1, digest=b"", items=run.items.take([1]),
        status=run.status[1:], input_tokens=run.input_tokens[1:], receipt_at=run.receipt_at[1:],
        outputs=replace(run.outputs, data=run.outputs.data[8:]),  # type: ignore[union-attr, type-var]
    )  # fmt: skip

    (out,) = wire.output_records(reply, "t", 0)
    fields = json.loads(out.value or b"")

    assert out.key == b"b"
    assert out.headers[headers.KIND] == b"reply"
    assert headers.JOB not in out.headers
    assert "job_id" not in fields
    assert "index" not in fields
    item = parse_output_line(out.value or b"")
    assert item.index is None  # type: ignore[union-attr]
