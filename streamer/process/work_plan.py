"""What one emission of work covers: a cut of the outbox, and attempts to be written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamer.emit.offset_metadata import OffsetMetadata, encode_metadata
from streamer.emit.outbox import Cut
from streamer.event import codes
from streamer.event.lane import EmitPlan, OffsetMark, TopicPartition


@dataclass(frozen=True, slots=True)
class WorkToken:
    """What a plan covers: a cut of the outbox, and partitions (with epochs) to seal."""

    cut: Cut | None
    seals: Mapping[TopicPartition, int]


def work_plan(
    cut: Cut | None,
    attempts: Mapping[TopicPartition, OffsetMetadata],
    epochs: Mapping[TopicPartition, int],
) -> EmitPlan:
    """The plan of a cut and of partitions whose attempts are not written yet.

    Args:
        cut: finished prefixes; None when nothing leaves.
        attempts: what to write beside the unmoved offsets of fresh partitions.
        epochs: of those partitions.
    """
    offsets = {
        at: OffsetMark(metadata.offset, encode_metadata(metadata))
        for at, metadata in attempts.items()
    }
    if cut is not None:
        offsets |= {at: OffsetMark(offset) for at, offset in cut.offsets.items()}
    return EmitPlan(() if cut is None else cut.records, offsets, WorkToken(cut, epochs))


def ended_with(plan: EmitPlan) -> dict[str, int]:
    """Items that end when the plan is committed, by state."""
    assert isinstance(plan.token, WorkToken)
    counts = () if plan.token.cut is None else plan.token.cut.counts
    return dict(zip(codes.STATUSES, counts, strict=False))
