"""Keeps processes running: starts them, restarts them with back-off, ends them in reverse order.

One thread owns all children: it starts them (the kernel kills a child when the thread that
started it dies, so that thread must be the one that lives longest) and looks after them. Callers
hand it requests and wait for the answer.
"""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamer.errors import ConfigurationError
from streamer.stack.child_process import end, kill_group, start_mark

LOOK_EVERY_S = 0.05
FIRST_DELAY_S = 0.2
DELAY_MAX_S = 10.0
STEADY_AFTER_S = 20.0


def restart_delay_s(failures: int) -> float:
    """Wait before the next start after so many failures in a row: 0.2 s, doubled, at most 10 s."""
    return min(DELAY_MAX_S, FIRST_DELAY_S * 2.0 ** min(failures - 1, 16))


@dataclass(slots=True)
class Service:
    """One process to keep running.

    Attributes:
        name: unique in its stack.
        launch: starts it anew and returns the child; called on the supervisor's thread.
        log: where its output goes.
        health: base address of its health pages, empty if it has none; may change at a restart.
    """

    name: str
    launch: Callable[[], subprocess.Popen[bytes]]
    log: Path
    health: str = ""


@dataclass(slots=True)
class _Kept:
    service: Service
    child: subprocess.Popen[bytes]
    mark: str
    started_s: float
    failures: int = 0
    restarts: int = 0
    due_s: float = 0.0
    held: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """One service as it is now; ``pid`` is 0 while it does not run."""

    name: str
    pid: int
    mark: str
    log: Path
    health: str
    restarts: int


class Supervisor:
    """Owner of all children.

    Args:
        changed: called on the supervisor's thread whenever a pid changed.
        say: shown starts after a crash.
    """

    def __init__(self, changed: Callable[[], None], say: Callable[[str], None]) -> None:
        self._changed = changed
        self._say = say
        self._kept: dict[str, _Kept] = {}
        self._inbox: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start the owner thread; nothing is launched yet."""
        self._thread.start()

    def add(self, service: Service) -> None:
        """Launch a service and keep it running."""
        self._ask(lambda: self._add(service))

    def seen(self) -> list[Seen]:
        """All services in the order they were added."""
        if threading.current_thread() is self._thread:
            return self._seen()
        seen: list[Seen] = self._ask(self._seen)
        return seen

    def kill(self, name: str, *, hold: bool = False) -> int:
        """SIGKILL as a crash would; it is started again unless held. Returns the killed pid."""
        pid: int = self._ask(lambda: self._kill(name, hold))
        return pid

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal, e.g. SIGSTOP."""
        self._ask(lambda: self._one(name).child.send_signal(number))

    def restart(self, name: str, timeout_s: float) -> None:
        """End cleanly and start again at once; a held service just starts."""
        self._ask(lambda: self._restart(name, timeout_s))

    def remove(self, name: str, timeout_s: float) -> bool:
        """End cleanly for good; True if it went by itself."""
        clean: bool = self._ask(lambda: self._remove(name, timeout_s))
        return clean

    def stop(self, timeout_s: float, *, last: str = "") -> list[str]:
        """End everything: SIGTERM in reverse order, then wait; ``last`` ends after all others.

        Returns:
            Names of those that had to be killed.
        """
        if not self._thread.is_alive():
            return []
        hard: list[str] = self._ask(lambda: self._stop(timeout_s, last))
        self._thread.join()
        return hard

    def _ask(self, request: Callable[[], Any]) -> Any:
        if not self._thread.is_alive():
            raise ConfigurationError("the stack is not running")
        answer: Future[Any] = Future()
        self._inbox.put((request, answer))
        return answer.result()

    def _run(self) -> None:
        looked_s = 0.0
        while not self._over:
            try:
                request, answer = self._inbox.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                pass
            else:
                try:
                    answer.set_result(request())
                except Exception as error:
                    answer.set_exception(error)
            now_s = time.monotonic()
            if now_s - looked_s >= LOOK_EVERY_S and not self._over:
                looked_s = now_s
                try:
                    self._look(now_s)
                except OSError as error:  # no memory to fork, no disk for the state file: go on
                    self._say(f"supervisor: {error.strerror}; trying again")

    def _look(self, now_s: float) -> None:
        for kept in self._kept.values():
            code = kept.child.poll()
            if code is None or kept.held:
                continue
            if not kept.due_s:
                steady = now_s - kept.started_s > STEADY_AFTER_S
                kept.failures = 1 if steady else kept.failures + 1
                delay_s = restart_delay_s(kept.failures)
                kept.due_s = now_s + delay_s
                name, log = kept.service.name, kept.service.log
                self._say(f"{name} ended ({_how(code)}), starts again in {delay_s:g} s; see {log}")
                kill_group(kept.child.pid)
                self._changed()
            elif now_s >= kept.due_s:
                self._launch_again(kept)

    def _add(self, service: Service) -> None:
        child = service.launch()
        self._kept[service.name] = _Kept(
            service, child, start_mark(child.pid), started_s=time.monotonic()
        )
        self._changed()

    def _launch_again(self, kept: _Kept) -> None:
        kept.child = kept.service.launch()
        kept.mark = start_mark(kept.child.pid)
        kept.started_s, kept.due_s, kept.held = time.monotonic(), 0.0, False
        kept.restarts += 1
        self._changed()

    def _one(self, name: str) -> _Kept:
        if name not in self._kept:
            raise ConfigurationError(f"no process is called {name}: {', '.join(self._kept)}")
        return self._kept[name]

    def _kill(self, name: str, hold: bool) -> int:
        kept = self._one(name)
        kept.held = hold
        kill_group(kept.child.pid)
        kept.child.wait()
        if hold:
            self._changed()
        return kept.child.pid

    def _restart(self, name: str, timeout_s: float) -> None:
        kept = self._one(name)
        end(kept.child, timeout_s)
        self._launch_again(kept)

    def _remove(self, name: str, timeout_s: float) -> bool:
        clean = end(self._one(name).child, timeout_s)
        del self._kept[name]
        self._changed()
        return clean

    def _stop(self, timeout_s: float, last: str) -> list[str]:
        self._over = True
        backwards = list(reversed(self._kept.values()))
        first = [kept for kept in backwards if kept.service.name != last]
        for kept in first:
            if kept.child.poll() is None:
                kept.child.terminate()
        end_at = time.monotonic() + timeout_s
        hard = []
        for kept in first + [kept for kept in backwards if kept.service.name == last]:
            left_s = timeout_s if kept.service.name == last else end_at - time.monotonic()
            if not end(kept.child, max(0.0, left_s)):
                hard.append(kept.service.name)
        return hard

    def _seen(self) -> list[Seen]:
        return [
            Seen(
                name,
                kept.child.pid if kept.child.poll() is None else 0,
                kept.mark,
                kept.service.log,
                kept.service.health,
                kept.restarts,
            )
            for name, kept in self._kept.items()
        ]


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
