"""The loop that drives a lane's core: one owner thread (poll + core), one commit thread.

    pump ─► settle what was committed ─► hand over the next plan ─► poll ─► deliver ─► pump …

The owner thread is the only one that touches the consumer and the core; rebalance callbacks run
inside its ``poll``. It decides nothing: what to emit and when comes from the core. After anything
but a commit everything is forgotten and read again from the committed offsets.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final

from streamer.batch.kafka_source import KafkaSource
from streamer.clock import Clock
from streamer.deadline import Deadline
from streamer.emit.kafka_ring import Outcome, ProducerRing
from streamer.event.lane import (
    Assignment,
    EmitPlan,
    LaneCore,
    Now,
    PositionFollower,
    TopicPartition,
)
from streamer.process.commit_thread import CommitThread
from streamer.process.crash_points import no_crash
from streamer.process.custody import Custody
from streamer.process.lane_hooks import LaneHooks, LoopLimits, LoopObserver, NoHooks, NoObserver

_STUCK_NS: Final = 5_000_000_000
_START_MS: Final = 60_000
_log = logging.getLogger(__name__)

__all__ = ["LaneHooks", "LaneLoop", "LoopLimits", "NoHooks"]


class LaneLoop:
    """Feeds a core with what Kafka delivers and carries out its plans.

    Args:
        name: role and lane, e.g. ``work.bulk``; stands in logs and crash points.
        core: the decisions.
        source: the consumer; this loop's owner thread is the only one that touches it.
        ring: the producers; this loop's commit thread is the only one that touches them.
        clock: source of time.
        hooks: see :class:`LaneHooks`.
        limits: pace; by default that of bulk.
        observer: told facts for metrics.
        crash: called with the names of crash points (tests).
    """

    def __init__(
        self,
        *,
        name: str,
        core: LaneCore,
        source: KafkaSource,
        ring: ProducerRing,
        clock: Clock,
        hooks: LaneHooks,
        limits: LoopLimits | None = None,
        observer: LoopObserver | None = None,
        crash: Callable[[str], None] = no_crash,
    ) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self.drained = False
        self._core = core
        self._follower = core if isinstance(core, PositionFollower) else None
        self._source = source
        self._ring = ring
        self._clock = clock
        self._hooks = hooks
        self._limits = limits or LoopLimits.for_lane("bulk")
        self._observer = observer or NoObserver()
        self._crash = crash
        self._commit = CommitThread(name=name, ring=ring, clock=clock)
        self._thread = threading.Thread(target=self._run, name=f"{name}-owner", daemon=True)
        self._stopping = threading.Event()
        self._stop_deadline = Deadline(1 << 63)  # never
        self._running = False
        self._moved_ns = 0
        self._polled_ns = 0
        self._unsent: EmitPlan | None = None  # waits for group metadata
        self._orphaned = False  # the plan inside covers what is no longer ours
        self._custody = Custody(name=name, core=core, source=source, hooks=hooks, clock=clock)

    # -- from any thread -------------------------------------------------------------------

    def start(self) -> None:
        """Start both threads; producers are initialised before the first consume."""
        self._thread.start()

    def stop(self, deadline: Deadline) -> bool:
        """Drain: stop consuming, finish what is in flight, emit, leave the group.

        May be called again with an earlier deadline to hurry. Returns whether all that was in
        flight was emitted and the threads ended; what was not will be delivered again.
        """
        self.hurry(deadline)
        # Leaving the group and closing the client come after the drain.
        self._thread.join(deadline.remaining_s(self._clock.monotonic_ns()) + 5.0)
        return self.drained and not self._thread.is_alive()

    def hurry(self, deadline: Deadline) -> None:
        """Set or shorten the drain without waiting."""
        self._stop_deadline = deadline
        self._stopping.set()

    def alive(self) -> bool:
        """Whether the owner thread runs."""
        return self._thread.is_alive()

    def ready(self) -> bool:
        """Whether it has its share of the group and both threads moved within the last 5 s."""
        if not self._running or self.failure is not None or self._stopping.is_set():
            return False
        if not self._source.joined():
            return False
        return self._clock.monotonic_ns() - self._moved_ns < _STUCK_NS and self._commit.is_moving()

    # -- owner thread ----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._ring.start(Deadline.after(self._clock.monotonic_ns(), _START_MS))
            self._commit.start()
            self._source.start(self)
            self._moved_ns = self._polled_ns = self._clock.monotonic_ns()
            self._running = True
            while not self._stopping.is_set():
                self._turn()
            self.drained = self._drain()
        except BaseException as error:
            _log.exception("loop failed", extra={"loop": self.name})
            self.failure = error
        finally:
            self._running = False
            self._leave()

    def _turn(self) -> None:
        now = self._now()
        self._moved_ns = now.mono_ns
        in_flight = self._hooks.pump(now)
        self._collect()
        if not self._custody.rewinding:
            self._offer(now)
        elif not self._commit.busy:
            self._rewind(now)
        room = 0 if self._custody.rewinding else self._core.room(now)
        wait_s = self._wait_s(now, in_flight)
        if room > 0:
            self._poll(min(room, self._limits.records_max), wait_s)
        else:
            self._wait_without_poll(now, wait_s)

    def _poll(self, records_max: int, wait_s: float) -> None:
        records = self._source.poll(records_max, wait_s)
        self._polled_ns = self._clock.monotonic_ns()
        if records and not self._custody.rewinding:
            self._crash("after_poll")
            self._core.deliver(records, self._now())
            self._observer.polled(len(records))
        if self._source.misplaced():
            self._give_up("records came out of order")
        elif self._follower is not None and not self._custody.rewinding:
            for at, position in self._source.positions().items():
                self._follower.position(at, position)

    def _wait_without_poll(self, now: Now, wait_s: float) -> None:
        """A full lane does not call the consumer, but never so long that the group gives it up."""
        if self._commit.busy:
            self._collect(wait_s)
        else:
            self._stopping.wait(wait_s)
        if now.mono_ns - self._polled_ns >= self._limits.silent_ms * 1_000_000:
            self._source.keep_alive()
            self._polled_ns = self._clock.monotonic_ns()

    def _wait_s(self, now: Now, in_flight: bool) -> float:
        busy = in_flight or self._commit.busy or self._unsent is not None
        rewind_ns = self._custody.rewind_at_ns
        wake_ns = self._core.wake_at(now) if rewind_ns is None else rewind_ns
        return self._limits.wait_s(busy=busy, wake_ns=wake_ns, now_ns=now.mono_ns)

    # -- emission --------------------------------------------------------------------------

    def _offer(self, now: Now, *, final: bool = False) -> bool:
        """Hand the next plan over, if there is one and nothing is inside."""
        if self._commit.busy:
            return False
        plan = self._unsent or self._core.plan(now, final=final)
        if plan is None:
            return False
        metadata = self._source.group_metadata()
        if metadata is None:
            self._unsent = plan
            return False
        self._unsent = None
        self._commit.submit(plan, metadata)
        return True

    def _collect(self, timeout_s: float = 0.0) -> None:
        ended = self._commit.collect(timeout_s)
        if ended is None:
            return
        self._observer.transaction(ended.outcome.value, ended.seconds)
        orphaned, self._orphaned = self._orphaned, False
        if ended.outcome is not Outcome.COMMITTED or orphaned:
            self._give_up(f"emission ended {ended.outcome.value}")
            return
        now, plan = self._now(), ended.plan
        self._custody.succeeded()
        self._hooks.settled(plan, now)
        self._core.settled(plan, now)

    def _give_up(self, reason: str) -> None:
        self._unsent = None
        self._custody.give_up(reason)

    def _rewind(self, now: Now) -> None:
        partitions = self._custody.rewind(now)
        if partitions is not None:
            self._observer.rewound(partitions)

    # -- rebalance callbacks, inside poll --------------------------------------------------

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        """See :class:`streamer.batch.kafka_source.SourceHooks`."""
        self._custody.lend(assignments)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Join the commit thread, emit the finished prefix, forget the partitions."""
        deadline = self._revoke_deadline()
        self._hooks.pump(self._now())
        self._join(deadline)
        while not (self._commit.busy or self._custody.rewinding):
            if deadline.passed(self._clock.monotonic_ns()) or not self._offer(
                self._now(), final=True
            ):
                break
            self._crash("in_revoke")
            self._join(deadline)
        self._forget(partitions)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """No longer ours: whatever is inside ends first, then all is forgotten."""
        self._join(self._revoke_deadline())
        self._forget(partitions)

    def _join(self, deadline: Deadline) -> None:
        self._collect(deadline.remaining_s(self._clock.monotonic_ns()))

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        if self._commit.busy:
            self._orphaned = True
        self._custody.take_back(partitions)
        if self._unsent is not None:
            self._give_up("no group metadata")

    def _revoke_deadline(self) -> Deadline:
        deadline = Deadline.after(self._clock.monotonic_ns(), self._limits.revoke_ms)
        return min(deadline, self._stop_deadline, key=lambda each: each.at_ns)

    # -- stopping --------------------------------------------------------------------------

    def _drain(self) -> bool:
        while not self._stop_deadline.passed(self._clock.monotonic_ns()):
            now = self._now()
            self._moved_ns = now.mono_ns
            in_flight = self._hooks.pump(now)
            self._collect()
            if self._custody.rewinding:
                return True  # everything is forgotten: the committed offsets are the truth
            offered = self._offer(now, final=True)
            if not (in_flight or offered or self._commit.busy or self._unsent):
                return True
            self._source.keep_alive(self._limits.busy_poll_ms / 1_000)
        return False

    def _leave(self) -> None:
        if self.failure is not None:
            # Nothing more may be emitted: the revoke hook finds everything given up.
            self._custody.rewind_at_ns = self._clock.monotonic_ns()
            self._stop_deadline = Deadline(self._clock.monotonic_ns())
        try:
            self._source.close()
        except Exception as error:
            _log.exception("closing failed", extra={"loop": self.name})
            self.failure = self.failure or error
        if not self._commit.stop(Deadline.after(self._clock.monotonic_ns(), 3_000)):
            _log.warning("a transaction was left to its timeout", extra={"loop": self.name})

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ns(), self._clock.wall_ms())
