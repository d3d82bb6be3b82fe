"""What every process does around its lanes: slot, logs, health, signals, drain, exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from streamer.clock import Clock
from streamer.process.lane_loop import LaneLoop
from streamer.settings import Settings


@dataclass(slots=True, kw_only=True)
class ProcessContext:
    """What a role's builder gets.

    Attributes:
        settings: the whole tree (process/ cuts the slices).
        role: ``route``, ``work`` or ``aggregate``.
        slot: number of this process in its role; part of the transactional ids.
        clock: the one source of time.
        ready_checks: a builder adds what must hold besides the loops for ``/ready``.
        closers: a builder adds what to close after the loops, called in reverse order.
    """

    settings: Settings
    role: str
    slot: int
    clock: Clock
    ready_checks: list[Callable[[], bool]] = field(default_factory=list)
    closers: list[Callable[[], None]] = field(default_factory=list)


def run_process(
    settings: Settings, *, role: str, build: Callable[[ProcessContext], Sequence[LaneLoop]]
) -> int:
    """Run a role until a signal or a failure; returns the exit code.

    ``build`` makes the lanes' loops (not started); slow parts (models) load inside it, while
    ``/live`` already answers and ``/ready`` says no.
    """
    raise NotImplementedError
