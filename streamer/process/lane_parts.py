"""Builds the loop of one lane from the settings: consumer, producer ring, limits, names."""

from __future__ import annotations

from collections.abc import Sequence

from streamer.batch.kafka_consumer import SourceLimits
from streamer.batch.kafka_source import KafkaSource
from streamer.emit.kafka_ring import ProducerRing, RingLimits
from streamer.event.lane import LaneCore, PositionFollower
from streamer.process.crash_points import crash_points
from streamer.process.lane_hooks import LaneHooks, LoopLimits
from streamer.process.lane_loop import LaneLoop
from streamer.process.runtime import ProcessContext
from streamer.settings import client_properties


def build_loop(
    context: ProcessContext,
    *,
    lane: str,
    topics: Sequence[str],
    core: LaneCore,
    hooks: LaneHooks,
) -> LaneLoop:
    """A loop (not started) of group ``streamer-<role>-<lane>`` and ids ``…-<slot>-<k>``.

    The loop is called ``<role>.<lane>``; its facts go to the metrics of the process.
    """
    kafka = context.settings.kafka
    group = f"{kafka.group_prefix}{context.role}-{lane}"
    name = f"{context.role}.{lane}"
    crash = crash_points(name)
    facts = context.metrics.lane(lane)
    properties = client_properties(kafka)
    source = KafkaSource(
        properties=properties,
        group=group,
        topics=topics,
        limits=SourceLimits.for_lane(
            lane,
            session_timeout_ms=kafka.session_timeout_ms,
            max_poll_interval_ms=kafka.max_poll_interval_ms,
            protocol=kafka.protocol,
            tell_ends=isinstance(core, PositionFollower),
        ),
        clock=context.clock,
    )
    context.metrics.watch_held(lane, lambda: len(source.held()))
    return LaneLoop(
        name=name,
        core=core,
        source=source,
        ring=ProducerRing(
            properties=properties,
            id_prefix=f"{group}-{context.slot}",
            limits=RingLimits.for_lane(lane),
            clock=context.clock,
            crash=crash,
            rebuilt=facts.rebuilt,
        ),
        clock=context.clock,
        hooks=hooks,
        limits=LoopLimits.for_lane(lane),
        observer=facts,
        crash=crash,
    )
