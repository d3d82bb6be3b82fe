"""Imports go one way, pure files stay pure, light processes stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "streamer"

# Each may import only itself and what stands before it.
ORDER = (
    "errors", "clock", "deadline", "event", "kafka_errors", "kafka_log", "route", "batch", "infer",
    "emit", "reassemble", "telemetry", "settings", "stack", "client", "audit", "process",
    "demo", "cli",
    "__main__",
)  # fmt: skip
SHELL_PREFIXES = (
    "kafka_", "torch_", "hf_", "redis_", "object_", "file_", "http_", "prometheus_", "otel_",
    "json_", "thread_",
)  # fmt: skip
SHELL_PLACES = {"process", "cli", "stack", "client", "demo", "__main__", "settings", "clock"}
IMPURE = {
    "time", "random", "threading", "asyncio", "os", "logging", "socket", "subprocess", "queue",
    "confluent_kafka", "torch", "transformers", "redis", "requests", "faust", "prometheus_client",
}  # fmt: skip
BANNED = {"pickle", "dill", "joblib", "marshal", "shelve"}


def _files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _stage(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def _imports(path: Path) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.lineno, node.module))
    return found


def _is_pure(path: Path) -> bool:
    return _stage(path) not in SHELL_PLACES and not path.name.startswith(SHELL_PREFIXES)


@pytest.mark.parametrize("path", _files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_imports_only_earlier_stages(path: Path) -> None:
    stage = _stage(path)
    if stage == "__init__":
        return
    allowed = ORDER.index(stage)

    wrong = [
        f"line {line}: {name}"
        for line, name in _imports(path)
        if name.startswith("streamer.") and ORDER.index(name.split(".")[1]) > allowed
    ]

    assert not wrong, f"{path.relative_to(ROOT)} imports later stages: {wrong}"


@pytest.mark.parametrize(
    "path", [p for p in _files() if _is_pure(p)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_a_pure_file_knows_no_clock_thread_or_client(path: Path) -> None:
    wrong = [
        f"line {line}: {name}" for line, name in _imports(path) if name.split(".")[0] in IMPURE
    ]

    assert not wrong, f"{path.relative_to(ROOT)} is pure by its name but imports {wrong}"


def test_nothing_unpickles() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in ("streamer", "loadgen", "tests")
        for path in (ROOT / folder).rglob("*.py")
        for line, name in _imports(path)
        if name.split(".")[0] in BANNED
    ]

    assert not wrong


@pytest.mark.parametrize(
    "module",
    ["streamer.process.router", "streamer.process.aggregator", "streamer.client",
     "streamer.infer.fake_engine", "streamer.process.worker"],
)  # fmt: skip
def test_light_processes_never_load_torch_or_transformers(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        "print(sorted(set(sys.modules) & {'torch', 'transformers', 'sentence_transformers'}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )

    assert done.stdout.strip() == "[]", done.stdout + done.stderr
