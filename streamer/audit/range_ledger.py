"""The proof of a range of single requests: each record one answer, its own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamer.audit.trail import LETTERED, LOST_IN_ROUTE, LOST_IN_WORK, Origin, Trail
from streamer.audit.verdict import Verdict
from streamer.event.digest import input_digest
from streamer.event.records import InferenceRequest
from streamer.event.request_input import canonical_json
from streamer.event.result_item import ResultItem


@dataclass(slots=True)
class _Asked:
    custom_id: str
    model: str
    digest: bytes
    answers: int = 0


class RangeLedger:
    """Requests without a job between two sets of offsets, and their answers.

    Args:
        subject: how the range is called.
        trail: complete before the first request is added.
        ends: offsets up to which the answers were read, by requests partition; the range's end.
    """

    def __init__(self, subject: str, trail: Trail, ends: Mapping[int, int]) -> None:
        self._trail = trail
        self._ends = ends
        self._asked: dict[Origin, _Asked] = {}
        self.verdict = Verdict(subject=subject)

    def add_request(self, origin: Origin, request: InferenceRequest) -> None:
        """A committed request record; one that belongs to a job is passed over."""
        if request.job_id is not None:
            return
        work = self._trail.work_of(origin)
        if work is None:
            params = canonical_json(dict(request.params))
            digest = input_digest(request.task or "", request.input_canonical, params)
        else:
            digest = input_digest(work.task, request.input_canonical, work.params)
        self._asked[origin] = _Asked(request.custom_id, request.model, digest)

    def add_reply(self, row: ResultItem) -> None:
        """A committed answer; one whose origin lies outside the range is passed over."""
        asked = self._asked.get((row.origin[1], row.origin[2]))
        if asked is None:
            return
        asked.answers += 1
        where = f"request {row.origin[1]}:{row.origin[2]}"
        if asked.answers > 1:
            self.verdict.duplicated += 1
            self.verdict.problem(f"{where} is answered again")
            return
        self.verdict.count(row.status)
        if (row.status == "succeeded") != (row.output is not None):
            self.verdict.problem(f"{where}: state {row.status} does not fit its answer")
        if row.custom_id != asked.custom_id:
            self.verdict.problem(f"{where}: the answer has the custom_id of another request")
        elif row.input_digest != asked.digest:
            self.verdict.problem(f"{where}: the answer has the digest of another input")
        elif row.model != asked.model:
            self.verdict.problem(f"{where}: answered by another model than asked for")

    def close(self) -> Verdict:
        """Judge what is missing, and give the verdict."""
        verdict = self.verdict
        verdict.items = len(self._asked)
        verdict.repeated_results = self._trail.repeated_results
        for origin, asked in self._asked.items():
            if asked.answers:
                continue
            fate = self._trail.fate(origin)
            if fate == LETTERED:
                continue
            if fate in (LOST_IN_ROUTE, LOST_IN_WORK):
                verdict.lost += 1
                verdict.problem(f"request {origin[0]}:{origin[1]} has no answer: {fate}")
            else:
                verdict.pending += 1
        if verdict.pending:
            verdict.problem(f"{verdict.pending} requests are not answered yet")
        for letter in self._trail.letters:
            if letter.offset < self._ends.get(letter.partition, 0):
                verdict.letter(letter.text())
        return verdict
