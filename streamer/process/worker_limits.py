"""Bounds and pace of work in one lane, and the models it holds. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamer.batch.limits import BatchLimits
from streamer.emit.outbox import OutboxLimits
from streamer.emit.results import EmitLimits
from streamer.infer.engine import EngineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """Bounds and pace of one lane.

    Attributes:
        buffer_items: items held, finished or not; then no consuming.
        buffer_ms: predicted device time that waits; then no consuming.
        outbox_bytes: finished bytes held; then no consuming.
        commit_ns: longest wait of a finished prefix for its commit.
        record_items: items a work record has at most, for the bound.
        worker: name of this process in receipts and batch ids.
    """

    lane: str
    buffer_items: int = 8_192
    buffer_ms: float = 2_000.0
    outbox_bytes: int = 64 * 1024 * 1024
    commit_ns: int = 100_000_000
    record_items: int = 64
    worker: str = "work-0"
    emit: EmitLimits = field(default_factory=EmitLimits)
    outbox: OutboxLimits = field(default_factory=OutboxLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model this worker holds, with the bounds of its batches."""

    spec: EngineSpec
    batch: BatchLimits
