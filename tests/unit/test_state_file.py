"""The state file of a stack: one owner, and truth after a crash."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamer.errors import ConfigurationError
from streamer.stack.child_process import start_mark
from streamer.stack.state_file import READY, StateFile, read_state, supervisor_of
from streamer.stack.supervisor import restart_delay_s


def _write(file: StateFile) -> None:
    file.write(bootstrap="h:1", prefix="p.", models={}, state=READY, processes=[])


def test_one_folder_has_one_owner(tmp_path: Path) -> None:
    first = StateFile(tmp_path)
    first.acquire()

    with pytest.raises(ConfigurationError, match="already running"):
        StateFile(tmp_path).acquire()

    first.release()
    StateFile(tmp_path).acquire()


def test_the_owner_is_known_before_the_state_is_written(tmp_path: Path) -> None:
    file = StateFile(tmp_path)

    assert supervisor_of(tmp_path) == (0, "")
    file.acquire()
    assert supervisor_of(tmp_path)[0] > 0
    file.release()
    assert supervisor_of(tmp_path) == (0, "")


def test_what_a_crash_left_is_removed_and_its_processes_are_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "input()"]
    orphan = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    entry = {"name": "work", "pid": orphan.pid, "mark": start_mark(orphan.pid)}
    (tmp_path / "stack.json").write_text(json.dumps({"processes": [entry]}))

    left = StateFile(tmp_path).acquire()

    assert left == [orphan.pid]
    assert orphan.wait(10) == -9
    assert read_state(tmp_path) is None


def test_a_stranger_with_the_same_pid_is_left_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "input()"]
    stranger = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    entry = {"name": "work", "pid": stranger.pid, "mark": "1"}
    (tmp_path / "stack.json").write_text(json.dumps({"processes": [entry]}))

    left = StateFile(tmp_path).acquire()

    assert left == []
    assert stranger.poll() is None
    stranger.communicate(b"\n")


@pytest.mark.parametrize("content", ["", "{", "\x00"])
def test_a_broken_state_file_counts_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "stack.json").write_text(content)

    assert read_state(tmp_path) is None
    assert StateFile(tmp_path).acquire() == []


def test_a_write_replaces_the_file_as_a_whole(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    file.acquire()
    _write(file)
    _write(file)

    assert (read_state(tmp_path) or {})["bootstrap"] == "h:1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stack.json", "stack.lock"]


def test_the_wait_before_a_restart_doubles_up_to_ten_seconds() -> None:
    assert [restart_delay_s(n) for n in (1, 2, 3, 4)] == [0.2, 0.4, 0.8, 1.6]
    assert restart_delay_s(1_000) == 10.0
