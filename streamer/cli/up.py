"""``streamer up`` and ``streamer down``: the whole stack on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from streamer.errors import ConfigurationError
from streamer.event.file_models import resolve_model
from streamer.settings import STACK_FILE, Settings, client_properties, load_settings
from streamer.stack.child_process import is_alive, wait_until
from streamer.stack.kafka_home import prepare_home
from streamer.stack.local import BUNDLED_MODELS, FAKE_MODELS, LocalStack
from streamer.stack.state_file import READY, StateFile, read_state, supervisor_of
from streamer.stack.topic_plan import topic_layout

ROOT = STACK_FILE.parent
DOWN_TIMEOUT_S = 60.0
_FILE_FIELDS = ("path", "engine", "task", "revision", "max_length", "pooling")

Root = Annotated[Path, typer.Option("--root", help="Folder of state, logs and Kafka's data.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """What the flags of ``up`` ask for."""

    root: Path
    workers: int
    fake: bool
    fresh: bool
    bootstrap: str
    timeout_s: float

    def flags(self) -> list[str]:
        given = ["--root", str(self.root), "--workers", str(self.workers)]
        given += ["--timeout", str(self.timeout_s)]
        given += ["--fake"] if self.fake else []
        given += ["--fresh"] if self.fresh else []
        return given + (["--bootstrap", self.bootstrap] if self.bootstrap else [])


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("up")(up)
    app.command("down")(down)


def up(
    workers: Annotated[int, typer.Option(min=1, help="Number of work processes.")] = 1,
    fake: Annotated[
        bool, typer.Option("--fake", help="Serve model 'fake', which needs no weights.")
    ] = False,
    foreground: Annotated[
        bool, typer.Option("--foreground/--detach", help="Stay here until Ctrl-C.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget the topics of an earlier run.")
    ] = False,
    bootstrap: Annotated[
        str, typer.Option(help="Use this cluster instead of starting Kafka.")
    ] = "",
    root: Root = ROOT,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds until ready.")] = 180.0,
) -> None:
    """Start Kafka, topics, route, work and aggregate; keep them running."""
    wish = _Wish(
        root=root.resolve(), workers=workers, fake=fake, fresh=fresh, bootstrap=bootstrap,
        timeout_s=timeout_s,
    )  # fmt: skip
    if foreground:
        _stay(wish)
    else:
        _detach(wish)


def down(root: Root = ROOT) -> None:
    """Stop the stack: its processes in reverse order, Kafka last."""
    root = root.resolve()
    pid, mark = supervisor_of(root)
    if not pid:
        StateFile(root).clean()
        print("nothing is running")
        return
    os.kill(pid, signal.SIGTERM)
    if wait_until(lambda: not is_alive(pid, mark), DOWN_TIMEOUT_S):
        print("stopped")
        return
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid, mark), 5.0)
    StateFile(root).clean()
    print(f"killed: it did not stop in {DOWN_TIMEOUT_S:.0f} s; see {root / 'supervisor.log'}")


def _stay(wish: _Wish) -> None:
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    stack = _stack(wish, _print)
    stack.start(wish.timeout_s, give_up=asked.is_set)
    _print("ready")
    while not asked.wait(1.0):
        stack.seen()  # raises when the supervising thread is gone
    _print("stopping")
    hard = stack.stop()
    _print(f"stopped{'; killed: ' + ', '.join(hard) if hard else ''}")


def _detach(wish: _Wish) -> None:
    pid, _ = supervisor_of(wish.root)
    if pid:
        _show(wish.root)
        raise ConfigurationError(
            f"a stack is already running here (supervisor {pid}): `streamer down` stops it"
        )
    StateFile(wish.root).clean()  # settings must not come from a stack that is gone
    check_models(_models(load_settings(), fake=wish.fake))
    if not wish.bootstrap:
        prepare_home(_print)  # downloads with visible progress, and says here what is missing
    log = wish.root / "supervisor.log"
    with log.open("wb") as sink:
        child = subprocess.Popen(
            [sys.executable, "-m", "streamer", "up", "--foreground", *wish.flags()],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        _follow(child, log, wish)
    except KeyboardInterrupt:
        child.terminate()
        raise
    _show(wish.root)


def _follow(child: subprocess.Popen[bytes], log: Path, wish: _Wish) -> None:
    """Print what the supervisor prints until the stack is ready."""
    end_at = time.monotonic() + wish.timeout_s + DOWN_TIMEOUT_S
    with log.open() as lines:
        while True:
            code = child.poll()
            for line in lines:
                print(line.rstrip("\n"), flush=True)
            if code is not None:
                raise typer.Exit(code if code > 0 else 1)
            if _is_up(wish.root, child.pid):
                return
            if time.monotonic() >= end_at:
                child.terminate()
                raise ConfigurationError(f"the stack did not become ready; see {log}")
            time.sleep(0.05)


def _is_up(root: Path, pid: int) -> bool:
    state = read_state(root) or {}
    return bool(state.get("state") == READY and state["supervisor"]["pid"] == pid)


def _stack(wish: _Wish, say: Callable[[str], None]) -> LocalStack:
    StateFile(wish.root).clean()  # settings must not come from a stack that is gone
    settings = load_settings()
    models = _models(settings, fake=wish.fake)
    kafka = settings.kafka
    wanted = settings.model_copy(update={"models": models})
    return LocalStack(
        root=wish.root,
        models=models,
        workers=wish.workers,
        bootstrap=wish.bootstrap,
        properties=client_properties(kafka) if wish.bootstrap else {},
        prefix=kafka.prefix,
        group_prefix=kafka.group_prefix,
        partitions=kafka.partitions,
        layout=topic_layout(wanted),
        fresh=wish.fresh,
        say=say,
    )


def _models(settings: Settings, *, fake: bool) -> Mapping[str, Mapping[str, Any]]:
    """The configured models; else the bundled one, or the fake one if asked."""
    if fake:
        return FAKE_MODELS
    if not settings.models:
        return BUNDLED_MODELS
    return {
        slug: model.model_dump(mode="json", exclude_defaults=True)
        for slug, model in settings.models.items()
    }


def check_models(models: Mapping[str, Mapping[str, Any]]) -> None:
    """Tell a wrong model here, before processes end with it again and again.

    Raises:
        ConfigurationError: its files are missing or cannot be read.
    """
    for slug, values in models.items():
        known = {"path": "", **{key: values[key] for key in _FILE_FIELDS if key in values}}
        resolve_model(slug, **known)


def _print(line: str) -> None:
    print(line, flush=True)


def _show(root: Path) -> None:
    """Where things are."""
    state = read_state(root) or {}
    here = Path.cwd()

    def near(path: str | Path) -> Path:
        return Path(path).relative_to(here) if Path(path).is_relative_to(here) else Path(path)

    print(f"bootstrap  {state.get('bootstrap')}   prefix  {state.get('prefix')}")
    print(f"models     {', '.join(state.get('models', {}))}")
    for one in state.get("processes", []):
        print(
            f"{one['name']:<10} pid {one['pid']:<8} {one['health'] or '-':<24} {near(one['log'])}"
        )
    print(f"state      {near(root / 'stack.json')}   (streamer down stops it)")
