"""What every process does around its lanes: slot, logs, health, signals, drain, exit code.

First SIGTERM or SIGINT: stop consuming, finish, emit, leave. Second: leave at once; what was not
emitted is delivered again. A loop that fails ends the process: whoever supervises it starts it
again, and Kafka redelivers.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Final

from streamer.clock import Clock, SystemClock
from streamer.deadline import Deadline
from streamer.errors import BrokerUnreachable, ConfigurationError
from streamer.process.lane_loop import LaneLoop
from streamer.process.slots import take_slot
from streamer.settings import Settings
from streamer.telemetry.http_health import HealthServer
from streamer.telemetry.json_logs import start_logs, told
from streamer.telemetry.prometheus_metrics import Metrics

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_CONFIGURATION: Final = 3
EXIT_UNREACHABLE: Final = 4
EXIT_INTERRUPTED: Final = 130
HEALTH_FILE: Final = "STREAMER_HEALTH_FILE"  # where to write the URL of /live, /ready, /metrics
_WATCH_S: Final = 0.1
# A thread that wants the interpreter gets it after this long: the poll loops of the lanes must not
# wait for tokenizing or encoding in another thread (the default is 5 ms).
_SWITCH_S: Final = 0.001
_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class ProcessContext:
    """What a role's builder gets.

    Attributes:
        settings: the whole tree (process/ cuts the slices).
        role: ``route``, ``work`` or ``aggregate``.
        slot: number of this process in its role; part of the transactional ids.
        clock: the one source of time.
        metrics: where facts are counted.
        ready_checks: name -> whether it is ready; a builder adds what must hold besides the
            loops for ``/ready``.
        closers: a builder adds what to close after the loops, called in reverse order.
    """

    settings: Settings
    role: str
    slot: int
    clock: Clock
    metrics: Metrics
    ready_checks: dict[str, Callable[[], bool]] = field(default_factory=dict)
    closers: list[Callable[[], None]] = field(default_factory=list)


def run_process(
    settings: Settings, *, role: str, build: Callable[[ProcessContext], Sequence[LaneLoop]]
) -> int:
    """Run a role until a signal or a failure; returns the exit code.

    ``build`` makes the lanes' loops (not started); slow parts (models) load inside it, while
    ``/live`` already answers and ``/ready`` says no.
    """
    sys.setswitchinterval(_SWITCH_S)
    name = f"{settings.kafka.group_prefix}{role}"
    slot = take_slot(setting=settings.slot, name=name, folder=settings.state_dir / "slots")
    start_logs(settings.log_level, role=role, slot=slot.number)
    context = ProcessContext(
        settings=settings,
        role=role,
        slot=slot.number,
        clock=SystemClock(),
        metrics=Metrics(role=role, slot=slot.number, version=metadata.version("streamer")),
    )
    running = _Running(context)
    health = HealthServer(
        host=settings.http.host,
        port=settings.http.port,
        ready=running.missing,
        metrics=context.metrics.exposition,
    )
    try:
        with _signals(running):
            _tell_health(health.start())
            code = running.run(build)
    finally:
        health.stop()
        slot.release()
    if running.has_stuck_threads():
        # A thread inside the client library cannot be ended; leaving in the ordinary way would
        # wait for it. Everything committed is committed, the rest is delivered again.
        _log.error("threads are stuck, leaving without them")
        logging.shutdown()
        os._exit(code or EXIT_FAILED)
    return code


class _Running:
    """The loops of a process from build to exit."""

    def __init__(self, context: ProcessContext) -> None:
        self._context = context
        self._loops: list[LaneLoop] = []
        self._built = False
        self._signals = 0
        self._wake = threading.Event()

    def missing(self) -> list[str]:
        """What is not ready, by name."""
        if not self._built:
            return ["starting"]
        checks = self._context.ready_checks.items()
        return [loop.name for loop in self._loops if not loop.ready()] + [
            name for name, holds in checks if not holds()
        ]

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Count it and wake the main thread."""
        del number, frame
        self._signals += 1
        self._wake.set()

    def has_stuck_threads(self) -> bool:
        """Whether some loop's thread did not end."""
        return any(loop.alive() for loop in self._loops)

    def run(self, build: Callable[[ProcessContext], Sequence[LaneLoop]]) -> int:
        """Build, run, drain, close; the exit code."""
        try:
            self._loops = list(build(self._context))
            for loop in self._loops:
                loop.start()
            self._built = True
            _log.info("started", extra={"loops": [loop.name for loop in self._loops]})
            while not self._signals and self._failure() is None:
                self._wake.wait(_WATCH_S)
            drained = self._drain()
        finally:
            self._built = False
            for close in reversed(self._context.closers):
                close()
        failure = self._failure()
        if failure is not None:
            _log.error("process failed", extra={"error": told(failure)})
            return _exit_code(failure)
        _log.info("stopped", extra={"drained": drained})
        if self._signals >= 2:
            return EXIT_INTERRUPTED
        return EXIT_OK if drained else EXIT_FAILED  # what was left is delivered again

    def _failure(self) -> BaseException | None:
        return next((loop.failure for loop in self._loops if loop.failure is not None), None)

    def _drain(self) -> bool:
        """All loops at once under one deadline; a second signal ends it."""
        clock = self._context.clock
        deadline = Deadline.after(clock.monotonic_ns(), self._context.settings.drain_ms)
        for loop in self._loops:
            loop.hurry(deadline)
        while any(loop.alive() for loop in self._loops) and self._signals < 2:
            if deadline.passed(clock.monotonic_ns()):
                break
            self._wake.clear()
            self._wake.wait(_WATCH_S)
        if self._signals >= 2:
            deadline = Deadline(clock.monotonic_ns())
        return all([loop.stop(deadline) for loop in self._loops])


@contextmanager
def _signals(running: _Running) -> Iterator[None]:
    before = {
        number: signal.signal(number, running.on_signal)
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell_health(url: str) -> None:
    _log.info("health", extra={"url": url})
    target = os.environ.get(HEALTH_FILE)
    if target:
        path = Path(target)
        new = path.with_name(path.name + ".new")
        new.write_text(url)
        new.replace(path)


def _exit_code(failure: BaseException) -> int:
    if isinstance(failure, ConfigurationError):
        return EXIT_CONFIGURATION
    if isinstance(failure, BrokerUnreachable):
        return EXIT_UNREACHABLE
    return EXIT_FAILED
