"""The list of what was put in, and the verdict over what came out.

Pure, and independent of the service: it shares no code with the aggregator, knows nothing of
transactions, and believes neither the counters nor the completion record of the service.
``kafka_ledger`` reads the topics and feeds it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

STATUSES = ("succeeded", "errored", "expired", "cancelled")
PROBLEMS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """One item as it was sent.

    Attributes:
        text_hash: hash of the input, for finding two items whose answers were swapped.
        vector: the expected answer, when the engine's is known (fake engine).
        status: the expected state; "" accepts any.
    """

    custom_id: str
    text_hash: bytes = b""
    vector: NDArray[np.float32] | None = None
    status: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One row as a reader of the output topic saw it, in the order of the log."""

    job_id: str | None
    index: int | None
    custom_id: str
    status: str
    vector: NDArray[np.float32] | None = None
    error_code: str = ""


@dataclass(slots=True, kw_only=True)
class Report:
    """Verdict over one job, or over all single requests.

    Attributes:
        lost: items put in without a row.
        duplicated: rows beyond the first of an item.
        misordered: rows that came before a lower index of their job.
        wrong: rows whose name, state or vector is not the item's.
        foreign: rows of items that were never put in.
    """

    items: int = 0
    rows: int = 0
    states: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    duplicated: int = 0
    misordered: int = 0
    wrong: int = 0
    foreign: int = 0
    completed: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether each item has exactly one row, right and in its place."""
        return not (self.lost or self.duplicated or self.misordered or self.wrong or self.foreign)

    def note(self, problem: str) -> None:
        """Keep the first problems in words."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


class Ledger:
    """What was put in.

    Args:
        tolerance: largest absolute difference of a vector's values from the expected ones.
    """

    def __init__(self, tolerance: float = 0.0) -> None:
        self._tolerance = tolerance
        self._jobs: dict[str, dict[int, Put]] = {}
        self._single: dict[str, Put] = {}

    def put(self, job_id: str, index: int, item: Put) -> None:
        """Note a job item; a repeated (job, index) keeps the first, as the service must."""
        self._jobs.setdefault(job_id, {}).setdefault(index, item)

    def put_single(self, item: Put) -> None:
        """Note a request without a job; its ``custom_id`` must be unique in this ledger."""
        if item.custom_id in self._single:
            raise ValueError(f"custom_id {item.custom_id!r} is in the ledger already")
        self._single[item.custom_id] = item

    @property
    def jobs(self) -> Mapping[str, Mapping[int, Put]]:
        """Items by job and index."""
        return self._jobs

    def check_job(self, job_id: str, rows: Iterable[Seen], completions: int = 1) -> Report:
        """Judge the rows of one job.

        Args:
            job_id: which.
            rows: in log order; rows of other jobs are passed over.
            completions: completion records seen for the job; anything but one is a problem.
        """
        wanted = self._jobs.get(job_id, {})
        report = Report(items=len(wanted), completed=completions)
        seen: set[int] = set()
        highest = -1
        for row in rows:
            if row.job_id != job_id:
                continue
            index = -1 if row.index is None else row.index
            report.rows += 1
            if index in seen:
                report.duplicated += 1
                report.note(f"{job_id}: index {index} has a second row")
                continue
            seen.add(index)
            if index < highest:
                report.misordered += 1
                report.note(f"{job_id}: index {index} comes after {highest}")
            highest = max(highest, index)
            self._judge(report, wanted.get(index), row, f"{job_id}: index {index}")
        self._count_lost(report, [n for n in wanted if n not in seen], job_id)
        if completions != 1:
            report.wrong += 1
            report.note(f"{job_id}: {completions} completion records, expected one")
        return report

    def check_single(self, rows: Iterable[Seen]) -> Report:
        """Judge the answers of all requests without a job; answers to others are passed over."""
        report = Report(items=len(self._single))
        seen: set[str] = set()
        for row in rows:
            if row.job_id is not None or row.custom_id not in self._single:
                continue
            report.rows += 1
            if row.custom_id in seen:
                report.duplicated += 1
                report.note(f"request {row.custom_id} has a second answer")
                continue
            seen.add(row.custom_id)
            self._judge(report, self._single[row.custom_id], row, f"request {row.custom_id}")
        self._count_lost(report, [n for n in self._single if n not in seen], "requests")
        return report

    def _judge(self, report: Report, item: Put | None, row: Seen, where: str) -> None:
        report.states[row.status] += 1
        if item is None:
            report.foreign += 1
            report.note(f"{where}: was never put in")
            return
        problem = self._mismatch(item, row)
        if problem:
            report.wrong += 1
            report.note(f"{where}: {problem}")

    def _mismatch(self, item: Put, row: Seen) -> str:
        """What is not the item's about the row, or ""."""
        if row.custom_id != item.custom_id:
            return f"custom_id is {row.custom_id!r}, not {item.custom_id!r}"
        if row.status not in STATUSES:
            return f"state {row.status!r} is none"
        if item.status and row.status != item.status:
            return f"state is {row.status} ({row.error_code}), not {item.status}"
        if (row.status == "succeeded") != (row.vector is not None) and item.vector is not None:
            return "an answer without success, or success without an answer"
        if item.vector is None or row.vector is None:
            return ""
        if row.vector.shape != item.vector.shape:
            return f"vector of shape {row.vector.shape}, not {item.vector.shape}"
        if not np.all(np.isfinite(row.vector)):
            return "vector is not finite"
        furthest = float(np.max(np.abs(row.vector - item.vector), initial=0.0))
        return "" if furthest <= self._tolerance else f"vector differs by {furthest:g}"

    @staticmethod
    def _count_lost(report: Report, lost: list[int] | list[str], where: str) -> None:
        report.lost = len(lost)
        if lost:
            report.note(f"{where}: no row for {lost[:10]}{' ...' if len(lost) > 10 else ''}")


def text_hash(text: str) -> bytes:
    """16 bytes that name an input."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def swapped(items: Mapping[int, Put], rows: Iterable[Seen]) -> list[tuple[int, int]]:
    """Pairs (index, index of the item whose vector it carries) among rows with wrong vectors.

    Only for expected vectors that are all different.
    """
    owner = {
        item.vector.tobytes(): index for index, item in items.items() if item.vector is not None
    }
    found = []
    for row in rows:
        if row.index is None or row.vector is None:
            continue
        right = owner.get(row.vector.astype(np.float32).tobytes())
        if right is not None and right != row.index:
            found.append((row.index, right))
    return found
