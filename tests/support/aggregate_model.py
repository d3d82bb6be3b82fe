"""What must hold of aggregate, told by somebody who knows only the logs.

Shares no code with ``streamer.reassemble``: the first row in the log under an index is the answer,
outputs are 0, 1, 2, … and then one completion, digests are written out again.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field

from streamer.event import wire
from streamer.event.lane import TopicPartition
from streamer.event.records import Completion, OutputRun
from tests.support.aggregate_world import JOBS, OUTPUTS, AggregateWorld
from tests.support.results import Row


@dataclass
class Told:
    """Everything that was written about one job."""

    rows: list[tuple[int, Row]] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    deadlines: list[int] = field(default_factory=list)
    opened_ms: int = 0
    cancelled: bool = False
    # High watermark of the first question asked when the job might be closed, and answered.
    closable_from: int | None = None

    def first(self, index: int) -> tuple[int, Row] | None:
        """The first row in the log under an index."""
        return next(((offset, row) for offset, row in self.rows if row.index == index), None)


@dataclass
class Seen:
    """What a reader of the outputs has seen of one job so far."""

    count: int = 0
    digest: bytes = bytes(16)
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    origins: int = -1
    names: set[str] = field(default_factory=set)
    completion: Completion | None = None


class AggregateModel:
    """Checks a world after each step.

    Args:
        world: what is checked.
    """

    def __init__(self, world: AggregateWorld) -> None:
        self.world = world
        self.told: dict[str, Told] = {}
        self.seen: dict[str, Seen] = {}
        self._read: dict[TopicPartition, int] = {}

    def about(self, job_id: str) -> Told:
        """What was told of a job; asking opens it."""
        told = self.told.setdefault(job_id, Told())
        if told.opened_ms == 0:
            told.opened_ms = self.world.wall_ms
        return told

    def closable(self, number: int) -> list[str]:
        """Jobs of a partition that a high watermark asked for now may close."""
        limits = self.world.limits.deadlines
        found = []
        for job_id, told in self.told.items():
            due = min([*told.deadlines, told.opened_ms + limits.default_ms]) + limits.grace_ms
            is_due = told.cancelled or self.world.wall_ms >= due
            if is_due and self.world.partition_of(job_id) == number:
                found.append(job_id)
        return found

    def answered(self, job_ids: list[str], high: int) -> None:
        """The high watermark that was asked for when these jobs were closable is answered."""
        for job_id in job_ids:
            told = self.told[job_id]
            if told.closable_from is None:
                told.closable_from = high

    def check(self) -> None:
        """Read what was committed since the last check, and look at the marks."""
        for at, log in list(self.world.logs.items()):
            if at.topic != OUTPUTS:
                continue
            for record in log.between(self._read.get(at, 0), log.end):
                assert record.value is not None
                self._output(wire.decode_output(record.value))
            self._read[at] = log.end
        for job_id, told in self.told.items():
            self._mark_is_low_enough(job_id, told)

    def _output(self, output: OutputRun | Completion) -> None:
        assert output.job_id is not None
        seen = self.seen.setdefault(output.job_id, Seen())
        assert seen.completion is None, "something follows the completion"
        told = self.told[output.job_id]
        if isinstance(output, Completion):
            seen.completion = output
            assert output.total == seen.count
            assert output.digest == seen.digest
            assert list(output.counts.values()) == seen.counts
            if output.status == "completed":
                assert output.total in told.totals
            return
        data = b"" if output.outputs is None else output.outputs.data
        for at, index in enumerate(output.items.index.tolist()):
            assert index == seen.count, "a gap, a repeat or a step back"
            row = self._row(told, index, output.items.custom_id[at])
            answer = b"" if row is None else row.answer
            assert data[: len(answer)] == answer, "the answer of somebody else"
            data = data[len(answer) :]
            self._count(seen, row, int(output.status[at]), index)
        assert data == b""
        assert output.digest == seen.digest

    def _row(self, told: Told, index: int, custom_id: str) -> Row | None:
        first = told.first(index)
        if custom_id == "":
            assert told.closable_from is not None, "a hole in a job that nobody may close"
            assert first is None or first[0] >= told.closable_from, "a row was passed over"
            return None
        assert first is not None
        assert first[1].custom_id == custom_id, "not the first in the log"
        return first[1]

    @staticmethod
    def _count(seen: Seen, row: Row | None, status: int, index: int) -> None:
        digest, answer = (bytes(16), b"") if row is None else (row.digest, row.answer)
        if row is None:
            assert status in (2, 3)
        else:
            assert status == row.status
            seen.origins = max(seen.origins, row.origin[1])
            seen.names.add(row.custom_id)
        data = seen.digest + struct.pack("<qB", index, status) + digest + answer
        seen.digest = hashlib.blake2b(data, digest_size=16).digest()
        seen.counts[status] += 1
        seen.count += 1

    def _mark_is_low_enough(self, job_id: str, told: Told) -> None:
        seen = self.seen.get(job_id, Seen())
        letters = {letter.custom_id for letter in self.world.letters_of(job_id)}
        assert not letters & seen.names, "a dead letter for a request that was answered"
        if seen.completion is not None:
            return
        mark = self.world.committed[self.world.partition_of(job_id)]
        for index in {row.index for _, row in told.rows if row.index >= seen.count}:
            first = told.first(index)
            assert first is not None
            offset, row = first
            assert offset >= mark or row.custom_id in letters, "the mark passed a waiting row"

    def check_the_end(self) -> None:
        """After all was healed, read and every deadline has passed."""
        world = self.world
        for job_id, told in self.told.items():
            seen = self.seen[job_id]
            assert seen.completion is not None, f"{job_id} never ended"
            assert (seen.completion.status == "completed") or told.closable_from is not None
            lost = {letter.custom_id for letter in world.letters_of(job_id)}
            for _, row in told.rows:
                first = told.first(row.index)
                assert first is not None
                is_known = row.custom_id in seen.names or row.custom_id in lost
                is_repeat = row.text == first[1].text or row.origin[1] <= seen.origins
                assert is_known or is_repeat, f"{row.custom_id} vanished"
        for number, mark in world.committed.items():
            assert mark == world.position[number]
            assert world.live_keys(JOBS, number) == {}
