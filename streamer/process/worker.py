"""The work process: engines first, then a loop a lane; decides nothing.

Engines are loaded and warmed up before any loop starts, so that ``/ready`` says yes only when the
first record would be answered at full speed. A worker of fake models alone imports no torch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from streamer.emit.outbox import OutboxLimits
from streamer.emit.results import EmitLimits
from streamer.errors import ConfigurationError
from streamer.event.topics import TopicNames
from streamer.infer.engine import Engine
from streamer.infer.launch import Launch, News
from streamer.process.engines import batch_limits, build_engine, model_files
from streamer.process.executor import Executor, WorkHooks
from streamer.process.lane_loop import LaneLoop
from streamer.process.lane_parts import build_loop
from streamer.process.runtime import ProcessContext, run_process
from streamer.process.topic_counts import check_partitions
from streamer.process.worker_core import WorkerCore
from streamer.process.worker_limits import ServedModel, WorkerLimits
from streamer.settings import Settings
from streamer.telemetry.prometheus_metrics import Metrics

_log = logging.getLogger(__name__)


def run_worker(settings: Settings, lanes: Sequence[str], models: Sequence[str]) -> int:
    """Serve these models in these lanes until a signal or a failure; returns the exit code.

    Raises:
        ConfigurationError: no model is named, or one is not in the settings.
    """
    if not models:
        raise ConfigurationError("no model to serve: configure one under models.<slug>")
    unknown = sorted(set(models) - set(settings.models))
    if unknown:
        raise ConfigurationError(f"models.{unknown[0]} is not configured")

    def build(context: ProcessContext) -> list[LaneLoop]:
        topics = worked_topics(TopicNames(settings.kafka.prefix), lanes, models)
        check_partitions(settings, topics, may_be_missing=True)
        engines = load_engines(settings, models)
        executor = Executor(engines, clock=context.clock)
        executor.start()
        context.closers.append(executor.close)
        context.ready_checks["device"] = executor.alive
        return [_lane(context, lane, engines, executor) for lane in lanes]

    return run_process(settings, role="work", build=build)


def worked_topics(names: TopicNames, lanes: Sequence[str], models: Sequence[str]) -> list[str]:
    """What work reads and writes with the partition count of the settings."""
    return [
        name
        for lane in lanes
        for name in (
            names.results(lane), names.replies(lane), names.dead_letters(lane),
            *(names.work(slug, lane) for slug in models),
        )
    ]  # fmt: skip


def load_engines(settings: Settings, models: Sequence[str]) -> dict[str, Engine]:
    """Engines by slug, loaded and warm."""
    engines: dict[str, Engine] = {}
    for slug in models:
        model = settings.models[slug]
        engine = build_engine(model_files(slug, model), model, settings.work, settings.state_dir)
        engine.load()
        engine.warm_up()
        spec = engine.spec
        _log.info(
            "model ready",
            extra={
                "model": slug, "revision": spec.revision, "dtype": spec.dtype,
                "device": spec.device, "instances": spec.instances,
                "best_tokens": spec.cost.best_tokens,
            },
        )  # fmt: skip
        engines[slug] = engine
    return engines


def worker_limits(settings: Settings, *, lane: str, worker: str) -> WorkerLimits:
    """The slice of the settings that the core of a lane takes."""
    work, partitions = settings.work, settings.kafka.partitions
    return WorkerLimits(
        lane=lane,
        buffer_items=work.buffer_items,
        buffer_ms=work.buffer_ms,
        commit_ns=0 if lane == "fast" else work.commit_ms * 1_000_000,
        record_items=settings.route.group_items,
        worker=worker,
        emit=EmitLimits(
            record_bytes_max=work.result_bytes,
            reply_bytes_max=settings.route.max_record_bytes,
            results=partitions, replies=partitions, dead_letters=partitions,
        ),
        outbox=OutboxLimits(),
    )  # fmt: skip


def _lane(
    context: ProcessContext, lane: str, engines: Mapping[str, Engine], executor: Executor
) -> LaneLoop:
    settings = context.settings
    names = TopicNames(settings.kafka.prefix)
    core = WorkerCore(
        limits=worker_limits(settings, lane=lane, worker=f"work-{context.slot}"),
        names=names,
        models=[
            ServedModel(spec=engine.spec, batch=batch_limits(settings.work, engine.spec, lane=lane))
            for engine in engines.values()
        ],
    )
    hooks = WorkHooks(
        core, executor, lane=lane, bulk_chunk_ms=settings.work.bulk_chunk_ms,
        observer=WorkMetrics(context.metrics, lane),
    )  # fmt: skip
    context.metrics.watch_backlog(lane, lambda: core.held_items)
    topics = [names.work(model, lane) for model in engines]
    return build_loop(context, lane=lane, topics=topics, core=core, hooks=hooks)


class WorkMetrics:
    """Turns the facts of a lane's work into metrics.

    Args:
        metrics: of the process.
        lane: label value.
    """

    def __init__(self, metrics: Metrics, lane: str) -> None:
        self._metrics = metrics
        self._lane = lane

    def launched(self, launch: Launch) -> None:
        """One batch was handed to the device slots."""
        self._metrics.batch(
            lane=self._lane, model=launch.model, reason=launch.reason, items=len(launch),
            tokens=launch.tokens, padded_tokens=launch.padded_tokens,
        )  # fmt: skip

    def landed(self, news: News) -> None:
        """Nothing is counted at landing: an item counts when its end is committed."""

    def committed(self, ended: Mapping[str, int]) -> None:
        """Items that end with a committed emission, by state."""
        for state, count in ended.items():
            self._metrics.items(self._lane, state, count)
