"""Where an item first came in, as its header says."""

from __future__ import annotations

import pytest

from streamer.errors import Undecodable
from streamer.event.headers import ORIGIN, origin_from

HERE = ("streamer.requests.bulk", 3, 17)


def test_without_a_header_the_record_itself_is_the_origin() -> None:
    assert origin_from({}, HERE) == HERE


def test_redrive_and_replay_name_the_first_origin() -> None:
    assert origin_from({ORIGIN: b"other.requests.bulk:0:9000000000"}, HERE) == (
        "other.requests.bulk", 0, 9_000_000_000,
    )  # fmt: skip


@pytest.mark.parametrize(
    "raw",
    [b"", b"t", b"t:1", b":1:2", b"t:-1:2", b"t:1:-2", b"t:1:2:3", b"t:a:2", b"t:1_0:2", b"t: 1:2",
     b"\xff:1:x", b"t:\xd9\xa1:2", b"t:1:" + b"9" * 5_000,
     b"t:2147483648:0", b"t:0:9223372036854775808", b"t" * 250 + b":0:0"],
)  # fmt: skip
def test_a_garbled_origin_is_undecodable(raw: bytes) -> None:
    with pytest.raises(Undecodable, match="corrupt_record"):
        origin_from({ORIGIN: raw}, HERE)
