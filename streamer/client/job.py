"""A job as its submitter sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamer.client.errors import JobUnknown, WaitTimeout
from streamer.client.kafka_jobs import JobKnown, JobName, StateFollower
from streamer.client.kafka_results import JobReader
from streamer.client.kafka_submit import Sending, now_ms
from streamer.client.result_item import ResultItem
from streamer.event.codes import JOB_OPEN, STATUSES
from streamer.event.records import JobEntry, JobState

if TYPE_CHECKING:
    from streamer.client.client import Client

_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is.

    Attributes:
        state: ``open``, ``completed``, ``expired`` or ``cancelled``.
        total: items of the job; -1 while nobody said.
        final: rows that are final and readable, in order from index 0.
        succeeded, errored, expired, cancelled: of the final rows.
        deadline_at_ms: Unix time; 0 while unknown.
        reason: why the job was closed, if there is more to say than its state.
    """

    job_id: str
    lane: str
    state: str
    total: int
    final: int
    succeeded: int
    errored: int
    expired: int
    cancelled: int
    deadline_at_ms: int = 0
    reason: str = ""

    @property
    def closed(self) -> bool:
        """Whether nothing will be added."""
        return self.state != JOB_OPEN


class Job:
    """One submitted job; get it from ``Client.submit`` or ``Client.job``.

    Args:
        client: where it lives.
        name: which.
        known: what was said about it when this object was made.
        sending: its sender, while it is being sent from here.
    """

    def __init__(
        self, client: Client, name: JobName, known: JobKnown, sending: Sending | None = None
    ) -> None:
        self._client = client
        self._known = known
        self._follower: StateFollower | None = None
        self.name = name
        self.sending = sending

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.name.job_id

    @property
    def total(self) -> int:
        """Items of the job; -1 while nobody said."""
        return self._known.total

    def reader(self, start: int = 0) -> JobReader:
        """A reader of the output from index ``start`` on, for callers with their own loop."""
        board = self._client.board
        place = board.place(self._client.names.outputs(self.name.lane), self.name)
        offset = board.start_of(place, self._known.since_ms)
        return JobReader(
            self._client.properties,
            place,
            offset,
            self.name,
            start=start,
            start_trimmed=offset > 0 and offset == self._client.reader.watermarks(place)[0],
        )

    def results(self, start: int = 0, timeout_s: float | None = None) -> Iterator[ResultItem]:
        """All rows from index ``start`` on, in order, each as soon as it is final.

        Ends when the job is closed and its last row was read.

        Args:
            start: first index.
            timeout_s: longest wait for the next row; None waits as long as the job is open (every
                job has a deadline).

        Raises:
            WaitTimeout: nothing came for ``timeout_s`` seconds.
            OutputsGone: rows were deleted by retention before they were read.
            OutputsBroken: a row is missing; ``streamer audit`` tells more.
        """
        reader = self.reader(start)
        try:
            waiting_since = time.monotonic()
            while True:
                rows = reader.poll(_POLL_S)
                yield from rows
                if reader.completion is not None:
                    return
                if rows:
                    waiting_since = time.monotonic()
                elif timeout_s is not None and time.monotonic() - waiting_since > timeout_s:
                    raise WaitTimeout(
                        f"job {self.job_id}: no row after {reader.next_index} for {timeout_s:g} s"
                    )
                if self.sending is not None:
                    self.sending.check()
        finally:
            reader.close()

    def progress(self) -> Progress:
        """How far the job is now; reads only what changed since the last call.

        Raises:
            JobUnknown: the topics know nothing of it.
        """
        state = self.state()
        if state is None:
            if not self._known.entries:
                self._known = self._client.board.known(self.name)
            if not self._known.entries:
                raise JobUnknown(
                    f"no job {self.job_id} in lane {self.name.lane} (tenant {self.name.tenant})"
                )
            state = JobState(lane=self.name.lane, tenant=self.name.tenant, job_id=self.job_id)
        counts = {status: int(state.counts.get(status, 0)) for status in STATUSES}
        return Progress(
            job_id=self.job_id,
            lane=self.name.lane,
            state=state.closed or JOB_OPEN,
            total=state.total if state.total >= 0 else self._known.total,
            final=state.next_index,
            deadline_at_ms=state.deadline_at_ms,
            reason=state.closed_reason,
            **counts,
        )

    def wait(
        self, timeout_s: float | None = None, on_progress: Callable[[Progress], None] | None = None
    ) -> Progress:
        """Wait until the job is closed.

        Raises:
            WaitTimeout: it is still open after ``timeout_s`` seconds.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            progress = self.progress()
            if on_progress is not None:
                on_progress(progress)
            if progress.closed:
                return progress
            if self.sending is not None:
                self.sending.check()
            if until is not None and time.monotonic() > until:
                raise WaitTimeout(
                    f"job {self.job_id} is open after {timeout_s:g} s with {progress.final} of "
                    f"{progress.total} rows final"
                )
            time.sleep(_POLL_S)

    def cancel(self) -> None:
        """Ask that the job be closed; rows final by then stay, the others become ``cancelled``."""
        entry = JobEntry(
            lane=self.name.lane,
            tenant=self.name.tenant,
            job_id=self.job_id,
            kind="cancel",
            created_at_ms=now_ms(),
        )
        writer = self._client.writer(self.name)
        try:
            writer.say(entry)
        finally:
            writer.close()

    def state(self) -> JobState | None:
        """What aggregate last said of the job; None before its first row is final."""
        if self._follower is None:
            board = self._client.board
            place = board.place(self._client.names.job_state(self.name.lane), self.name)
            start = board.start_of(place, self._known.since_ms)
            self._follower = StateFollower(self._client.reader, place, start, self.name)
        return self._follower.newest()
