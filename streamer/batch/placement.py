"""Where reading of a partition starts; decides from what the brokers said. Pure.

``auto.offset.reset`` is ``error``: a partition is never placed silently. Without a committed offset
it starts at 0 if its log still starts there; anything else is a gap (records that nobody has seen
are gone), which is reported and held rather than jumped over.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Placed:
    """Read from ``offset`` on."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """Do not read; ``reason`` says why and ``is_gap`` whether records are gone."""

    reason: str
    is_gap: bool = False


def place(*, committed: int | None, metadata: str, log_start: int | None) -> Placed | Held:
    """Judge one partition.

    Args:
        committed: the group's committed offset, None when it has none.
        metadata: what was committed with it.
        log_start: lowest offset in the log; None when not asked for, which is allowed only with
            a committed offset.
    """
    if committed is None:
        if log_start is None:
            return Held("the start of the log is not known yet")
        if log_start == 0:
            return Placed(0)
        return Held(f"no committed offset, and the log starts at {log_start}, not 0", is_gap=True)
    if log_start is not None and committed < log_start:
        return Held(f"committed offset {committed}, but the log starts at {log_start}", is_gap=True)
    return Placed(committed, metadata)
