"""No record, however odd, may end the process: it would be delivered again for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streamer.event.headers import ORIGIN
from streamer.event.lane import Record
from streamer.route.fake_tokenizer import FakeTokenizer
from streamer.route.tokenizer import Encoded, TextRequest
from tests.support.router import (
    NAMES,
    WALL_MS,
    Emitted,
    a_core,
    a_model,
    a_record,
    a_request,
    assign,
    drained,
    now_at,
)

JOB = {"job_id": "j", "total": 3}
# What the dead-letter topic takes with the smallest settings: a request's 4 MiB and 1 MiB more.
LETTER_TOPIC_BYTES = 5 << 20


class _Panic(BaseException):
    """As the tokenizer library raises it: no Exception."""


class _Fragile(FakeTokenizer):
    def encode(self, texts: Sequence[TextRequest]) -> list[Encoded]:
        for item in texts:
            if "panic" in item.text:
                raise _Panic(item.text)
            if "oops" in item.text:
                raise ValueError(item.text)
        return super().encode(texts)


def _routed(records: list[Record], **core: Any) -> Emitted:
    router = a_core(**core)
    assign(router)
    router.deliver(records, now_at())
    (emitted,) = drained(router)
    return emitted


@pytest.mark.parametrize("fields", [{"timeout_ms": (1 << 63) - 1}, {"deadline_at_ms": 1 << 62}])
def test_a_deadline_beyond_all_columns_is_far_away(fields: dict[str, int]) -> None:
    emitted = _routed([a_record(a_request(**JOB, index=0, **fields))])

    (work,) = emitted.work
    assert work.deadline_at_ms[0] > WALL_MS
    assert emitted.seen[0].deadline_at_ms > WALL_MS


@pytest.mark.parametrize("origin", [b"t:2147483648:0", b"t:0:9223372036854775808"])
def test_an_origin_beyond_all_columns_is_a_dead_letter(origin: bytes) -> None:
    emitted = _routed([a_record(a_request(), headers={ORIGIN: origin})])

    assert [letter.code for letter in emitted.letters] == ["corrupt_record"]


def test_a_dead_letter_of_a_huge_key_fits_its_topic() -> None:
    key = bytes(range(256)) * 16_384
    record = Record(NAMES.requests("bulk"), 0, 0, WALL_MS, key, b"{", {})

    (out,) = _routed([record]).plan.records

    assert len(out.key or b"") + len(out.value or b"") < LETTER_TOPIC_BYTES


@pytest.mark.parametrize("text", ["a panic", "an oops"])
def test_a_text_that_breaks_the_tokenizer_is_refused_alone(text: str) -> None:
    texts = ["one", text, "three"]
    records = [a_record(a_request(**JOB, index=at, input=one), at) for at, one in enumerate(texts)]
    router = a_core(a_model(tokenizer=_Fragile(max_length=256)))
    assign(router)

    router.deliver(records, now_at())
    (emitted,) = drained(router)

    assert sorted(emitted.work[0].items.index.tolist()) == [0, 2]
    (refused,) = emitted.results
    assert [error.code for error in refused.errors] == ["model_error"]
    assert text not in refused.errors[0].message


def test_a_record_that_no_check_foresaw_is_a_dead_letter_without_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router = a_core()
    assign(router)

    def read(value: bytes, headers: object) -> None:
        raise RuntimeError(f"cannot stand {value!r}")

    monkeypatch.setattr(router._reader, "_read_request", read)
    router.deliver([a_record(a_request(input="secret words"))], now_at())
    (emitted,) = drained(router)
    (letter,) = emitted.letters

    assert letter.code == "corrupt_record"
    assert "secret" not in letter.message
