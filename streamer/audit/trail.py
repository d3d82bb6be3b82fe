"""What the topics show of each accepted item between its request and its answer.

Everything is keyed by *origin*: partition and offset of the request record. An item's fate tells
whether it may still be answered, or was lost, and where: a committed offset that passed it while
nothing it should have become is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

Origin = tuple[int, int]
Place = tuple[str, int]

# Fates of an item that has no terminal record.
PENDING = "pending"
LOST_IN_ROUTE = "lost in route"
LOST_IN_WORK = "lost in work"
LETTERED = "dead letter"
RESULTED = "has a result"


class WorkSeen(NamedTuple):
    """The work record that an item became part of."""

    topic: str
    partition: int
    offset: int
    digest: bytes
    task: str
    params: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSeen:
    """A dead letter: where the record came from, and why it is one."""

    topic: str
    partition: int
    offset: int
    stage: str
    code: str
    job_id: str | None
    index: int

    def text(self) -> str:
        """One line for people."""
        job = "" if self.job_id is None else f" (job {self.job_id}, index {self.index})"
        return f"{self.topic}[{self.partition}]@{self.offset} {self.stage}: {self.code}{job}"


class Trail:
    """Work, results and dead letters by origin, and the committed offsets of route and work.

    Args:
        route: committed offsets of route's group by requests partition.
        work: committed offsets of work's group by (topic, partition).
    """

    def __init__(self, route: Mapping[int, int], work: Mapping[Place, int]) -> None:
        self._route = route
        self._work_offsets = work
        self._work: dict[Origin, WorkSeen] = {}
        self._results: dict[Origin, int] = {}
        self._letters: dict[Origin, LetterSeen] = {}
        self.letters: list[LetterSeen] = []

    def add_work(self, origin: Origin, seen: WorkSeen) -> None:
        """An item stands in a committed work record."""
        self._work[origin] = seen

    def add_result(self, origin: Origin) -> None:
        """An item stands in a committed result record that is not a carried copy."""
        self._results[origin] = self._results.get(origin, 0) + 1

    def add_letter(self, letter: LetterSeen, requests: str) -> None:
        """A dead letter is committed; ``requests`` is the name of the topic of origins."""
        self.letters.append(letter)
        if letter.topic == requests:
            self._letters[(letter.partition, letter.offset)] = letter

    def work_of(self, origin: Origin) -> WorkSeen | None:
        """The work record of an item, if it became one."""
        return self._work.get(origin)

    def letter_of(self, origin: Origin) -> LetterSeen | None:
        """The dead letter of an item, if it became one."""
        return self._letters.get(origin)

    @property
    def repeated_results(self) -> int:
        """Results beyond the first of an item: aggregate drops them, raw readers see them."""
        return sum(count - 1 for count in self._results.values() if count > 1)

    def fate(self, origin: Origin) -> str:
        """What became of an item that has no terminal record."""
        if origin in self._letters:
            return LETTERED
        if origin in self._results:
            return RESULTED
        work = self._work.get(origin)
        if work is not None:
            passed = self._work_offsets.get((work.topic, work.partition), -1) > work.offset
            return LOST_IN_WORK if passed else PENDING
        return LOST_IN_ROUTE if self._route.get(origin[0], -1) > origin[1] else PENDING
