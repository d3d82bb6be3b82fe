"""``make bench``: end to end through Kafka, exactly once, against the same engine without Kafka.

Every round runs each contender once, alone on the machine, in turn; a round's figures are compared
only with each other. The clock of the stack runs from the first send to the last ordered row read;
that of the offline contenders from texts in memory to vectors in memory, model loading excluded.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from streamer.client import Client
from streamer.demo.corpus import paragraphs
from streamer.settings import load_settings
from streamer.stack.local import LocalStack

FOLDER = Path("build/bench")
TICKS = os.sysconf("SC_CLK_TCK")
OFFLINE = ("offline", "sentence-transformers", "sentence-transformers-bf16")


def main() -> int:
    """Run the rounds and write ``build/bench/report.json``."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--items", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    texts = _texts(options.items)
    (FOLDER / "texts.json").write_text(json.dumps(texts))
    rounds = []
    for number in range(options.rounds):
        found = {"streamer": _through_kafka(texts)}
        found |= {name: _offline(name) for name in OFFLINE}
        rounds.append(found)
        print(f"round {number + 1}: " + ", ".join(
            f"{name} {len(texts) / one['seconds']:.0f} items/s" for name, one in found.items()
        ), flush=True)  # fmt: skip
    report = _report(texts, rounds)
    (FOLDER / "report.json").write_text(json.dumps(report, indent=2))
    _show(report)
    return 0 if report["quality"]["cosine_min_to_sentence_transformers"] >= 0.999 else 1


def _texts(count: int) -> list[str]:
    """Distinct texts: the paragraphs over and over, each time with a number in front."""
    base = paragraphs()
    return [
        base[n % len(base)] if n < len(base) else f"{n // len(base)}: {base[n % len(base)]}"
        for n in range(count)
    ]


def _offline(name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.contenders", name, str(FOLDER / "texts.json")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _through_kafka(texts: list[str]) -> dict[str, Any]:
    stack = LocalStack(root=FOLDER / "stack", fresh=True, prefix="bench.")
    with stack:
        settings = load_settings(
            kafka={"bootstrap": stack.bootstrap, "prefix": stack.prefix}, models=stack.models
        )
        with Client(settings) as client:
            warm = client.submit(texts[:256], model="minilm", params={"truncate": True})
            warm.wait(120)
            cpu = _cpu_s(stack)
            own = time.process_time()
            began = time.perf_counter()
            job = client.submit(texts, model="minilm", params={"truncate": True}, background=True)
            rows = [row.output for row in job.results(timeout_s=300)]
            seconds = time.perf_counter() - began
            used = {name: value - cpu.get(name, 0.0) for name, value in _cpu_s(stack).items()}
            used["client"] = time.process_time() - own
    np.save(FOLDER / "streamer.npy", np.stack([row for row in rows if row is not None]))
    return {"seconds": seconds, "cpu_s": sum(used.values()), "cpu_by_process": used}


def _cpu_s(stack: LocalStack) -> dict[str, float]:
    """CPU seconds of every process of the stack, the broker included."""
    return {name: _of_pid(pid) for name, pid in stack.pids().items() if pid}


def _of_pid(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _report(texts: list[str], rounds: list[dict[str, Any]]) -> dict[str, Any]:
    def median(pick: Callable[[dict[str, Any]], float]) -> float:
        return round(statistics.median(pick(one) for one in rounds), 4)

    def against(name: str) -> dict[str, float]:
        ratios = [one[name]["seconds"] / one["streamer"]["seconds"] for one in rounds]
        return {
            "median": round(statistics.median(ratios), 3),
            "min": round(min(ratios), 3),
            "max": round(max(ratios), 3),
        }

    count = len(texts)
    names = ("streamer", *OFFLINE)
    return {
        "items": count,
        "rounds": len(rounds),
        "items_per_s": {n: median(lambda one, n=n: count / one[n]["seconds"]) for n in names},
        "cpu_per_wall": {
            n: median(lambda one, n=n: one[n]["cpu_s"] / one[n]["seconds"]) for n in names
        },
        "streamer_speed_over": {name: against(name) for name in OFFLINE},
        "cpu_ms_an_item": {
            name: median(lambda one, n=name: 1e3 * one["streamer"]["cpu_by_process"][n] / count)
            for name in rounds[0]["streamer"]["cpu_by_process"]
        },
        "quality": _quality(),
        "machine": {"cores": os.cpu_count(), "python": sys.version.split()[0]},
    }


def _quality() -> dict[str, float]:
    exact = np.load(FOLDER / "sentence-transformers.npy")
    ours = np.load(FOLDER / "streamer.npy")
    cosine = (exact * ours).sum(axis=1) / np.linalg.norm(ours, axis=1)
    return {
        "cosine_min_to_sentence_transformers": round(float(cosine.min()), 6),
        "cosine_mean_to_sentence_transformers": round(float(cosine.mean()), 6),
    }


def _show(report: dict[str, Any]) -> None:
    for name, rate in report["items_per_s"].items():
        print(f"{name:<28} {rate:8.1f} items/s   CPU/wall {report['cpu_per_wall'][name]:.2f}")
    for name, ratio in report["streamer_speed_over"].items():
        print(f"streamer / {name:<28} {ratio['median']:.2f}  ({ratio['min']}-{ratio['max']})")
    print("CPU ms an item:", ", ".join(f"{k} {v}" for k, v in report["cpu_ms_an_item"].items()))
    print(f"report: {FOLDER / 'report.json'}")


if __name__ == "__main__":
    sys.exit(main())
