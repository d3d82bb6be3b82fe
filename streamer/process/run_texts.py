"""Texts in, rows out, in this process: what benches and notebooks call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.clock import SystemClock
from streamer.errors import ConfigurationError, ItemRejected
from streamer.event import codes
from streamer.event.file_models import ModelFiles
from streamer.event.records import ItemColumns, WorkRecord
from streamer.process.engines import batch_limits, build_engine, model_files, tokenizer_of
from streamer.process.offline import WINDOW_ITEMS, OfflineRun, RunStats
from streamer.route.params import ParamDefaults, Params, effective_params
from streamer.route.tokenizer import Encoded, TextRequest
from streamer.settings import Settings, load_settings

_RECORD_ITEMS = 64


def run_texts(
    model: str,
    texts: Sequence[str | tuple[str, str]],
    *,
    settings: Settings | None = None,
    params: Mapping[str, object] | None = None,
) -> tuple[NDArray[np.float32], RunStats]:
    """Run a model over texts (or pairs of texts); long ones are cut.

    Args:
        model: slug of ``settings.models``.
        texts: the inputs.
        settings: None = as every command reads them.
        params: as in a request, e.g. ``{"normalize": False}``.

    Returns:
        float32 [texts, ...] in the order of ``texts``, and what the run did.

    Raises:
        ConfigurationError: the model is unknown or cannot be loaded.
        ItemRejected: a text has no answer; names the first one.
    """
    settings = settings or load_settings()
    if model not in settings.models:
        raise ConfigurationError(f"models.{model} is not in the settings")
    wanted = settings.models[model]
    files = model_files(model, wanted)
    begun = time.perf_counter()
    engine = build_engine(files, wanted, settings.work, settings.state_dir)
    engine.load()
    engine.warm_up()
    limits = batch_limits(settings.work, engine.spec, lane="bulk")
    defaults = ParamDefaults(
        task=files.task, normalize=wanted.normalize, dimension=files.dimension,
        prompts=files.prompts, default_prompt_name=files.default_prompt_name,
    )  # fmt: skip
    effective = effective_params({"truncate": True, **(params or {})}, defaults)
    with OfflineRun(engine, limits, clock=SystemClock()) as run:
        run.stats.load_s = time.perf_counter() - begun
        return _run(run, files, texts, effective), run.stats


def _run(
    run: OfflineRun, files: ModelFiles, texts: Sequence[str | tuple[str, str]], params: Params
) -> NDArray[np.float32]:
    tokenizer = tokenizer_of(files)
    begun = time.perf_counter()
    rows: NDArray[np.float32] | None = None
    numbers: dict[int, NDArray[np.int64]] = {}

    def keep(finished: list[tuple[int, object]]) -> None:
        nonlocal rows
        for number, held in finished:
            answers = held.answers  # type: ignore[attr-defined]
            if (answers.status != codes.SUCCEEDED).any():
                error = next(iter(answers.errors.values()))
                raise ItemRejected(error.code, error.message)
            if rows is None:
                rows = np.empty((len(texts), *answers.values.shape[1:]), np.float32)
            rows[numbers.pop(number)] = answers.values

    for first in range(0, len(texts), WINDOW_ITEMS):
        window = texts[first : first + WINDOW_ITEMS]
        tick = time.perf_counter()
        encoded = tokenizer.encode(
            [
                TextRequest(params.prompt + text, None, truncate=True)
                if isinstance(text, str)
                else TextRequest(params.prompt + text[0], text[1], truncate=True)
                for text in window
            ]
        )
        order = np.argsort([len(one.ids) for one in encoded], kind="stable")
        run.stats.tokenize_s += time.perf_counter() - tick
        for begin in range(0, len(order), _RECORD_ITEMS):
            part = order[begin : begin + _RECORD_ITEMS]
            work = _work(files, [encoded[at] for at in part], params)
            numbers[run.add(work)] = part + first
        keep(list(run.turn(drain=False)))
        while run.open_items > 2 * WINDOW_ITEMS:
            keep(list(run.turn(drain=False)))
            time.sleep(0.0005)
    keep(list(run.finish()))
    run.stats.wall_s = time.perf_counter() - begun
    return rows if rows is not None else np.empty((0,), np.float32)


def _work(files: ModelFiles, encoded: Sequence[Encoded], params: Params) -> WorkRecord:
    count = len(encoded)
    pairs = np.array([one.pair_at for one in encoded], np.int32)
    zeros = np.zeros(count, np.int64)
    return WorkRecord(
        lane="bulk", model=files.slug, revision=files.revision,
        tokenizer_hash=files.tokenizer_hash, task=files.task, params=params.canonical,
        params_key=params.key, tenant="default", job_id="texts", form="json", encoding="float",
        reply_to=None, origin_topic="", plan_version=0, group_reason="texts",
        items=ItemColumns(
            index=zeros, custom_id=[""] * count, origin_partition=zeros.astype(np.int32),
            origin_offset=zeros, rows=np.ones(count, np.int32), metadata=None,
            input_digest=bytes(16 * count), accepted_at_ms=zeros,
            flags=np.zeros(count, np.uint8),
        ),
        lengths=np.array([len(one.ids) for one in encoded], np.int32),
        token_ids=np.concatenate([one.ids for one in encoded]),
        pair_at=pairs if pairs.any() else None,
        deadline_at_ms=zeros,
    )  # fmt: skip
