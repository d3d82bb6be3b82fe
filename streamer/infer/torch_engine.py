"""Encoders on torch: embeddings, sequence classification, pair scores; CPU and CUDA in one path.

Batches are padded rectangles: on a CPU sorted small rectangles are as fast as packing. The weights
are shared by all instances (threads); torch leaves the interpreter lock inside its kernels.

    flat ids ─► rectangle(s) ─► module ─► pooled or scored in fp32 ─► float32 rows in given order
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamer.batch.cost import CostModel
from streamer.errors import ConfigurationError, EngineFailure
from streamer.event.file_models import ModelFiles
from streamer.infer.collate import gather, mask_of, pad, rectangles, segments
from streamer.infer.engine import OUTPUT_OF_TASK, BatchColumns, EngineSpec, HostBatch
from streamer.infer.torch_load import LoadedModel, load_module, quiet_import
from streamer.infer.torch_selfbench import Profile, measured_profile

if TYPE_CHECKING:
    import torch

# Largest rectangle when nothing was measured yet: the top of the grid that is measured.
_TOKENS_UNMEASURED = {"cpu": 4_096, "cuda": 65_536}


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchOptions:
    """How to run a model.

    Attributes:
        dtype: ``auto`` = fastest that agrees with fp32, measured; else ``fp32 bf16 fp16``.
        device: ``auto cpu cuda cuda:N``.
        instances: forward passes at the same time; 0 = one a core on CPU, one on a GPU.
        normalize: unit-length embeddings unless the params say otherwise.
        cache: folder for measured profiles; None = measure at every start.
        measure: False = no self-benchmark: fp32 for ``auto``, no cost model (tests).
    """

    dtype: str = "auto"
    device: str = "auto"
    instances: int = 0
    normalize: bool = True
    cache: Path | None = None
    measure: bool = True


class TorchModel:
    """A :class:`~streamer.infer.thread_blocking.BlockingModel` over transformers.

    Args:
        files: the resolved model.
        options: how to run it.
        cores: CPU cores of this process.
    """

    def __init__(self, files: ModelFiles, options: TorchOptions, *, cores: int = 1) -> None:
        self._files = files
        self._options = options
        self._cores = cores
        self._loaded: LoadedModel | None = None
        self._module: torch.nn.Module | None = None
        self._tried: dict[str, torch.nn.Module] = {}
        self._spec = EngineSpec(
            model=files.slug, revision=files.revision, tokenizer_hash=files.tokenizer_hash,
            task=files.task, output=OUTPUT_OF_TASK[files.task], row_shape=(),
            max_length=files.max_length,
        )  # fmt: skip

    @property
    def spec(self) -> EngineSpec:
        """Complete after ``load``; ``dtype`` and ``cost`` after ``warm_up``."""
        return self._spec

    def load(self) -> None:
        """Import torch, read the weights, decide the number of instances.

        Raises:
            ConfigurationError: the folder cannot serve the task, or the device is missing.
        """
        if self._files.folder is None:
            raise ConfigurationError(f"models.{self._files.slug}: a fake model has no weights")
        quiet_import(threads=1)
        device = _device(self._options.device)
        loaded = load_module(self._files.folder, task=self._files.task, labels=self._files.labels)
        shapes = {
            "embed": (loaded.hidden,),
            "classify": (len(loaded.labels or ()),),
            "score": (),
        }
        instances = self._options.instances or (self._cores if device == "cpu" else 1)
        dtype = "fp32" if self._options.dtype == "auto" else self._options.dtype
        self._loaded = loaded
        self._module = _placed(loaded.module, device, dtype)
        self._spec = replace(
            self._spec, row_shape=shapes[self._files.task], labels=loaded.labels, device=device,
            vocabulary=loaded.vocabulary, instances=instances, dtype=dtype,
        )  # fmt: skip

    def warm_up(self) -> None:
        """Choose dtype and batch size by measuring, or from the cache of an earlier start."""
        if not self._options.measure:
            return
        profile = measured_profile(
            self._spec, wanted=self._options.dtype, cache=self._options.cache, runner=self._trial
        )
        self._module = self._in_dtype(profile.dtype)
        self._tried.clear()
        self._spec = _with_profile(self._spec, profile)

    def unload(self) -> None:
        """Drop the weights."""
        self._loaded = self._module = None

    def prepare(self, columns: BatchColumns) -> HostBatch:
        """Padded rectangles; more than one only when a single item is larger than any batch.

        Raises:
            EngineFailure: another task, a token id outside the vocabulary, or a text too long
                (on a GPU the second would break the device for good).
        """
        loaded, spec = self._loaded_or_fail(), self._spec
        if columns.task != spec.task:
            raise EngineFailure("batch", "model_error", f"the model does not do {columns.task}")
        if int(columns.token_ids.max(initial=0)) >= loaded.vocabulary:
            raise EngineFailure("batch", "model_error", "a token id lies beyond the vocabulary")
        if int(columns.lengths.max(initial=0)) > spec.max_length:
            raise EngineFailure("batch", "model_error", "a text is longer than the model takes")
        arrays, tokens, squares = [], 0, 0.0
        tokens_max = spec.cost.tokens_max or _TOKENS_UNMEASURED[spec.device.split(":")[0]]
        for texts in rectangles(columns.lengths, tokens_max):
            arrays.append(_rectangle(columns, texts, loaded))
            count, width = arrays[-1]["input_ids"].shape
            tokens += count * width
            squares += float(count) * width * width
        return HostBatch(columns=columns, arrays=tuple(arrays), tokens=tokens, squares=squares)

    def run(self, batch: HostBatch, instance: int) -> NDArray[np.float32]:
        """One forward pass a rectangle.

        Raises:
            EngineFailure: out of memory (``batch``), a device error (``sticky``).
        """
        import torch

        assert self._module is not None
        params = _params(batch.columns.params)
        rows = np.empty((batch.columns.texts, *self._spec.row_shape), np.float32)
        try:
            with torch.inference_mode():
                for arrays in batch.arrays:
                    answered = self._forward(self._module, arrays, params)
                    rows[arrays["texts"].astype(np.int64)] = answered.cpu().numpy()
        except torch.OutOfMemoryError:
            raise EngineFailure("batch", "out_of_memory", "the device has no memory left") from None
        except RuntimeError as error:
            if "CUDA error" in str(error):
                raise EngineFailure("sticky", "model_error", "the device failed") from None
            raise
        return rows

    def _forward(
        self,
        module: torch.nn.Module,
        arrays: Mapping[str, NDArray[np.generic]],
        params: Mapping[str, object],
    ) -> torch.Tensor:
        loaded, device = self._loaded_or_fail(), self._spec.device
        mask = _to(arrays["mask"], device)
        inputs = {"input_ids": _to(arrays["input_ids"], device)}
        # A full rectangle needs no mask, which is the fastest attention there is.
        inputs["attention_mask"] = None if arrays["mask"].all() else mask.long()  # type: ignore[assignment]
        if loaded.takes_types:
            inputs["token_type_ids"] = _to(arrays["types"], device)
        answer = module(**inputs, return_dict=True)
        if loaded.task == "embed":
            normalize = bool(params.get("normalize", self._options.normalize))
            return _pooled(answer.last_hidden_state, mask, self._files.pooling or "mean", normalize)
        logits = answer.logits.float()
        activation = "none" if params.get("raw_scores") else loaded.activation
        scores = _activated(logits, activation)
        return scores[:, 0] if loaded.task == "score" else scores

    def _trial(self, dtype: str) -> Callable[[BatchColumns], NDArray[np.float32]]:
        """A forward pass in a dtype, for the self-benchmark."""
        import torch

        module = self._in_dtype(dtype)

        def run(columns: BatchColumns) -> NDArray[np.float32]:
            with torch.inference_mode():
                arrays = self.prepare(columns).arrays
                parts = [self._forward(module, piece, {}).cpu().numpy() for piece in arrays]
            return np.concatenate(parts)

        return run

    def _in_dtype(self, dtype: str) -> torch.nn.Module:
        if dtype not in self._tried:
            module = self._loaded_or_fail().module
            self._tried[dtype] = _placed(module, self._spec.device, dtype)
        return self._tried[dtype]

    def _loaded_or_fail(self) -> LoadedModel:
        if self._loaded is None:
            raise EngineFailure("lost", "model_error", "the model is not loaded")
        return self._loaded


def _rectangle(
    columns: BatchColumns, texts: NDArray[np.int64], loaded: LoadedModel
) -> dict[str, NDArray[np.generic]]:
    lengths = columns.lengths[texts]
    mask = mask_of(lengths)
    ids = gather(columns.token_ids, columns.lengths, texts)
    arrays = {"texts": texts, "mask": mask, "input_ids": pad(ids, mask, loaded.pad_id)}
    if loaded.takes_types:
        pair_at = columns.pair_at[texts] if columns.pair_at is not None else None
        arrays["types"] = segments(mask, pair_at)
    return arrays


def _with_profile(spec: EngineSpec, profile: Profile) -> EngineSpec:
    cost = CostModel(
        fixed_ms=profile.fixed_ms, token_us=profile.token_us, square_ns=profile.square_ns,
        tokens_max=profile.tokens_max, best_tokens=profile.best_tokens,
    )  # fmt: skip
    return replace(spec, dtype=profile.dtype, cost=cost)


@lru_cache(maxsize=1_024)
def _params(text: str) -> dict[str, object]:
    params: dict[str, object] = json.loads(text) if text else {}
    return params


def _device(wanted: str) -> str:
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigurationError(f"work.device is {wanted}, but torch sees no CUDA device")
    return wanted


def _placed(module: torch.nn.Module, device: str, dtype: str) -> torch.nn.Module:
    """The module on a device in a dtype; the fp32 original on the CPU is left as it is."""
    import copy

    import torch

    wanted = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    if device == "cpu" and wanted is torch.float32:
        return module
    return copy.deepcopy(module).to(device=device, dtype=wanted)


def _to(array: NDArray[np.generic], device: str) -> torch.Tensor:
    import torch

    tensor = torch.from_numpy(array)
    if device == "cpu":
        return tensor
    # From pinned memory the copy does not wait for the kernels that are queued.
    return tensor.pin_memory().to(device, non_blocking=True)


def _pooled(
    states: torch.Tensor, mask: torch.Tensor, pooling: str, normalize: bool
) -> torch.Tensor:
    """float32 [texts, hidden] from states [texts, width, hidden]."""
    import torch

    if pooling == "cls":
        pooled = states[:, 0].float()
    else:
        weights = mask.unsqueeze(-1).float()
        pooled = (states.float() * weights).sum(1) / weights.sum(1)
    return torch.nn.functional.normalize(pooled, dim=-1) if normalize else pooled


def _activated(logits: torch.Tensor, activation: str) -> torch.Tensor:
    if activation == "softmax":
        return logits.softmax(-1)
    return logits.sigmoid() if activation == "sigmoid" else logits
