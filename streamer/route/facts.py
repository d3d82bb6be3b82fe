"""What one plan of route did, told to whoever counts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamer.event.lane import Now
from streamer.event.records import DeadLetter
from streamer.route.entry import Entry, Refusal
from streamer.route.grouping import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFacts:
    """What one plan did, for metrics.

    Attributes:
        reason: why the windows were cut.
        refused, dead: counts by code.
        tokens, padded_tokens: of the groups.
        oldest_wait_ns: from delivery to the cut.
    """

    reason: str
    items: int
    groups: int
    refused: Mapping[str, int]
    dead: Mapping[str, int]
    tokens: int
    padded_tokens: int
    oldest_wait_ns: int


def facts_of(reason: str, prefix: Sequence[Entry], groups: Sequence[Group], now: Now) -> RouteFacts:
    """The facts of a plan that covers this prefix."""
    refused = Counter(e.content.code for e in prefix if isinstance(e.content, Refusal))
    dead = Counter(e.content.code for e in prefix if isinstance(e.content, DeadLetter))
    return RouteFacts(
        reason=reason,
        items=sum(len(group.items) for group in groups),
        groups=len(groups),
        refused=refused,
        dead=dead,
        tokens=sum(group.tokens for group in groups),
        padded_tokens=sum(group.padded_tokens for group in groups),
        oldest_wait_ns=max((now.mono_ns - entry.arrived_ns for entry in prefix), default=0),
    )
