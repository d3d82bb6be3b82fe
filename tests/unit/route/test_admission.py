from __future__ import annotations

import re

import pytest

from streamer.errors import ItemRejected, Undecodable
from streamer.event.records import InferenceRequest, InputRow
from streamer.route.admission import Admission, deadline_of
from streamer.route.models import AdmissionLimits
from streamer.route.tokenizer import TextRequest
from tests.support.router import WALL_MS, a_model

LIMITS = AdmissionLimits(text_chars_max=100, list_rows_max=4, result_bytes_max=64, replies=3)


def request(**fields: object) -> InferenceRequest:
    base: dict[str, object] = {
        "custom_id": "c", "model": "fake", "rows": (InputRow(text="to be"),),
        "input_canonical": b'"to be"',
    }  # fmt: skip
    return InferenceRequest(**{**base, **fields})  # type: ignore[arg-type]


def admission() -> Admission:
    served = [a_model(), a_model("score", task="score"), a_model("class", task="classify")]
    return Admission(lane="bulk", models={one.slug: one for one in served}, limits=LIMITS)


def refusal_of(**fields: object) -> ItemRejected:
    with pytest.raises(ItemRejected) as caught:
        admission().admit(request(**fields), accepted_at_ms=WALL_MS, now_ms=WALL_MS)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"model": "nope"}, "unknown_model", "no model 'nope'; served here: class, fake, score"),
        ({"invalid": ("invalid_json", "line 3 is broken")}, "invalid_json", "line 3 is broken"),
        ({"lane": "fast"}, "invalid_type", "lane is 'fast', but the topic belongs to the lane 'b"),
        ({"tenant": "a/b"}, "invalid_type", "tenant must be"),
        ({"reply_to": 3}, "invalid_type", "reply_to is 3, but replies has the partitions 0 to 2"),
        ({"reply_to": -1}, "invalid_type", "reply_to is -1"),
        ({"task": "score"}, "invalid_type", "fake does embed, not 'score'"),
        ({"rows": ()}, "empty_input", "at least one text"),
        ({"rows": (InputRow(text=""),)}, "empty_input", "input is an empty text"),
        ({"rows": (InputRow(text="a"), InputRow(text="")), "is_list": True}, "empty_input",
         r"input\[1\] is an empty text"),
        ({"rows": (InputRow(text="a"),) * 5, "is_list": True}, "invalid_type", "a list of 5 texts"),
        ({"rows": (InputRow(text="a" * 101),)}, "input_too_long", "101 characters and at most 100"),
        ({"rows": (InputRow(text="\ud800"),)}, "invalid_utf8", "lone surrogate"),
        ({"rows": (InputRow(ids=()),)}, "empty_input", "no token ids"),
        ({"rows": (InputRow(ids=(1, 65_536)),)}, "invalid_type", "fake's 0 to 65535"),
        ({"rows": (InputRow(ids=(-1,)),)}, "invalid_type", "fake's 0 to 65535"),
        ({"rows": (InputRow(text="a", pair="b"),)}, "invalid_type", "fake takes texts"),
        ({"model": "score"}, "invalid_type", "score takes pairs"),
        ({"params": {"dimensions": 5}}, "invalid_type", "have 4 values"),
        ({"params": {"dimensions": [1]}}, "invalid_type", "whole number"),
        ({"deadline_at_ms": WALL_MS - 7}, "expired", "passed 7 ms"),
        ({"deadline_at_ms": WALL_MS}, "expired", "passed 0 ms"),
        ({"timeout_ms": 0}, "expired", "passed 0 ms"),
    ],
)  # fmt: skip
def test_a_refusal_says_its_code_and_what_to_do(
    fields: dict[str, object], code: str, says: str
) -> None:
    refusal = refusal_of(**fields)

    assert refusal.code == code
    assert re.search(says, refusal.message), refusal.message


def test_a_message_never_repeats_the_text_of_the_input() -> None:
    secret = "swordfish " * 20

    assert "swordfish" not in refusal_of(rows=(InputRow(text=secret),)).message


def test_too_large_an_answer_is_refused_before_it_costs_device_time() -> None:
    rows = (InputRow(text="a"),) * 4
    model = a_model(dimension=5)
    strict = Admission(lane="bulk", models={"fake": model}, limits=LIMITS)

    with pytest.raises(ItemRejected, match="about 80 bytes and at most 64 fit") as caught:
        strict.admit(request(rows=rows, is_list=True), accepted_at_ms=0, now_ms=0)
    half = request(rows=rows, is_list=True, params={"encoding_format": "f16"})

    assert caught.value.code == "result_too_large"
    assert len(strict.admit(half, accepted_at_ms=0, now_ms=0).rows) == 4


def test_the_same_request_in_its_own_lane_is_admitted() -> None:
    admitted = admission().admit(request(lane="bulk"), accepted_at_ms=WALL_MS, now_ms=WALL_MS)

    assert admitted.rows == (TextRequest("to be", None, False, "right"),)
    assert admitted.deadline_at_ms == 0
    assert len(admitted.digest) == 16


def test_the_earlier_of_two_deadlines_counts_and_a_timeout_starts_at_the_append() -> None:
    assert deadline_of(request(deadline_at_ms=900, timeout_ms=100), 1_000) == 900
    assert deadline_of(request(deadline_at_ms=2_000, timeout_ms=100), 1_000) == 1_100
    assert deadline_of(request(), 1_000) == 0
    assert deadline_of(request(deadline_at_ms=-5), 1_000) == 1


def test_a_long_text_is_cut_from_the_side_that_is_not_wanted() -> None:
    text = "a" * 60 + "b" * 60

    def cut(direction: str) -> str:
        wish = {"truncate": True, "truncation_direction": direction}
        one = request(rows=(InputRow(text=text),), params=wish)
        admitted = admission().admit(one, accepted_at_ms=0, now_ms=0)
        assert admitted.clipped
        (row,) = admitted.rows
        assert isinstance(row, TextRequest)
        return row.text

    assert cut("right") == "a" * 60 + "b" * 40
    assert cut("left") == "a" * 40 + "b" * 60


def test_equal_wishes_share_their_parameters_and_one_and_true_are_not_equal() -> None:
    shared = admission()
    first = shared.admit(request(params={"truncate": True}), accepted_at_ms=0, now_ms=0)
    again = shared.admit(request(params={"truncate": True}), accepted_at_ms=0, now_ms=0)

    assert first.params is again.params
    with pytest.raises(ItemRejected):
        shared.admit(request(params={"truncate": 1}), accepted_at_ms=0, now_ms=0)


def test_the_digest_names_task_input_and_parameters() -> None:
    shared = admission()

    def digest(**fields: object) -> bytes:
        return shared.admit(request(**fields), accepted_at_ms=0, now_ms=0).digest

    assert digest() == digest(custom_id="other", metadata="{}")
    assert digest() != digest(params={"normalize": False})
    assert digest() != digest(input_canonical=b'"not"')


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"job_id": "a/b", "index": 0}, "invalid_type"),
        ({"job_id": "", "index": 0}, "invalid_type"),
        ({"job_id": "j", "tenant": "x y", "index": 0}, "invalid_type"),
        ({"job_id": "j"}, "missing_field"),
        ({"job_id": "j", "index": -1}, "index_out_of_range"),
        ({"job_id": "j", "index": 1 << 60}, "index_out_of_range"),
    ],
)
def test_what_has_no_address_is_a_dead_letter(fields: dict[str, object], code: str) -> None:
    with pytest.raises(Undecodable) as caught:
        admission().check_identity(request(**fields))

    assert caught.value.code == code
