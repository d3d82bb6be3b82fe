"""A good history of a job, for audits; tests spoil a copy of it."""

from __future__ import annotations

import numpy as np

from streamer.audit.ledger import NO_DIGEST, JobLedger
from streamer.audit.trail import LetterSeen, Trail, WorkSeen
from streamer.audit.verdict import Verdict
from streamer.event.codes import STATUSES
from streamer.event.digest import START, input_digest, running_digest
from streamer.event.records import Completion, InferenceRequest, InputRow, Receipt
from streamer.event.request_input import canonical_input
from streamer.event.result_item import ItemFailure, ResultItem

JOB, REQUESTS, WORK = "job-1", "requests.bulk", ("work.m.bulk", 0)
PARAMS = '{"normalize":true}'


def request(index: int | None, text: str | None = None) -> InferenceRequest:
    rows = (InputRow(text=text or f"text {index}"),)
    return InferenceRequest(
        custom_id=f"c{index}", model="m", rows=rows, job_id=None if index is None else JOB,
        index=index, input_canonical=canonical_input(rows, is_list=False),
    )  # fmt: skip


def digest_of(asked: InferenceRequest) -> bytes:
    return input_digest("embed", asked.input_canonical, PARAMS)


def row_of(asked: InferenceRequest, origin: tuple[int, int], **changes: object) -> ResultItem:
    fields: dict[str, object] = {
        "custom_id": asked.custom_id, "job_id": asked.job_id, "index": asked.index,
        "status": "succeeded", "model": "m", "kind": "embedding",
        "output": np.array([asked.index or 0, 1], np.float32), "labels": None, "error": None,
        "usage": {}, "truncated": False, "origin": (REQUESTS, *origin),
        "input_digest": digest_of(asked), "receipt": Receipt(),
    }  # fmt: skip
    return ResultItem(**{**fields, **changes})  # type: ignore[arg-type]


def hole(index: int, status: str = "expired") -> ResultItem:
    failure = ItemFailure(code=status, message="", retryable=True)
    return row_of(
        request(index), (-1, -1), status=status, output=None, error=failure, custom_id="",
        input_digest=NO_DIGEST, kind="",
    )  # fmt: skip


def chain(rows: list[ResultItem]) -> bytes:
    digest = START
    for row in rows:
        answer = b"" if row.output is None else row.output.tobytes()
        digest = running_digest(
            digest, row.index or 0, STATUSES.index(row.status), row.input_digest, answer
        )
    return digest


class History:
    """A job of n items, all answered, every record committed; tests spoil a copy of it."""

    def __init__(self, count: int = 6) -> None:
        self.origins = {n: (n % 2, n) for n in range(count)}
        self.requests = [(self.origins[n], request(n)) for n in range(count)]
        self.work = {
            self.origins[n]: WorkSeen(*WORK, n, digest_of(request(n)), "embed", PARAMS)
            for n in range(count)
        }
        self.results = list(self.origins.values())
        self.letters: list[LetterSeen] = []
        self.rows = [row_of(request(n), self.origins[n]) for n in range(count)]
        self.completions: list[Completion] | None = None
        self.route = {0: 100, 1: 100}
        self.work_committed = {WORK: 100}
        self.state = "completed"

    def completion(self, status: str = "completed") -> Completion:
        counts = {name: sum(row.status == name for row in self.rows) for name in STATUSES}
        return Completion(
            lane="bulk", tenant="default", job_id=JOB, form="avro", status=status,
            total=len(self.rows), counts=counts, digest=chain(self.rows),
        )  # fmt: skip

    def audit(self) -> Verdict:
        trail = Trail(self.route, self.work_committed)
        for origin, seen in self.work.items():
            trail.add_work(origin, seen)
        for origin in self.results:
            trail.add_result(origin)
        for letter in self.letters:
            trail.add_letter(letter, REQUESTS)
        ledger = JobLedger(JOB, trail)
        for origin, asked in self.requests:
            ledger.add_request(origin, asked)
        digest = START
        for row in self.rows:
            answer = b"" if row.output is None else row.output.tobytes()
            status = STATUSES.index(row.status)
            digest = running_digest(digest, row.index or 0, status, row.input_digest, answer)
            ledger.add_row(row, digest)
        for done in [self.completion()] if self.completions is None else self.completions:
            ledger.add_completion(done)
        return ledger.close(state=self.state)

    def letter(self, index: int, code: str) -> LetterSeen:
        partition, offset = self.origins.get(index, (0, index))
        return LetterSeen(
            topic=REQUESTS, partition=partition, offset=offset, stage="aggregate", code=code,
            job_id=JOB, index=index,
        )  # fmt: skip
