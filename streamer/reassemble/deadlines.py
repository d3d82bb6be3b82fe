"""When a job is due, and the read-up that must come before it is closed.

A job that is due (or asked to be cancelled) closes only after its partition was read to a high
watermark fetched later than that moment: every result appended by then counts. Judged on this
process's wall clock, moved forward by the newest LogAppendTime read, so a clock that lags behind
the brokers' does not keep a job open; ``grace_ms`` is the allowance for one that runs ahead.

    wanted ──question asked──► asked, target = high watermark ──position >= target──► close
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from streamer.reassemble.job import Event, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineLimits:
    """How long a job may last.

    Attributes:
        default_ms: deadline of a job that names none, from the first thing seen of it.
        longest_ms: a later deadline is cut to this.
        grace_ms: added before a job expires.
    """

    default_ms: int
    longest_ms: int
    grace_ms: int


def deadline_of(job: Job, limits: DeadlineLimits) -> int:
    """Unix ms at which the job's time is over (without the grace)."""
    latest = job.opened_at_ms + limits.longest_ms
    if job.deadline_at_ms > 0:
        return min(job.deadline_at_ms, latest)
    return min(job.opened_at_ms + limits.default_ms, latest)


class DeadlineQueue:
    """The open jobs of one partition by deadline; stale entries are skipped when popped."""

    __slots__ = ("_heap", "_limits")

    def __init__(self, limits: DeadlineLimits) -> None:
        self._heap: list[tuple[int, bytes]] = []
        self._limits = limits

    def note(self, job: Job) -> None:
        """Queue the job under its present deadline, when that moved earlier or is new."""
        deadline = deadline_of(job, self._limits)
        if job.deadline_queued != deadline:
            job.deadline_queued = deadline
            heapq.heappush(self._heap, (deadline, job.key))

    def due(self, jobs: dict[bytes, Job], wall_ms: int) -> Iterator[Job]:
        """Take the open jobs whose deadline and grace have passed."""
        heap = self._heap
        while heap and heap[0][0] + self._limits.grace_ms <= wall_ms:
            deadline, key = heapq.heappop(heap)
            job = jobs.get(key)
            if job is not None and job.deadline_queued == deadline:
                yield job

    def next_ms(self) -> int | None:
        """Unix ms at which ``due`` may yield something next."""
        return self._heap[0][0] + self._limits.grace_ms if self._heap else None


class ReadUp:
    """Which jobs wait for their partition to be read far enough to close them."""

    __slots__ = ("_asked", "_target", "_wanted")

    def __init__(self) -> None:
        self._wanted: dict[bytes, tuple[Event, int]] = {}
        self._asked: dict[bytes, Event] = {}
        self._target = -1

    def want(self, key: bytes, why: Event, since_ns: int) -> None:
        """Job ``key`` is to be closed; ``since_ns`` is when that became so."""
        if key not in self._asked:
            self._wanted.setdefault(key, (why, since_ns))

    def wants_watermark(self) -> bool:
        """Whether a fresh high watermark is needed."""
        return bool(self._wanted) and not self._asked

    def answered(self, high: int, asked_ns: int) -> None:
        """A high watermark that was asked for at ``asked_ns`` (monotonic)."""
        if self._asked:
            return
        self._asked = {key: why for key, (why, since) in self._wanted.items() if since <= asked_ns}
        for key in self._asked:
            del self._wanted[key]
        self._target = high

    def finished(self, position: int) -> dict[bytes, Event]:
        """Take the jobs whose read-up is done at read position ``position``."""
        if not self._asked or position < self._target:
            return {}
        done, self._asked = self._asked, {}
        return done
