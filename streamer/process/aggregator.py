"""The aggregate process: a lane loop each, and beside it the reader of job states and entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streamer.clock import Clock
from streamer.event.lane import Assignment, EmitPlan, Now
from streamer.event.topics import TopicNames
from streamer.process.lane_loop import LaneLoop
from streamer.process.lane_parts import build_loop
from streamer.process.runtime import ProcessContext, run_process
from streamer.reassemble.aggregator_core import AggregatorCore
from streamer.reassemble.deadlines import DeadlineLimits
from streamer.reassemble.kafka_restore import StateReader
from streamer.reassemble.partition import AggregatorLimits
from streamer.reassemble.resequencer import JOB_COUNTS
from streamer.reassemble.runs import RunLimits
from streamer.settings import AggregateSettings, Settings, client_properties
from streamer.telemetry.prometheus_metrics import Metrics

_TAIL_NS: Final = 5_000_000
_WATERMARK_RETRY_NS: Final = 200_000_000


def run_aggregator(settings: Settings, lanes: Sequence[str]) -> int:
    """Put the results of these lanes in order until a signal or a failure; the exit code."""

    def build(context: ProcessContext) -> list[LaneLoop]:
        return [build_lane(context, lane) for lane in lanes]

    return run_process(settings, role="aggregate", build=build)


def build_lane(context: ProcessContext, lane: str) -> LaneLoop:
    """The loop (not started) that aggregates one lane."""
    settings = context.settings
    names = TopicNames(settings.kafka.prefix)
    core = AggregatorCore(lane=lane, names=names, limits=aggregator_limits(settings, lane))
    reader = StateReader(
        properties=client_properties(settings.kafka),
        names=names,
        lane=lane,
        partitions=settings.kafka.partitions,
        clock=context.clock,
    )
    reader.start()
    context.closers.append(reader.close)
    hooks = AggregateHooks(
        lane=lane, core=core, reader=reader, clock=context.clock, metrics=context.metrics
    )
    context.metrics.watch_backlog(lane, lambda: hooks.backlog)
    return build_loop(context, lane=lane, topics=[names.results(lane)], core=core, hooks=hooks)


def aggregator_limits(settings: Settings, lane: str) -> AggregatorLimits:
    """The slice of the settings that the core of a lane takes; fast rows never wait."""
    part: AggregateSettings = settings.aggregate
    return AggregatorLimits(
        partitions=settings.kafka.partitions,
        runs=RunLimits(items_max=part.run_items, bytes_max=part.run_bytes),
        deadlines=DeadlineLimits(
            default_ms=part.deadline_ms, longest_ms=part.deadline_max_ms, grace_ms=part.grace_ms
        ),
        commit_ms=0 if lane == "fast" else part.commit_ms,
        closed_keep_ms=part.closed_keep_ms,
        waiting_bytes=part.waiting_bytes,
    )


class AggregateHooks:
    """What aggregate adds to the loop; all on the owner thread.

    Args:
        lane: fast or bulk.
        core: the decisions.
        reader: restores and follows.
        clock: source of time.
        metrics: counts rows and jobs after each commit.
    """

    def __init__(
        self, *, lane: str, core: AggregatorCore, reader: StateReader, clock: Clock,
        metrics: Metrics,
    ) -> None:  # fmt: skip
        self.backlog = 0
        self._lane = lane
        self._core = core
        self._reader = reader
        self._clock = clock
        self._metrics = metrics
        self._counted: dict[str, int] = {}
        self._tail_at_ns = 0
        self._ask_at_ns = 0

    def assigned(self, assignments: Sequence[Assignment], now: Now) -> None:
        """Restore these partitions before the core takes them."""
        del now
        numbers = [assignment.at.partition for assignment in assignments]
        for number, found in self._reader.restore(numbers).items():
            self._core.restored(
                number,
                states=list(found.states.values()),
                entries=list(found.entries.values()),
                watermark=found.watermark,
            )

    def pump(self, now: Now) -> bool:
        """Follow ``jobs`` and answer questions for watermarks."""
        if now.mono_ns >= self._tail_at_ns:
            self._tail_at_ns = now.mono_ns + _TAIL_NS
            gone = self._reader.followed() - self._core.partitions()
            if gone:
                self._reader.forget(gone)
            for number, entries in self._reader.entries().items():
                self._core.job_entries(number, entries, now)
            self.backlog = self._core.waiting_rows()
        if now.mono_ns >= self._ask_at_ns:
            self._answer(now)
        return False

    def _answer(self, now: Now) -> None:
        for number in self._core.wants_watermark(now):
            asked_at = Now(self._clock.monotonic_ns(), self._clock.wall_ms())
            high = self._reader.high_watermark(number)
            if high is None:
                self._ask_at_ns = self._clock.monotonic_ns() + _WATERMARK_RETRY_NS
                return
            self._core.watermark(number, high, asked_at)

    def settled(self, plan: EmitPlan, now: Now) -> None:
        """Count what was decided since the last commit."""
        del plan, now
        counts = self._core.tally.as_dict()
        for name, count in counts.items():
            tell = self._metrics.jobs if name in JOB_COUNTS else self._metrics.items
            tell(self._lane, name, count - self._counted.get(name, 0))
        self._counted = counts
