"""``streamer up`` and ``down`` as a newcomer types them, with the fake engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streamer.stack.child_process import is_alive, wait_until
from streamer.stack.state_file import read_state

pytestmark = pytest.mark.e2e

NAMES = ["kafka", "route", "work", "aggregate"]


def _streamer(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("STREAMER_")}
    env["STREAMER_KAFKA__PARTITIONS"] = "2"
    return subprocess.run(
        [sys.executable, "-m", "streamer", *words],
        cwd=folder, env=env, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip


def _state(folder: Path) -> Mapping[str, Any]:
    state = read_state(folder / "build" / "stack")
    assert state is not None
    return state


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    _streamer(tmp_path, "down")


def test_up_crash_up_again_and_down(folder: Path) -> None:
    up = _streamer(folder, "up", "--fake")
    assert up.returncode == 0, up.stdout + up.stderr
    first = _state(folder)
    assert [one["name"] for one in first["processes"]] == NAMES
    assert first["bootstrap"] in up.stdout

    # A second one is refused, and the stack is found by every command without a flag.
    assert _streamer(folder, "up", "--fake").returncode == 3
    checked = _streamer(folder, "topics", "check")
    assert checked.returncode == 0, checked.stderr
    assert "18 topics are as the settings say" in checked.stdout

    # A crash of the supervisor takes everything along.
    os.kill(first["supervisor"]["pid"], signal.SIGKILL)
    pids = [one["pid"] for one in first["processes"]]
    assert wait_until(lambda: not any(is_alive(pid) for pid in pids), 10.0)

    # The next start finds the topics of the first.
    again = _streamer(folder, "up", "--fake")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "topics: as they should be" in again.stdout
    second = _state(folder)
    assert not {one["pid"] for one in second["processes"]} & set(pids)

    down = _streamer(folder, "down")
    assert down.stdout.strip() == "stopped"
    assert not any(is_alive(one["pid"]) for one in second["processes"])
    assert not (folder / "build" / "stack" / "stack.json").exists()
    assert _streamer(folder, "down").stdout.strip() == "nothing is running"


def test_a_start_that_cannot_work_says_why_and_leaves_nothing(folder: Path) -> None:
    up = _streamer(folder, "up", "--fake", "--bootstrap", "127.0.0.1:1", "--timeout", "20")

    assert up.returncode == 4, up.stdout + up.stderr
    assert "127.0.0.1:1" in up.stdout + up.stderr
    assert not (folder / "build" / "stack" / "stack.json").exists()
