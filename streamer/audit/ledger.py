"""The proof of one job from its topics: every accepted item one row, in its place, its own.

Pure, and written apart from the aggregator: it is told what lies in the topics and recomputes.
Feed order: the trail (work, results, letters) first, then requests, then the output in log order,
then ask for the verdict.

    requests ──► expected digest, name, model of each index      (first record in the log, or a
                                                                   repeat of it, may be the origin)
    outputs  ──► 0, 1, 2, … total-1 | completion                 digest chain recomputed row by row
"""

from __future__ import annotations

from dataclasses import dataclass

from streamer.audit.trail import LETTERED, PENDING, RESULTED, Origin, Trail
from streamer.audit.verdict import Verdict
from streamer.event.codes import STATUSES
from streamer.event.digest import START, input_digest, running_digest
from streamer.event.records import Completion, InferenceRequest
from streamer.event.request_input import canonical_json
from streamer.event.result_item import ResultItem

NO_DIGEST = bytes(16)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a request record says its row must look like."""

    origin: Origin
    custom_id: str
    model: str
    digest: bytes


class JobLedger:
    """See the head of this file.

    Args:
        job_id: the job.
        trail: complete before the first row is added.
    """

    def __init__(self, job_id: str, trail: Trail) -> None:
        self._trail = trail
        self._asked: dict[int, list[_Asked]] = {}
        self._rows = 0
        self._seen: set[int] = set()
        self._highest = -1
        self._digest = START
        self._chain_broken = False
        self._completion: Completion | None = None
        self._unasked: list[int] = []
        self._holes: list[int] = []
        self.verdict = Verdict(subject=f"job {job_id}")

    def add_request(self, origin: Origin, request: InferenceRequest) -> None:
        """A committed request record of the job."""
        assert request.index is not None
        asked = _Asked(origin, request.custom_id, request.model, self._expected(origin, request))
        self._asked.setdefault(request.index, []).append(asked)

    def add_row(self, row: ResultItem, run_digest: bytes = b"") -> None:
        """The next row of the job in its output.

        Args:
            row: the row.
            run_digest: the digest that its run claims after this row; empty when it claims none.
        """
        index = -1 if row.index is None else row.index
        verdict = self.verdict
        if self._completion is not None:
            verdict.problem(f"row {index} comes after the completion")
        if index in self._seen:
            verdict.duplicated += 1
            verdict.problem(f"row {index} is there again")
            return
        if index != self._highest + 1:
            verdict.misordered += index < self._highest
            if index < self._highest:
                verdict.problem(f"row {index} comes after row {self._highest}")
        self._seen.add(index)
        self._highest = max(self._highest, index)
        self._rows += 1
        verdict.count(row.status)
        self._check_answer(index, row)
        self._check_owner(index, row)
        self._check_chain(index, row, run_digest)

    def add_completion(self, completion: Completion) -> None:
        """The job's last record."""
        if self._completion is not None:
            self.verdict.duplicated += 1
            self.verdict.problem("the completion is there again")
            return
        self._completion = completion

    def close(self, *, state: str) -> Verdict:
        """Judge what is missing, and give the verdict.

        Args:
            state: the job's state as ``job-state`` has it, "" when that knows nothing of it.
        """
        verdict, done = self.verdict, self._completion
        verdict.state = done.status if done is not None else state or "open"
        verdict.repeated_results = self._trail.repeated_results
        if done is None:
            verdict.items = max(len(self._asked), self._rows)
            verdict.problem("the job has no completion record: it is not finished")
        else:
            verdict.items = done.total
            self._check_completion(done)
        if state and done is not None and state != done.status:
            verdict.problem(f"job-state says {state}, the completion {done.status}")
        for index in self._unasked:
            verdict.problem(f"row {index} answers a request that is not in the topic (any more)")
        self._judge_missing(done)
        self._judge_holes()
        for letter in self._trail.letters:
            verdict.letter(letter.text())
        return verdict

    def _expected(self, origin: Origin, request: InferenceRequest) -> bytes:
        """The input digest by the rule, with the parameters that route made effective."""
        work = self._trail.work_of(origin)
        if work is None:
            return input_digest(
                request.task or "", request.input_canonical, canonical_json(dict(request.params))
            )
        digest = input_digest(work.task, request.input_canonical, work.params)
        if digest != work.digest:
            self.verdict.problem(f"index {request.index}: work has the digest of another input")
        return digest

    def _check_answer(self, index: int, row: ResultItem) -> None:
        if (row.status == "succeeded") != (row.output is not None):
            self.verdict.problem(f"row {index} is {row.status}, which does not fit its answer")

    def _check_owner(self, index: int, row: ResultItem) -> None:
        """Whether the row is the answer to a request with this index."""
        if row.input_digest == NO_DIGEST:
            if row.status == "succeeded":
                self.verdict.problem(f"row {index} succeeded without an input")
            self._holes.append(index)
            return
        asked = self._asked.get(index)
        if asked is None:
            self._unasked.append(index)
            return
        origin = (row.origin[1], row.origin[2])
        found = next((one for one in asked if one.origin == origin), None)
        if found is None:
            self.verdict.problem(f"row {index} names an origin that has not this index")
        elif found.digest != row.input_digest:
            self.verdict.problem(f"row {index} has the digest of another input")
        elif found.custom_id != row.custom_id:
            self.verdict.problem(f"row {index} has the custom_id of another item")
        elif found.model != row.model:
            self.verdict.problem(f"row {index} was answered by another model than asked for")

    def _check_chain(self, index: int, row: ResultItem, run_digest: bytes) -> None:
        answer = b"" if row.output is None else row.output.tobytes()
        status = STATUSES.index(row.status) if row.status in STATUSES else 1
        self._digest = running_digest(self._digest, index, status, row.input_digest, answer)
        if run_digest and run_digest != self._digest and not self._chain_broken:
            self._chain_broken = True
            self.verdict.problem(f"the running digest after row {index} is not the recomputed one")

    def _check_completion(self, done: Completion) -> None:
        verdict = self.verdict
        if self._rows != done.total or self._highest != done.total - 1:
            verdict.problem(f"the completion says {done.total} rows, the output has {self._rows}")
        if done.digest != self._digest:
            verdict.problem("the digest of the completion is not the recomputed one")
        for status in STATUSES:
            claimed, counted = int(done.counts.get(status, 0)), getattr(verdict, status)
            if claimed != counted:
                verdict.problem(f"the completion counts {claimed} {status}, the output {counted}")

    def _judge_missing(self, done: Completion | None) -> None:
        """Indexes that were asked for and have no row."""
        for index in sorted(self._asked.keys() - self._seen):
            fates = [self._trail.fate(one.origin) for one in self._asked[index]]
            if all(fate == LETTERED for fate in fates):
                continue
            if done is not None and index >= done.total:
                # Not accepted, so not lost; but it must not vanish without a word.
                self.verdict.problem(f"index {index} is beyond the total and has no dead letter")
                continue
            if done is None and all(fate in (PENDING, RESULTED, LETTERED) for fate in fates):
                self.verdict.pending += 1
                continue
            self.verdict.lost += 1
            words = next((fate for fate in fates if fate.startswith("lost")), fates[0])
            self.verdict.problem(f"index {index} was accepted and has no row: {words}")
        if done is None and self.verdict.pending:
            self.verdict.problem(f"{self.verdict.pending} items are not answered yet")

    def _judge_holes(self) -> None:
        """Rows that aggregate filled in: right only where nothing was on its way."""
        for index in self._holes:
            fates = [self._trail.fate(one.origin) for one in self._asked.get(index, ())]
            lost = next((fate for fate in fates if fate.startswith("lost")), None)
            if lost is not None:
                self.verdict.lost += 1
                self.verdict.problem(f"index {index} was closed without an answer: {lost}")
