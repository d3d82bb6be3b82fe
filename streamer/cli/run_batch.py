"""``streamer run-batch``: a file of requests answered in this process, without Kafka."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from streamer.process.offline import RunStats
    from streamer.settings import Settings

_ENDED_WITH_ERRORS = 6


def register(app: typer.Typer) -> None:
    """Add ``run-batch``."""
    app.command("run-batch")(run_batch)


def run_batch(
    file: Annotated[Path, typer.Argument(help="JSON Lines: OpenAI Batch lines, or plain "
                                         '{"custom_id", "input", ...} lines.')],
    model: Annotated[str, typer.Option("--model", help="Name of a configured model, a model "
                                       "folder, or package:NAME/FOLDER.")],
    out: Annotated[Path | None, typer.Option("--out", help="Result lines, in the order of the "
                                             "input; default: stdout.")] = None,
    task: Annotated[str, typer.Option("--task", help="embed, classify or score; for a folder.")]
    = "embed",
    truncate: Annotated[bool, typer.Option("--truncate/--no-truncate", help="Cut texts that are "
                                           "too long.")] = False,
    dimensions: Annotated[int | None, typer.Option("--dimensions", min=1,
                                                   help="Shorter vectors.")] = None,
    encoding: Annotated[str | None, typer.Option("--encoding", help="float, base64, f16, int8 or "
                                                 "binary.")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="auto, fp32, bf16 or fp16.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Statistics as JSON on stderr.")] = False,
) -> None:  # fmt: skip
    """Answer a file with the engine and the batches of the service, without Kafka.

    Example: streamer run-batch requests.jsonl --model minilm --out results.jsonl

    Exit code 6 says that some lines have no answer.
    """
    from streamer.client.errors import InputRefused

    params: dict[str, object] = {"truncate": truncate}
    params |= {"dimensions": dimensions} if dimensions else {}
    params |= {"encoding_format": encoding} if encoding else {}
    slug, settings = _settings(model, task, dtype)
    try:
        counts, stats = _answer(file, slug, settings, params, out)
    except InputRefused as error:
        print(f"streamer: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    _report(counts, stats, as_json=as_json)
    if sum(counts.values()) != counts["succeeded"]:
        raise typer.Exit(_ENDED_WITH_ERRORS)


def _settings(model: str, task: str, dtype: str | None) -> tuple[str, Settings]:
    """The settings with the named model in them, and its slug."""
    from streamer.errors import ConfigurationError
    from streamer.settings import load_settings
    from streamer.stack.local import BUNDLED_MODELS

    settings = load_settings()
    fields: dict[str, object]
    if model in settings.models:
        slug, fields = model, settings.models[model].model_dump()
    elif model in BUNDLED_MODELS:
        slug, fields = model, dict(BUNDLED_MODELS[model])
    elif model.startswith("package:") or Path(model).is_dir():
        slug, fields = "model", {"path": model, "task": task}
    else:
        known = ", ".join(sorted(settings.models)) or "none"
        raise ConfigurationError(
            f"there is no model {model!r}: name a configured one ({known}), a folder, or "
            "package:NAME/FOLDER"
        )
    if dtype is not None:
        fields["dtype"] = dtype
    return slug, load_settings(models={slug: fields})


def _answer(
    file: Path, slug: str, settings: Settings, params: dict[str, object], out: Path | None
) -> tuple[dict[str, int], RunStats]:
    import time

    from streamer.client.file_source import FileSource
    from streamer.clock import SystemClock
    from streamer.process.engines import batch_limits, build_engine, model_files
    from streamer.process.offline import OfflineRun
    from streamer.process.run_batch import RunBatchOptions, run_lines

    source = FileSource(file)
    source.scan()
    wanted = settings.models[slug]
    files = model_files(slug, wanted)
    # A file that is complete or not there: half an answer file would look like a whole one.
    draft = None if out is None else out.with_name(f"{out.name}.{os.getpid()}.part")
    target = sys.stdout.buffer if draft is None else _opened(draft)
    begun = time.perf_counter()
    clock = SystemClock()
    options = RunBatchOptions(params=params, normalize=wanted.normalize)
    try:
        engine = build_engine(files, wanted, settings.work, settings.state_dir)
        engine.load()
        engine.warm_up()
        limits = batch_limits(settings.work, engine.spec, lane="bulk")
        with OfflineRun(engine, limits, clock=clock) as run:
            run.stats.load_s = time.perf_counter() - begun
            counts = run_lines(
                run, files, source.items(), options, clock=clock,
                write=lambda line: target.write(line + b"\n"),
            )  # fmt: skip
        target.flush()
        if draft is not None and out is not None:
            draft.replace(out)
    finally:
        if draft is not None:
            target.close()
            draft.unlink(missing_ok=True)
    return dict(counts), run.stats


def _opened(path: Path) -> IO[bytes]:
    """The file to write, its folder made if need be; asked before the model is loaded."""
    from streamer.client.errors import InputRefused

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")
    except OSError as error:
        raise InputRefused(f"--out: {path.parent}: {error.strerror}") from None


def _report(counts: dict[str, int], stats: RunStats, *, as_json: bool) -> None:
    if as_json:
        fields = {
            "counts": counts, "items": stats.items, "texts": stats.texts,
            "items_per_s": round(stats.items_per_s, 1), "tokens": stats.tokens,
            "padding_overhead": round(stats.padding_overhead, 4), "batches": stats.batches,
            "wall_s": round(stats.wall_s, 3), "tokenize_s": round(stats.tokenize_s, 3),
            "load_s": round(stats.load_s, 3), "dtype": stats.dtype, "instances": stats.instances,
        }  # fmt: skip
        print(json.dumps(fields), file=sys.stderr)
        return
    states = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    print(
        f"{stats.items} lines: {states or 'nothing'}; {stats.items_per_s:.0f} items/s, "
        f"padding +{100 * stats.padding_overhead:.1f} %, {stats.dtype}, "
        f"{stats.instances} instances, loaded in {stats.load_s:.1f} s",
        file=sys.stderr,
    )
