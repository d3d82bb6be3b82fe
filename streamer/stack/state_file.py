"""``stack.json``: where a stack is and which processes it has; true after a crash too.

A lock file tells whether its supervisor lives: the kernel frees it with the process, whatever
happened. A pid alone could belong to a stranger by now, so each stands with its start mark.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from streamer.errors import ConfigurationError
from streamer.stack.child_process import is_alive, kill_group, start_mark
from streamer.stack.supervisor import Seen

STATE_NAME = "stack.json"
LOCK_NAME = "stack.lock"
STARTING = "starting"
READY = "ready"
STOPPING = "stopping"


def read_state(root: Path) -> Mapping[str, Any] | None:
    """The content of a stack's state file; None if there is none or it is broken."""
    try:
        state: Mapping[str, Any] = json.loads((root / STATE_NAME).read_bytes())
    except (OSError, ValueError):
        return None
    return state


def supervisor_of(root: Path) -> tuple[int, str]:
    """Pid and start mark of the live supervisor of a folder, even while it still starts.

    Returns:
        (0, "") if there is none.
    """
    try:
        words = (root / LOCK_NAME).read_text().split()
        pid, mark = int(words[0]), words[1]
    except (OSError, ValueError, IndexError):
        return 0, ""
    return (pid, mark) if is_alive(pid, mark) else (0, "")


@dataclass(slots=True)
class StateFile:
    """Written by the supervisor that holds the lock of ``root``."""

    root: Path
    _lock: TextIO | None = None

    def acquire(self) -> list[int]:
        """Become the one supervisor of this folder; ends what a dead one left behind.

        Returns:
            Pids of left-over processes that were killed.

        Raises:
            ConfigurationError: a live supervisor holds it.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        lock = (self.root / LOCK_NAME).open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            pid, _ = supervisor_of(self.root)
            who = f" (supervisor {pid})" if pid else ""
            raise ConfigurationError(
                f"a stack is already running in {self.root}{who}: use it, or streamer down"
            ) from None
        self._lock = lock
        lock.truncate(0)
        lock.write(f"{os.getpid()} {start_mark(os.getpid()) or '-'}\n")
        lock.flush()
        left = _left_over(read_state(self.root) or {})
        for pid in left:
            kill_group(pid)
        (self.root / STATE_NAME).unlink(missing_ok=True)
        return left

    def write(
        self,
        *,
        bootstrap: str,
        prefix: str,
        models: Mapping[str, Mapping[str, Any]],
        state: str,
        processes: Sequence[Seen],
    ) -> None:
        """Replace the file at once; a reader sees the old or the new one."""
        pid = os.getpid()
        content = {
            "bootstrap": bootstrap,
            "prefix": prefix,
            "models": {slug: dict(model) for slug, model in models.items()},
            "state": state,
            "supervisor": {"pid": pid, "mark": start_mark(pid)},
            "processes": [
                {
                    "name": one.name,
                    "pid": one.pid,
                    "log": str(one.log),
                    "health": one.health,
                    "restarts": one.restarts,
                    "mark": one.mark,
                }
                for one in processes
            ],
        }
        path = self.root / STATE_NAME
        private = path.with_suffix(f".{pid}")
        private.write_text(json.dumps(content, indent=1) + "\n")
        private.replace(path)

    def clean(self) -> None:
        """Remove what a dead supervisor left behind."""
        self.acquire()
        self.release()

    def release(self) -> None:
        """After a clean stop: no file, so that commands do not look for a stack that is gone."""
        (self.root / STATE_NAME).unlink(missing_ok=True)
        if self._lock:
            self._lock.truncate(0)
            self._lock.close()
            self._lock = None


def _left_over(state: Mapping[str, Any]) -> list[int]:
    """Processes of a dead supervisor that still run, e.g. where the kernel cannot take them."""
    found = []
    for one in state.get("processes", []):
        pid, mark = int(one.get("pid", 0)), str(one.get("mark", ""))
        if pid and mark and is_alive(pid, mark):
            found.append(pid)
    return found
