"""From answers to records: encodings, refusals, cuts, replies, dead letters."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from streamer.emit.answer_rows import Answers
from streamer.emit.results import EmitLimits, output_records
from streamer.event import codes, wire
from streamer.event.lane import OutRecord
from streamer.event.records import OutputRun, Receipt, ResultRecord, WorkRecord
from streamer.event.topics import job_key, partition_of
from tests.support.work_builders import NAMES, a_work

RNG = np.random.default_rng(7)


def _answers(
    work: WorkRecord, values: NDArray[np.float32] | None = None, *, kind: str = "embedding"
) -> Answers:
    if values is None:
        values = RNG.standard_normal((len(work.lengths), 8)).astype(np.float32)
    return Answers(
        work=work, status=np.zeros(len(work.items), np.uint8), receipt=Receipt(worker="w"),
        values=values, kind=kind,
    )  # fmt: skip


def _results(answers: Answers, **limits: int) -> list[ResultRecord]:
    records = output_records(answers, NAMES, EmitLimits(**limits))
    return [
        wire.decode_result(record.value)
        for record in records
        if record.topic == NAMES.results("bulk")
    ]


def _one(answers: Answers, dtype: str) -> NDArray[np.generic]:
    (result,) = _results(answers)
    assert result.outputs is not None
    flat = np.frombuffer(result.outputs.data, dtype)
    return flat.reshape(-1, *result.outputs.row_shape)


def test_results_go_to_the_partition_of_their_job_with_all_columns() -> None:
    work = a_work(3, rows=[1, 2, 1])
    answers = _answers(work)

    (record,) = output_records(answers, NAMES, EmitLimits(results=7))

    key = job_key("bulk", "default", "job-1")
    assert (record.key, record.partition) == (key, partition_of(key, 7))
    result = wire.decode_result(record.value)
    assert result.items.custom_id == ["c0", "c1", "c2"]
    assert result.input_tokens.tolist() == [5, 10, 5]
    assert result.outputs.data == answers.values.tobytes()
    assert result.status.tolist() == [codes.SUCCEEDED] * 3


def test_half_precision_and_base64_and_int8_and_binary() -> None:
    values = np.array([[0.5, -1.0, 0.25, 3.0, 0.0, 1.0, -2.0, 1.5, 0.1]], np.float32)

    half = _one(_answers(a_work(1, encoding="f16"), values), "<f2")
    base64 = _one(_answers(a_work(1, encoding="base64"), values), "<f4")
    int8 = _one(_answers(a_work(1, encoding="int8"), values), "i1")
    bits = _one(_answers(a_work(1, encoding="binary"), values), "u1")

    np.testing.assert_array_equal(half, values.astype("<f2"))
    np.testing.assert_array_equal(base64, values)
    assert int8.tolist() == [[21, -42, 11, 127, 0, 42, -85, 64, 4]]
    assert bits.tolist() == [[0b10110101, 0b10000000]]


def test_int8_of_a_zero_vector_is_zero() -> None:
    assert not _one(_answers(a_work(1, encoding="int8"), np.zeros((1, 4), np.float32)), "i1").any()


def test_int8_keeps_the_direction() -> None:
    values = RNG.standard_normal((20, 384)).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)

    coded = _one(_answers(a_work(20, encoding="int8"), values), "i1").astype(np.float32)

    cosine = (coded * values).sum(axis=1) / np.linalg.norm(coded, axis=1)
    assert cosine.min() > 0.999


def test_a_shortened_embedding_is_brought_back_to_unit_length() -> None:
    values = RNG.standard_normal((3, 8)).astype(np.float32)
    params = json.dumps({"dimensions": 4, "normalize": True})
    plain = json.dumps({"dimensions": 4, "normalize": False})

    short = _one(_answers(a_work(3, params=params), values), "<f4")
    raw = _one(_answers(a_work(3, params=plain), values), "<f4")

    np.testing.assert_array_equal(raw, values[:, :4])
    expected = values[:, :4] / np.linalg.norm(values[:, :4], axis=1, keepdims=True)
    np.testing.assert_allclose(short, expected, rtol=1e-6)


def test_scores_are_float32_whatever_the_encoding() -> None:
    values = np.array([0.5, 0.25], np.float32)
    work = a_work(2, encoding="binary", task="score")

    (result,) = _results(_answers(work, values, kind="scores"))

    assert (result.outputs.dtype, result.outputs.row_shape) == ("f32", ())
    assert result.outputs.data == values.tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_item_with_a_value_that_is_not_finite_is_errored_alone(bad: float) -> None:
    answers = _answers(a_work(3, rows=[1, 2, 1]))
    answers.values[2, 3] = bad
    expected = answers.values[[0, 3]].tobytes()

    (result,) = _results(answers)

    assert result.status.tolist() == [codes.SUCCEEDED, codes.ERRORED, codes.SUCCEEDED]
    assert [(error.row, error.code) for error in result.errors] == [(1, "non_finite_output")]
    assert result.outputs.data == expected


def test_a_value_that_overflows_half_precision_is_errored_not_infinite() -> None:
    values = np.array([[1.0, 70_000.0], [1.0, 2.0]], np.float32)

    (result,) = _results(_answers(a_work(2, encoding="f16"), values))

    assert result.status.tolist() == [codes.ERRORED, codes.SUCCEEDED]
    assert np.frombuffer(result.outputs.data, "<f2").tolist() == [1.0, 2.0]


def test_large_answers_are_spread_over_several_records_in_order() -> None:
    values = RNG.standard_normal((10, 256)).astype(np.float32)
    answers = _answers(a_work(10), values)

    results = _results(answers, record_bytes_max=3_500)

    assert [name for result in results for name in result.items.custom_id] == [
        f"c{n}" for n in range(10)
    ]
    assert b"".join(result.outputs.data for result in results) == values.tobytes()
    assert len(results) == 4
    assert all(len(wire.encode_result(result)) <= 3_500 + 400 for result in results)


def test_only_an_item_too_large_for_a_record_of_its_own_is_refused() -> None:
    values = RNG.standard_normal((12, 64)).astype(np.float32)
    answers = _answers(a_work(3, rows=[1, 10, 1]), values)

    results = _results(answers, record_bytes_max=1_500)

    status = [code for result in results for code in result.status.tolist()]
    assert status == [codes.SUCCEEDED, codes.ERRORED, codes.SUCCEEDED]
    errors = [error for result in results for error in result.errors]
    assert [error.code for error in errors] == ["result_too_large"]
    data = b"".join(result.outputs.data for result in results if result.outputs)
    assert data == values[[0, 11]].tobytes()


def test_metadata_that_fills_a_record_is_dropped_and_the_item_is_still_answered() -> None:
    work = a_work(2, metadata=["x" * 5_000, '{"a":1}'])

    results = _results(_answers(work), record_bytes_max=2_000)

    metadata = [text for r in results for text in (r.items.metadata or [None] * len(r.items))]
    assert metadata == [None, '{"a":1}']
    assert sum(len(result.items) for result in results) == 2


def test_rows_without_an_answer_have_no_bytes() -> None:
    answers = _answers(a_work(3))
    answers.fail(1, "expired", "late")
    answers.fail(2, "model_error", "broken")

    (result,) = _results(answers)

    assert result.status.tolist() == [codes.SUCCEEDED, codes.EXPIRED, codes.ERRORED]
    assert result.outputs.data == answers.values[0].tobytes()


def test_a_record_without_any_answer_has_no_outputs() -> None:
    answers = _answers(a_work(2))
    answers.values = None
    for row in range(2):
        answers.fail(row, "expired", "late")

    (result,) = _results(answers)

    assert result.outputs is None
    assert len(result.errors) == 2


def _reply(work: WorkRecord, **limits: int) -> tuple[OutRecord, Answers]:
    answers = _answers(work)
    (record,) = output_records(answers, NAMES, EmitLimits(**limits))
    return record, answers


def test_a_reply_goes_where_it_was_asked_to_else_by_its_origin() -> None:
    asked, _ = _reply(a_work(1, job_id=None, reply_to=5, form="avro"), replies=12)
    beyond, _ = _reply(a_work(1, job_id=None, reply_to=14, form="avro"), replies=12)
    plain, _ = _reply(a_work(1, job_id=None, first_index=2, form="avro"), replies=12)

    assert (asked.partition, beyond.partition, plain.partition) == (5, 2, 2)


def test_a_reply_is_an_output_of_one_item_without_job() -> None:
    record, answers = _reply(a_work(1, job_id=None, form="avro"))

    run = wire.decode_output(record.value)

    assert isinstance(run, OutputRun)
    assert run.job_id is None
    assert record.topic == NAMES.replies("bulk")
    assert run.outputs.data == answers.values.tobytes()
    assert run.receipts[0].worker == "w"


def test_a_reply_above_the_topic_s_limit_is_an_errored_reply() -> None:
    record, _ = _reply(a_work(1, job_id=None, rows=[50]), reply_bytes_max=2_000)

    answer = json.loads(record.value)

    assert (answer["status"], answer["error"]["code"]) == ("errored", "result_too_large")


def test_a_culprit_is_errored_and_a_dead_letter_of_its_origin() -> None:
    answers = _answers(a_work(3))
    answers.fail(1, "poison", "the model died of it")
    answers.culprits.add(1)

    records = output_records(answers, NAMES, EmitLimits(dead_letters=2))

    assert [record.topic for record in records] == [
        NAMES.results("bulk"),
        NAMES.dead_letters("bulk"),
    ]
    letter = wire.decode_dead_letter(records[1].value)
    assert (letter.topic, letter.partition, letter.offset) == (NAMES.requests("bulk"), 1, 1)
    assert (letter.code, letter.custom_id, letter.index, letter.value) == ("poison", "c1", 1, None)
    assert records[1].partition == 1


def test_labels_whose_json_would_not_fit_its_topic_are_refused_alone() -> None:
    names = tuple(f"a class with quite a long name {n}" for n in range(100))
    answers = _answers(
        a_work(2, rows=[1, 40]), RNG.random((41, 100)).astype(np.float32), kind="labels"
    )
    answers.labels = names

    (result,) = _results(answers, reply_bytes_max=100_000)

    assert result.status.tolist() == [codes.SUCCEEDED, codes.ERRORED]
    assert [error.code for error in result.errors] == ["result_too_large"]


def test_a_record_full_of_culprits_of_many_partitions_fits_into_one_transaction() -> None:
    work = a_work(64)
    work.items.origin_partition[:] = np.arange(64)
    answers = _answers(work)
    for row in range(64):
        answers.fail(row, "model_error", "broken")
        answers.culprits.add(row)

    records = output_records(answers, NAMES, EmitLimits(dead_letters=100))

    assert len(records) == 65
    assert len({record.at for record in records}) <= 16
