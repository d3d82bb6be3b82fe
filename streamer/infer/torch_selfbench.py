"""One to two seconds of measuring at start: dtype, batch size, cost; remembered on disk.

Flags of a CPU prove nothing about its speed, so the dtype is chosen by running it: the fastest one
whose rows agree with fp32 (cosine >= 0.999). The batch size is the smallest that reaches 95 % of
the best tokens per second, with all instances at work, as in service. On a CPU the processor time
of the computing thread is what counts: a machine that is busy at start leaves no wrong profile.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamer.batch.cost import fit
from streamer.infer.engine import BatchColumns, EngineSpec

_VERSION = 4
_COSINE_MIN = 0.999
_GRID_CPU = (256, 512, 1_024, 2_048, 4_096)
_GRID_CUDA = (1_024, 4_096, 16_384, 65_536)
_LENGTH = 64
# One batch of long texts tells what attention adds.
_LONG, _LONG_TOKENS = 224, 1_024
_SPEED_SHARE = 0.95

Runner = Callable[[BatchColumns], NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What was measured; ``cosine`` is the lowest agreement of the dtype with fp32."""

    dtype: str
    best_tokens: int
    tokens_max: int
    fixed_ms: float
    token_us: float
    square_ns: float
    tokens_per_s: float
    cosine: float
    took_s: float


def measured_profile(
    spec: EngineSpec, *, wanted: str, cache: Path | None, runner: Callable[[str], Runner]
) -> Profile:
    """The profile of a model on this machine, from the cache or measured now.

    Args:
        spec: the loaded model; names the cache entry together with the machine.
        wanted: ``auto`` or a dtype, which is then not questioned.
        cache: folder of earlier profiles; None = none.
        runner: makes a forward pass for a dtype.
    """
    file = cache / f"{_machine_key(spec, wanted)}.json" if cache is not None else None
    if file is not None and (known := _read(file)) is not None:
        return known
    begun = time.perf_counter()
    dtype, cosine = _choose_dtype(spec, wanted, runner)
    profile = _measure_grid(spec, dtype, cosine, runner(dtype), begun)
    if file is not None:
        _write(file, profile)
    return profile


def synthetic_batch(spec: EngineSpec, *, tokens: int, length: int) -> BatchColumns:
    """A batch of made-up texts of one length; the ids are drawn with a fixed seed."""
    length = min(length, spec.max_length)
    count = max(1, tokens // length)
    low = min(1_000, spec.vocabulary // 2)
    ids = np.random.default_rng(count).integers(low, spec.vocabulary, count * length)
    pair_at = np.full(count, length // 2, np.int32) if spec.task == "score" else None
    return BatchColumns(
        task=spec.task, params_key="", params="{}",
        lengths=np.full(count, length, np.int32), token_ids=ids.astype(np.uint32),
        pair_at=pair_at, texts_per_item=np.ones(count, np.int32),
    )  # fmt: skip


def _choose_dtype(
    spec: EngineSpec, wanted: str, runner: Callable[[str], Runner]
) -> tuple[str, float]:
    if wanted != "auto":
        return wanted, 1.0
    batch = synthetic_batch(spec, tokens=512, length=_LENGTH)
    exact_run = runner("fp32")
    exact = exact_run(batch)
    clock = _clock(spec)
    best, best_ms, cosine = "fp32", _best_ms(exact_run, batch, 2, clock), 1.0
    for dtype in ("bf16",) if spec.device == "cpu" else ("bf16", "fp16"):
        run = runner(dtype)
        agreement = _agreement(run(batch), exact)
        if agreement < _COSINE_MIN:
            continue
        took_ms = _best_ms(run, batch, 3, clock)
        if took_ms < best_ms:
            best, best_ms, cosine = dtype, took_ms, agreement
    return best, cosine


def _agreement(rows: NDArray[np.float32], exact: NDArray[np.float32]) -> float:
    """Lowest cosine; for scores 1 − the largest difference."""
    if rows.ndim == 1 or rows.shape[1] < 16:
        return 1.0 - float(np.abs(rows - exact).max())
    products = (rows * exact).sum(1)
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(exact, axis=1)
    return float((products / norms).min())


def _clock(spec: EngineSpec) -> Callable[[], int]:
    return time.thread_time_ns if spec.device == "cpu" else time.perf_counter_ns


def _best_ms(run: Runner, batch: BatchColumns, times: int, clock: Callable[[], int]) -> float:
    best = float("inf")
    for _ in range(times):
        begun = clock()
        run(batch)
        best = min(best, (clock() - begun) / 1e6)
    return best


def _measure_grid(
    spec: EngineSpec, dtype: str, cosine: float, run: Runner, begun: float
) -> Profile:
    grid = _GRID_CPU if spec.device == "cpu" else _GRID_CUDA
    sizes, squares, took = [], [], []
    speed: dict[int, float] = {}
    for tokens, length in [(size, _LENGTH) for size in grid] + [(_LONG_TOKENS, _LONG)]:
        batch = synthetic_batch(spec, tokens=tokens, length=length)
        padded = batch.texts * int(batch.lengths[0])
        took_ms = _together_ms(run, batch, spec.instances, _clock(spec))
        sizes.append(padded)
        squares.append(padded * int(batch.lengths[0]))
        took.append(took_ms)
        if length == _LENGTH:
            speed[tokens] = padded / took_ms
    fixed, token, square = fit(
        np.array(sizes, np.float64), np.array(squares, np.float64), np.array(took)
    )
    best = max(speed.values())
    return Profile(
        dtype=dtype,
        best_tokens=min(size for size, rate in speed.items() if rate >= _SPEED_SHARE * best),
        tokens_max=max(grid),
        fixed_ms=fixed,
        token_us=token,
        square_ns=square,
        tokens_per_s=best * 1e3 * spec.instances,
        cosine=cosine,
        took_s=time.perf_counter() - begun,
    )


def _together_ms(
    run: Runner, batch: BatchColumns, instances: int, clock: Callable[[], int]
) -> float:
    """Milliseconds of a batch while every instance runs one: the best of two rounds."""
    best = float("inf")
    for _ in range(2):
        took: list[float] = []
        threads = [
            threading.Thread(target=lambda: took.append(_best_ms(run, batch, 1, clock)))  # noqa: B023
            for _ in range(instances)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = min(best, sum(took) / len(took))
    return best


def _machine_key(spec: EngineSpec, wanted: str) -> str:
    import torch

    device = spec.device
    if device.startswith("cuda"):
        device = f"{device} {torch.cuda.get_device_name(device)}"
    parts = (
        _VERSION, spec.revision, spec.task, spec.instances, wanted, device, _cpu_name(),
        torch.__version__,
    )  # fmt: skip
    return blake2b(repr(parts).encode(), digest_size=12).hexdigest()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "")


def _read(file: Path) -> Profile | None:
    try:
        return Profile(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _write(file: Path, profile: Profile) -> None:
    """Whole or not at all: two processes may start together."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(asdict(profile), indent=1))
    draft.replace(file)
