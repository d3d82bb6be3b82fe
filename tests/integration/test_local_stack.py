"""The stack keeps its processes running and takes them along; dummy processes, real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamer.errors import ConfigurationError
from streamer.stack.child_process import is_alive, wait_until
from streamer.stack.local import LocalStack
from streamer.stack.state_file import read_state
from tests.support import dummy_process
from tests.support.stacks import StackFactory

pytestmark = pytest.mark.integration

DUMMY = (sys.executable, str(Path(dummy_process.__file__)))
COMMANDS = dict.fromkeys(("route", "work", "aggregate"), DUMMY)
WAIT_S = 20.0


@pytest.fixture
def stack(stack_factory: StackFactory) -> LocalStack:
    return stack_factory(commands=COMMANDS, workers=2, partitions=1)


def _state(stack: LocalStack) -> dict[str, int]:
    state = read_state(stack.root)
    assert state is not None
    return {one["name"]: one["pid"] for one in state["processes"]}


def test_the_state_file_names_every_process(stack: LocalStack) -> None:
    state = json.loads((stack.root / "stack.json").read_text())

    assert state["bootstrap"] == stack.bootstrap
    assert state["prefix"] == stack.prefix
    assert state["models"] == {"fake": {"engine": "fake"}}
    assert [one["name"] for one in state["processes"]] == ["route", "work", "work-1", "aggregate"]
    for one in state["processes"]:
        assert is_alive(one["pid"])
        assert Path(one["log"]).is_file()
        assert one["health"].startswith("http://127.0.0.1:")


def test_each_worker_has_a_slot_and_all_have_the_prefix(stack: LocalStack) -> None:
    wait_until(lambda: all(stack.log(n).read_text() for n in ("work", "work-1")), WAIT_S)
    lines = [stack.log(name).read_text().strip() for name in ("work", "work-1")]
    assert lines == [f"slot 0 of {stack.prefix}", f"slot 1 of {stack.prefix}"]


def test_a_killed_process_comes_back_with_a_new_pid_in_the_state_file(stack: LocalStack) -> None:
    old = stack.kill("work")

    assert wait_until(lambda: stack.pids()["work"] not in (0, old), WAIT_S)
    stack.wait_ready(WAIT_S, ["work"])
    assert _state(stack)["work"] == stack.pids()["work"]


def test_a_held_process_stays_away_until_it_is_restarted(stack: LocalStack) -> None:
    old = stack.kill("route", hold=True)

    assert not wait_until(lambda: stack.pids()["route"] != 0, 1.0)
    stack.restart("route")
    stack.wait_ready(WAIT_S, ["route"])
    assert stack.pids()["route"] != old


def test_a_process_that_keeps_failing_is_started_less_and_less_often(stack: LocalStack) -> None:
    assert stack.cwd is not None
    (stack.cwd / "crash").touch()
    stack.kill("route")

    assert wait_until(lambda: _restarts(stack, "route") >= 3, WAIT_S)
    assert not wait_until(lambda: _restarts(stack, "route") >= 6, 1.0)
    (stack.cwd / "crash").unlink()
    stack.wait_ready(WAIT_S, ["route"])


def _restarts(stack: LocalStack, name: str) -> int:
    return next(one.restarts for one in stack.seen() if one.name == name)


def test_workers_join_and_leave(stack: LocalStack) -> None:
    name = stack.add_worker()
    stack.wait_ready(WAIT_S, [name])

    clean = stack.remove("work")

    assert name == "work-2"
    assert clean
    assert list(_state(stack)) == ["route", "work-1", "aggregate", "work-2"]
    assert "ended cleanly" in (stack.root / "logs" / "work.log").read_text()


def test_a_clean_stop_leaves_no_process_and_no_state_file(stack: LocalStack) -> None:
    pids = list(stack.pids().values())

    hard = stack.stop()

    assert hard == []
    assert not any(is_alive(pid) for pid in pids)
    assert not (stack.root / "stack.json").exists()


def test_a_process_that_ignores_the_request_to_end_is_killed(stack: LocalStack) -> None:
    assert stack.cwd is not None
    (stack.cwd / "stubborn").touch()
    stack.restart("route")
    stack.wait_ready(WAIT_S, ["route"])
    stack.stop_timeout_s = 0.5

    assert stack.stop() == ["route"]


def test_a_second_stack_in_the_same_folder_is_refused(stack: LocalStack) -> None:
    rival = LocalStack(root=stack.root, bootstrap=stack.bootstrap, commands=COMMANDS)

    with pytest.raises(ConfigurationError, match="already running"):
        rival.start()

    assert all(is_alive(pid) for pid in stack.pids().values())


_PARENT = """
import sys, time
from pathlib import Path
from streamer.stack.local import FAKE_MODELS, LocalStack
root, bootstrap, prefix, dummy = sys.argv[1:]
commands = dict.fromkeys(("route", "work", "aggregate"), (sys.executable, dummy))
LocalStack(root=Path(root), bootstrap=bootstrap, prefix=prefix, models=FAKE_MODELS,
           commands=commands, partitions=1, cwd=Path(root)).start()
print("ready", flush=True)
time.sleep(600)
"""


def test_a_killed_supervisor_takes_its_processes_along_and_the_next_start_is_clean(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", _PARENT, str(tmp_path), kafka, prefix, DUMMY[1]]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    state = read_state(tmp_path)
    assert state is not None
    pids = [one["pid"] for one in state["processes"]]
    assert all(is_alive(pid) for pid in pids)

    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()

    assert wait_until(lambda: not any(is_alive(pid) for pid in pids), 5.0)
    again = LocalStack(
        root=tmp_path, bootstrap=kafka, prefix=prefix, models={"fake": {"engine": "fake"}},
        commands=COMMANDS, partitions=1, cwd=tmp_path,
    )  # fmt: skip
    with again:
        assert all(is_alive(pid) for pid in again.pids().values())


def test_an_own_broker_is_restarted_on_the_same_address(stack_factory: StackFactory) -> None:
    stack = stack_factory(own_broker=True, commands=COMMANDS, partitions=1, roles=("route",))
    bootstrap, old = stack.bootstrap, stack.pids()["kafka"]

    stack.kill("kafka")

    assert wait_until(lambda: stack.pids()["kafka"] not in (0, old), WAIT_S)
    assert stack.bootstrap == bootstrap
