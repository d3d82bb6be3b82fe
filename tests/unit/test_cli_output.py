"""The output file of ``submit``: appended, resumed, never mixed up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from streamer.cli.file_output import OutputFile
from streamer.cli.job_options import duration_ms
from streamer.cli.progress import Rate, eta_text
from streamer.cli.submit import default_job_id
from streamer.client.errors import InputRefused


def line(index: int, job_id: str = "j") -> bytes:
    return json.dumps({"custom_id": f"c{index}", "job_id": job_id, "index": index}).encode()


def test_lines_are_appended_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "out.jsonl"
    with OutputFile(path, "j") as file:
        file.write([line(0), line(1)])
        file.write([line(2)])
        file.sync()

    assert path.read_bytes() == b"\n".join([line(0), line(1), line(2)]) + b"\n"
    with OutputFile(path, "j") as again:
        assert again.lines == 3


@pytest.mark.parametrize("cut", [1, 7, len(line(2)) - 1, len(line(2))])
def test_a_line_that_was_cut_off_is_removed(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "out.jsonl"
    whole = line(0) + b"\n" + line(1) + b"\n"
    path.write_bytes(whole + line(2)[:cut])
    with OutputFile(path, "j") as file:
        assert file.lines == 2
        file.write([line(2)])

    assert path.read_bytes() == whole + line(2) + b"\n"


def test_a_file_of_one_cut_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(line(0)[:9])
    with OutputFile(path, "j") as file:
        assert file.lines == 0

    assert path.read_bytes() == b""


@pytest.mark.parametrize("count", [1, 3, 5000])
def test_long_files_are_counted_over_chunk_ends(tmp_path: Path, count: int) -> None:
    path = tmp_path / "out.jsonl"
    filler = "x" * 500
    rows = [
        json.dumps({"custom_id": filler, "job_id": "j", "index": n}).encode() for n in range(count)
    ]
    path.write_bytes(b"".join(row + b"\n" for row in rows) + b'{"cust')
    with OutputFile(path, "j") as file:
        assert file.lines == count


@pytest.mark.parametrize(
    "content", [line(0, "other"), line(5), b"notes of mine", b'{"a": 1}', b"[1]"]
)
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(content + b"\n")

    with pytest.raises(InputRefused, match="name another --out"), OutputFile(path, "j"):
        pass
    assert path.read_bytes() == content + b"\n"


def test_two_runs_never_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with (
        OutputFile(path, "j"),
        pytest.raises(InputRefused, match="written by another run"),
        OutputFile(path, "j"),
    ):
        pass


def test_a_folder_is_no_output_file(tmp_path: Path) -> None:
    with pytest.raises(InputRefused), OutputFile(tmp_path, "j"):
        pass


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90_000), ("15m", 900_000), ("24h", 86_400_000), ("2d", 172_800_000), ("5", 5_000),
     ("250ms", 250), ("1.5h", 5_400_000)],
)  # fmt: skip
def test_durations_carry_their_unit(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-3s", "soon", "5 parsecs"])
def test_what_is_no_duration_is_a_usage_error(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        duration_ms(text)


def test_the_same_command_finds_its_job_again() -> None:
    same = default_job_id("d", "m", "bulk", {"truncate": True, "dimensions": 8})

    assert same == default_job_id("d", "m", "bulk", {"dimensions": 8, "truncate": True})
    others = [
        default_job_id("e", "m", "bulk", {"truncate": True, "dimensions": 8}),
        default_job_id("d", "n", "bulk", {"truncate": True, "dimensions": 8}),
        default_job_id("d", "m", "fast", {"truncate": True, "dimensions": 8}),
        default_job_id("d", "m", "bulk", {"truncate": True}),
    ]
    assert same not in others
    assert len(set(others)) == 4


def test_the_rate_looks_at_the_last_seconds_only() -> None:
    rate = Rate()
    for second in range(60):
        found = rate.note(float(second), second * (1 if second < 30 else 100))

    assert found == pytest.approx(100)
    assert eta_text(200, 100.0) == "0:02"
    assert eta_text(7_322, 1.0) == "2:02:02"
    assert eta_text(5, 0.0) == "-"
    assert eta_text(-1, 5.0) == "-"
