"""Launches in pieces, on their way through the device slots of a model. Pure.

A launch runs as one piece. A piece that fails is run again, or halved until the item that makes the
model fail stands alone; what its neighbours answer does not change by that (*isolate*).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamer.errors import EngineFailure
from streamer.infer.engine import BatchColumns, BatchOutcome, HostBatch
from streamer.infer.launch import Failed, Launch, take_items

TRIES_MAX = 3


@dataclass(frozen=True, slots=True)
class Slots:
    """What a lane may offer now.

    Attributes:
        idle: batches that would start at once.
        room: batches that are welcome, counting those prepared ahead.
    """

    idle: int
    room: int


@dataclass(slots=True)
class Flight:
    """A launch of which ``left`` positions are not told yet."""

    launch: Launch
    left: int


@dataclass(slots=True, eq=False)
class Piece:
    """Some positions of a launch that run together.

    Attributes:
        positions: int64 [k], in the launch, ascending.
        tries: 1 for the first run.
        told: bool [k], which are answered already.
        host: set once it is laid out for the device.
    """

    flight: Flight
    positions: NDArray[np.int64]
    columns: BatchColumns
    tries: int = 1
    told: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    host: HostBatch | None = None

    @property
    def lane(self) -> str:
        """Whose items these are."""
        return self.flight.launch.lane

    def part(self, kept: NDArray[np.int64], *, tries: int = 1) -> Piece:
        """A new piece of some of these positions."""
        columns = take_items(self.columns, kept)
        return _piece(self.flight, self.positions[kept], columns, tries)


def whole(launch: Launch) -> Piece:
    """A launch as one piece."""
    count = len(launch)
    return _piece(Flight(launch, count), np.arange(count, dtype=np.int64), launch.columns, 1)


def after_failure(piece: Piece, failure: EngineFailure) -> list[Piece] | Failed:
    """What to run instead of a piece that failed, or the culprit when nothing can be cut away."""
    rest = np.flatnonzero(~piece.told)
    if failure.kind == "transient" and piece.tries < TRIES_MAX:
        return [piece.part(rest, tries=piece.tries + 1)]
    if len(rest) > 1:
        half = len(rest) // 2
        return [piece.part(rest[:half]), piece.part(rest[half:])]
    at = int(piece.positions[rest[0]])
    return Failed(item=at, code=failure.code, message=failure.message, culprit=True)


def item_failures(piece: Piece, outcome: BatchOutcome) -> tuple[Failed, ...]:
    """Items the engine could not answer alone, by their positions in the launch.

    A model that answers NaN has not been harmed by the item, so there is no culprit to bury.
    """
    return tuple(
        Failed(
            item=int(piece.positions[one.item]), code=one.code, message=one.message,
            culprit=one.code != "non_finite_output",
        )
        for one in outcome.failed
    )  # fmt: skip


def _piece(
    flight: Flight, positions: NDArray[np.int64], columns: BatchColumns, tries: int
) -> Piece:
    return Piece(flight, positions, columns, tries, np.zeros(len(positions), np.bool_))
