"""Attempts beside a committed offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.emit.offset_metadata import (
    METADATA_BYTES_MAX,
    OffsetMetadata,
    at_assignment,
    encode_metadata,
    parse_metadata,
)

_offsets = st.integers(0, (1 << 63) - 1)
_rows = st.none() | st.tuples(st.integers(0, 1_000), st.integers(1, 1_000)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


@given(attempts=st.integers(0, 1 << 31), offset=_offsets, rows=_rows)
def test_what_is_written_is_read_back_and_fits_the_broker(
    attempts: int, offset: int, rows: tuple[int, int] | None
) -> None:
    metadata = OffsetMetadata(attempts=attempts, offset=offset, rows=rows)
    text = encode_metadata(metadata)

    assert parse_metadata(text) == metadata
    assert len(text.encode()) <= METADATA_BYTES_MAX


@given(st.text() | st.integers(1, 4_096).map(lambda n: "[" * n))
def test_any_text_is_either_read_or_unknown(text: str) -> None:
    found = parse_metadata(text)

    assert found is None or found.attempts >= 0


@pytest.mark.parametrize(
    "text",
    [
        "", "7", "null", '{"v":2,"attempts":1,"offset":5}', '{"v":1,"attempts":-1,"offset":5}',
        '{"v":1,"attempts":true,"offset":5}', '{"v":1,"attempts":1}',
        '{"v":1,"attempts":1,"offset":"5"}', '{"v":1,"attempts":1,"offset":5}' + " " * 4_096,
    ],
)  # fmt: skip
def test_foreign_later_or_garbled_text_counts_as_nothing_known(text: str) -> None:
    assert parse_metadata(text) is None
    assert at_assignment(5, text) == OffsetMetadata(attempts=0, offset=5)


def test_garbled_rows_do_not_lose_the_attempts() -> None:
    found = parse_metadata('{"v":1,"attempts":2,"offset":5,"rows":[9,3]}')

    assert found == OffsetMetadata(attempts=2, offset=5)


def test_the_same_offset_again_is_one_attempt_more() -> None:
    first = at_assignment(40, "")
    second = at_assignment(40, encode_metadata(first))
    third = at_assignment(40, encode_metadata(second))

    assert [first.attempts, second.attempts, third.attempts] == [0, 1, 2]


def test_another_offset_starts_anew() -> None:
    before = encode_metadata(OffsetMetadata(attempts=3, offset=40))

    assert at_assignment(52, before) == OffsetMetadata(attempts=0, offset=52)
