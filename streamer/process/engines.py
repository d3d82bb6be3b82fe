"""The engine of a model, from the settings: the only place that knows which kinds there are."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from streamer.batch.limits import BatchLimits
from streamer.event.file_models import ModelFiles, resolve_model
from streamer.infer.engine import Engine, EngineSpec
from streamer.infer.fake_engine import FAULTS, FakeCost, FakeFaults, FakeModel, fake_spec
from streamer.infer.thread_blocking import BlockingEngine
from streamer.route.fake_tokenizer import FakeTokenizer, fake_ids
from streamer.route.tokenizer import Tokenizer
from streamer.settings import ModelSettings, WorkSettings


def model_files(slug: str, model: ModelSettings) -> ModelFiles:
    """The files of a model of the registry."""
    return resolve_model(
        slug, path=model.path, engine=model.engine, task=model.task, revision=model.revision,
        max_length=model.max_length, pooling=model.pooling, fake_dimension=model.fake_dimension,
    )  # fmt: skip


def tokenizer_of(files: ModelFiles) -> Tokenizer:
    """The tokenizer of a model, for one thread."""
    if files.folder is None:
        return FakeTokenizer(max_length=files.max_length)
    from streamer.route.hf_tokenizer import HfTokenizer

    return HfTokenizer.from_folder(
        files.folder, tokenizer_hash=files.tokenizer_hash, max_length=files.max_length,
        vocabulary=files.vocabulary,
    )  # fmt: skip


def build_engine(
    files: ModelFiles, model: ModelSettings, work: WorkSettings, state_dir: Path
) -> Engine:
    """The engine of a model, not loaded yet; torch is imported by its ``load``.

    Args:
        files: the resolved model.
        model: dtype, normalizing; cost and faults of a fake.
        work: device and instances.
        state_dir: where measured profiles are kept.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if files.fake:
        cost = FakeCost(fixed_ms=model.fake_fixed_ms, token_us=model.fake_token_us)
        spec = fake_spec(
            model=files.slug, task=files.task, revision=files.revision,
            tokenizer_hash=files.tokenizer_hash, dimension=model.fake_dimension,
            max_length=files.max_length, instances=work.instances or 1, cost=cost,
        )  # fmt: skip
        faults = _fake_faults() if model.fake_faults else None
        return BlockingEngine(FakeModel(spec, cost=cost, wait=time.sleep, faults=faults))
    from streamer.infer.torch_engine import TorchModel, TorchOptions

    options = TorchOptions(
        dtype=model.dtype, device=work.device, instances=work.instances,
        normalize=model.normalize, cache=state_dir / "profiles",
    )  # fmt: skip
    return BlockingEngine(TorchModel(files, options, cores=cores or 1))


def batch_limits(work: WorkSettings, spec: EngineSpec, *, lane: str) -> BatchLimits:
    """Bounds of a stream's batches: the settings, tightened by what was measured."""
    limits = BatchLimits(
        items_max=work.batch_items,
        tokens_max=work.batch_tokens,
        bytes_max=work.batch_bytes,
        linger_ns=int(1e6 * (work.fast_linger_ms if lane == "fast" else work.bulk_linger_ms)),
    )
    best = spec.cost.best_tokens
    return replace(limits, tokens_max=min(limits.tokens_max, best)) if best else limits


def _fake_faults() -> FakeFaults:
    """Words that make a fake model fail: ``fault-batch`` and so on, for tests of the whole line."""
    return FakeFaults(marks={fake_ids(f"fault-{name}")[0]: name for name in FAULTS})
