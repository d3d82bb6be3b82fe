"""The thread that carries out emission plans, one at a time, while the owner thread polls on.

It never touches the consumer: the owner hands over the group metadata with the plan.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from streamer.clock import Clock
from streamer.deadline import Deadline
from streamer.emit.kafka_ring import Outcome, ProducerRing
from streamer.errors import StreamerError
from streamer.event.lane import EmitPlan

_STUCK_NS: Final = 5_000_000_000
_LOST_NS: Final = 60_000_000_000


@dataclass(frozen=True, slots=True)
class Ended:
    """An emission and how it ended; ``seconds`` from handing over to the known outcome."""

    plan: EmitPlan
    outcome: Outcome
    seconds: float


@dataclass(frozen=True, slots=True)
class _Job:
    plan: EmitPlan
    group_metadata: object
    since_ns: int


class CommitThread:
    """At most one plan is inside, from ``submit`` until ``collect`` takes its end out.

    Args:
        name: shown in thread lists.
        ring: used by this thread alone once it runs.
        clock: source of time.
    """

    def __init__(self, *, name: str, ring: ProducerRing, clock: Clock) -> None:
        self._name = name
        self._ring = ring
        self._clock = clock
        self._changed = threading.Condition()
        self._job: _Job | None = None
        self._ended: Ended | None = None
        self._failure: BaseException | None = None
        self._stopping = False
        self._busy_since_ns: int | None = None
        self._thread = threading.Thread(target=self._run, name=f"{name}-commit", daemon=True)

    def start(self) -> None:
        """Start; the ring is initialised before."""
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a plan is inside."""
        return self._job is not None or self._ended is not None

    def submit(self, plan: EmitPlan, group_metadata: object) -> None:
        """Hand over a plan; nothing may be inside."""
        with self._changed:
            if self.busy:
                raise AssertionError("a plan is still inside")
            self._job = _Job(plan, group_metadata, self._clock.monotonic_ns())
            self._changed.notify_all()

    def collect(self, timeout_s: float = 0.0) -> Ended | None:
        """Take the end of the plan out, waiting for it; None when it is not there yet.

        Raises:
            BaseException: what ended the thread.
        """
        with self._changed:
            if timeout_s > 0 and self._job is not None:
                self._changed.wait_for(self._has_ended, timeout_s)
            if self._failure is not None:
                raise self._failure
            self._check_lost()
            ended, self._ended = self._ended, None
            return ended

    def _check_lost(self) -> None:
        """A call of the client that never returns cannot be ended: only the process can."""
        job, since = self._job, self._busy_since_ns
        if job is None or since is None or self._ring.is_rebuilding:
            return
        if self._clock.monotonic_ns() - since > _LOST_NS:
            raise StreamerError(f"{self._name}: a transaction has not ended for a minute")

    def is_moving(self) -> bool:
        """Whether it lives and no plan has been inside for longer than 5 s."""
        since = self._busy_since_ns
        if self._failure is not None or not self._thread.is_alive():
            return False
        return since is None or self._clock.monotonic_ns() - since < _STUCK_NS

    def stop(self, deadline: Deadline) -> bool:
        """End the thread; False when it is still inside a call of the client."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._ring.close()
        if self._thread.is_alive():
            self._thread.join(deadline.remaining_s(self._clock.monotonic_ns()))
        if self._thread.is_alive():
            return False
        self._ring.drop()
        return True

    def _has_ended(self) -> bool:
        return self._job is None or self._failure is not None

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _serve(self) -> None:
        wait_s = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._job is not None or self._stopping, wait_s)
                if self._stopping:
                    return
                job = self._job
            self._busy_since_ns = self._clock.monotonic_ns()
            if job is None:
                wait_s = self._ring.tick()
            else:
                outcome = self._ring.emit(job.plan, job.group_metadata)
                wait_s = 0.0
                seconds = (self._clock.monotonic_ns() - job.since_ns) / 1e9
                with self._changed:
                    self._job, self._ended = None, Ended(job.plan, outcome, seconds)
                    self._changed.notify_all()
            self._busy_since_ns = None
