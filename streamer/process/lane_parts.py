"""Builds the loop of one lane from the settings: consumer, producer ring, limits, names."""

from __future__ import annotations

from collections.abc import Sequence

from streamer.event.lane import LaneCore
from streamer.process.lane_loop import LaneHooks, LaneLoop
from streamer.process.runtime import ProcessContext


def build_loop(
    context: ProcessContext,
    *,
    lane: str,
    topics: Sequence[str],
    core: LaneCore,
    hooks: LaneHooks,
) -> LaneLoop:
    """A loop (not started) of group ``streamer-<role>-<lane>`` and ids ``…-<slot>-<k>``."""
    raise NotImplementedError
