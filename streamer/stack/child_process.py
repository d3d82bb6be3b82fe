"""Child processes that cannot outlive their parent, and what the system says about a pid."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

# Linux hands out 32768 and above to outgoing connections, macOS 49152 and above.
SERVER_PORTS = range(15_000, 32_000)
_TRAMPOLINE = Path(__file__).with_name("die_with_parent.py")


def spawn(
    command: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child whose output is appended to ``log``.

    The kernel kills it when the thread that called this dies (Linux), so call it from a thread
    that lives as long as the parent. It has its own process group: a terminal's Ctrl-C reaches
    the parent alone, which then stops its children in order.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_TRAMPOLINE), str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            process_group=0,
        )


def end(child: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """SIGTERM, wait, then SIGKILL to the group; True if it went by itself."""
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(timeout_s)
        clean = True
    except subprocess.TimeoutExpired:
        clean = False
    kill_group(child.pid)
    child.wait()
    return clean


def kill_group(pid: int) -> None:
    """SIGKILL to the process group a child leads; nothing happens if it is gone."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def start_mark(pid: int) -> str:
    """When a process started, in kernel ticks: with the pid it names one process for good.

    Returns:
        An empty string if there is no such process (or it is a zombie, or not Linux).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def is_alive(pid: int, mark: str = "") -> bool:
    """Whether the process exists and, if a start mark is given, is still the same one."""
    if sys.platform == "linux":
        now = start_mark(pid)
        return bool(now) and mark in ("", now)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nothing listens on just now, all different, below the ephemeral range.

    A port of the ephemeral range may become the source port of any outgoing connection, even of
    a client that calls this very port while its server restarts, and then stays taken.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(SERVER_PORTS, k=len(SERVER_PORTS)):
        if len(found) == count:
            break
        if is_free(port, host):
            found.append(port)
    return found


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on a port just now."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
        except OSError:
            return False
    return True


def wait_until(claim: Callable[[], bool], timeout_s: float, step_s: float = 0.02) -> bool:
    """Ask again and again until the claim holds; False when the time is over."""
    end_at = time.monotonic() + timeout_s
    while not claim():
        if time.monotonic() >= end_at:
            return False
        time.sleep(step_s)
    return True
