"""The route process: tokenizers, a core and a loop a lane; decides nothing.

Imports neither torch nor transformers: tokenizers come straight from ``tokenizer.json``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence

from streamer.event.file_models import ModelFiles
from streamer.event.intake import IntakeLimits, read_request
from streamer.event.lane import Assignment, EmitPlan, Headers, Now
from streamer.event.records import InferenceRequest
from streamer.event.topics import TopicNames
from streamer.process.engines import model_files
from streamer.process.lane_loop import LaneLoop
from streamer.process.lane_parts import build_loop
from streamer.process.route_watch import Reading, RouteWatch, WatchedLane
from streamer.process.runtime import ProcessContext, run_process
from streamer.process.topic_counts import check_partitions
from streamer.route.admission import Admission
from streamer.route.fake_tokenizer import FakeTokenizer
from streamer.route.grouping import GroupLimits
from streamer.route.hf_tokenizer import HfTokenizer
from streamer.route.models import AdmissionLimits, ServedModel
from streamer.route.outgoing import Outlets
from streamer.route.params import ParamDefaults
from streamer.route.reading import Reader, ReadRequest
from streamer.route.router_core import PlanToken, RouterCore, RouterLimits
from streamer.route.tokenizer import Tokenizer
from streamer.route.window import WindowLimits
from streamer.settings import RouteSettings, Settings, client_properties
from streamer.telemetry.prometheus_metrics import Metrics

_log = logging.getLogger(__name__)


def run_router(settings: Settings, lanes: Sequence[str]) -> int:
    """Route these lanes until a signal or a failure; returns the exit code."""
    # The cores belong to the models; a lane tokenizes in its own thread, outside the interpreter's
    # lock. More throughput comes from more route processes.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    def build(context: ProcessContext) -> list[LaneLoop]:
        files = {slug: model_files(slug, model) for slug, model in settings.models.items()}
        names = TopicNames(settings.kafka.prefix)
        check_partitions(settings, routed_topics(names, lanes, settings.models))
        watch = _watch(context, lanes)
        watch.start()
        context.closers.append(watch.close)
        context.ready_checks["watch"] = watch.alive
        return [_lane(context, lane, files, watch) for lane in lanes]

    return run_process(settings, role="route", build=build)


def routed_topics(names: TopicNames, lanes: Sequence[str], models: Iterable[str]) -> list[str]:
    """What route reads and writes with the partition count of the settings."""
    models = tuple(models)
    return [
        name
        for lane in lanes
        for name in (
            names.requests(lane), names.results(lane), names.replies(lane), names.jobs(lane),
            names.dead_letters(lane), *(names.work(slug, lane) for slug in models),
        )
    ]  # fmt: skip


def served_model(files: ModelFiles, *, normalize: bool) -> ServedModel:
    """A model with a tokenizer of its own: one a lane, since each lane is a thread."""
    tokenizer: Tokenizer
    if files.folder is None:
        tokenizer = FakeTokenizer(max_length=files.max_length)
    else:
        tokenizer = HfTokenizer.from_folder(
            files.folder, tokenizer_hash=files.tokenizer_hash, max_length=files.max_length,
            vocabulary=files.vocabulary,
        )  # fmt: skip
    return ServedModel(
        slug=files.slug,
        revision=files.revision,
        tokenizer=tokenizer,
        defaults=ParamDefaults(
            task=files.task, normalize=normalize, dimension=files.dimension,
            prompts=files.prompts, default_prompt_name=files.default_prompt_name,
        ),
        answer_bytes=4 * len(files.labels or "1"),
    )  # fmt: skip


def router_limits(route: RouteSettings, lane: str) -> RouterLimits:
    """The slice of the settings that the core of a lane takes."""
    return RouterLimits(
        window=WindowLimits(
            items=route.window_items, tokens=route.window_tokens,
            wait_ms=0 if lane == "fast" else route.window_ms, buffer_items=route.buffer_items,
            # Tokenizing a fast turn takes some 10 ms at most; what came later waits that long.
            deliver_items=128 if lane == "fast" else 1_024,
        ),
        group=GroupLimits(
            items=route.group_items, tokens=route.group_tokens, size_bytes=route.group_bytes,
            answer_bytes=route.result_bytes,
        ),
    )  # fmt: skip


def build_core(
    settings: Settings, lane: str, files: Mapping[str, ModelFiles], *, worker: str
) -> RouterCore:
    """The decisions of one lane."""
    route, partitions = settings.route, settings.kafka.partitions
    models = {
        slug: served_model(one, normalize=settings.models[slug].normalize)
        for slug, one in files.items()
    }
    admission = AdmissionLimits(
        text_chars_max=route.max_text_chars, result_bytes_max=route.result_bytes,
        replies=partitions,
    )  # fmt: skip
    outlets = Outlets(
        names=TopicNames(settings.kafka.prefix), lane=lane, results=partitions,
        replies=partitions, jobs=partitions, dead_letters=partitions,
        work=dict.fromkeys(models, partitions), worker=worker,
    )  # fmt: skip
    return RouterCore(
        reader=Reader(
            admission=Admission(lane=lane, models=models, limits=admission),
            read_request=_intake(IntakeLimits(max_record_bytes=route.max_record_bytes)),
        ),
        models=models,
        outlets=outlets,
        limits=router_limits(route, lane),
    )


class RouteHooks:
    """Brings readings and plans to a core, and its facts to the metrics.

    Args:
        core: of the lane.
        watch: where news come from.
        metrics: of the process.
        lane: its name.
    """

    def __init__(self, core: RouterCore, watch: RouteWatch, metrics: Metrics, lane: str) -> None:
        self._core = core
        self._watch = watch
        self._metrics = metrics
        self._lane = lane

    def assigned(self, assignments: Sequence[Assignment], now: Now) -> None:
        """Nothing to restore."""

    def pump(self, now: Now) -> bool:
        """Take the news in; route never has work in flight."""
        del now
        for news in self._watch.news(self._lane):
            if isinstance(news, Reading):
                self._core.work_progress(news.model, news.behind, news.read_ns)
                continue
            problem = self._core.use_plan(news)
            _log.info(
                "bucket plan",
                extra={
                    "lane": self._lane, "model": news.model, "version": news.version,
                    "ignored": problem or "",
                },
            )  # fmt: skip
        return False

    def settled(self, plan: EmitPlan, now: Now) -> None:
        """Count what is committed."""
        del now
        assert isinstance(plan.token, PlanToken)
        facts = plan.token.facts
        self._metrics.items(self._lane, "routed", facts.items)
        self._metrics.items(self._lane, "refused", sum(facts.refused.values()))
        self._metrics.items(self._lane, "dead_letter", sum(facts.dead.values()))


def _lane(
    context: ProcessContext, lane: str, files: Mapping[str, ModelFiles], watch: RouteWatch
) -> LaneLoop:
    settings = context.settings
    core = build_core(settings, lane, files, worker=f"route-{context.slot}")
    context.metrics.watch_backlog(lane, lambda: core.waiting)
    return build_loop(
        context,
        lane=lane,
        topics=[TopicNames(settings.kafka.prefix).requests(lane)],
        core=core,
        hooks=RouteHooks(core, watch, context.metrics, lane),
    )


def _watch(context: ProcessContext, lanes: Sequence[str]) -> RouteWatch:
    settings = context.settings
    names = TopicNames(settings.kafka.prefix)
    return RouteWatch(
        properties=client_properties(settings.kafka),
        lanes=[
            WatchedLane(
                lane=lane,
                group=f"{settings.kafka.group_prefix}work-{lane}",
                topics={slug: names.work(slug, lane) for slug in settings.models},
                partitions=settings.kafka.partitions,
            )
            for lane in lanes
        ],
        plans_topic=names.plans,
        clock=context.clock,
    )


def _intake(limits: IntakeLimits) -> ReadRequest:
    def read(value: bytes | None, headers: Headers) -> InferenceRequest:
        return read_request(value, headers, limits)

    return read
