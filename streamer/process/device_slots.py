"""The device slots of one model, shared by both lanes: prepare -> run -> drain.

Two threads. *prepare* lays batches out in host memory, ahead of the device; *run* is the only one
that talks to the engine: it submits, polls and tells the news. What is prepared is not launched: a
fast batch overtakes every bulk batch that waits. A batch that fails is halved until the culprit
stands alone; a broken device ends the process, and Kafka delivers again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streamer.clock import Clock
from streamer.errors import EngineFailure
from streamer.infer.engine import (
    PRIORITY_BULK,
    PRIORITY_FAST,
    BatchOutcome,
    Engine,
    Full,
    Ticket,
)
from streamer.infer.launch import Failed, Launch, News, late
from streamer.process.slot_pieces import (
    Flight,
    Piece,
    Slots,
    after_failure,
    item_failures,
    whole,
)

LANES = ("fast", "bulk")
_PRIORITY = {"fast": PRIORITY_FAST, "bulk": PRIORITY_BULK}
# While an instance is idle a new batch must be noticed at once; while all are busy nothing can
# start before news come, and those end the wait.
_POLL_IDLE_S = 0.001
_POLL_BUSY_S = 0.02
# A lane's owner looks in every few milliseconds; what is laid out must last that long.
_AHEAD_MS = 10.0
_AHEAD_MAX = 8
# However much fast traffic there is, one bulk batch begins this often.
_BULK_SHARE_NS = 500_000_000


class DeviceSlots:
    """Runs launches of one model on one engine.

    Args:
        engine: loaded and warm.
        clock: wall time for deadlines.
        tell: takes news; called from the threads of this object.
    """

    def __init__(self, engine: Engine, *, clock: Clock, tell: Callable[[News], None]) -> None:
        self._engine = engine
        self._clock = clock
        self._tell = tell
        self._instances = 1
        self._lock = threading.Condition()
        self._offered: dict[str, deque[Piece]] = {lane: deque() for lane in LANES}
        self._ready: dict[str, deque[Piece]] = {lane: deque() for lane in LANES}
        self._running: dict[Ticket, Piece] = {}
        self._bulk_ns = 0  # when bulk last began a batch, or began to wait for one
        self._flights = 0
        self._stopping = False
        self._threads: list[threading.Thread] = []
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Start both threads."""
        self._instances = max(1, self._engine.spec.instances)
        model = self._engine.spec.model
        self._threads = [
            threading.Thread(target=self._guard, args=(step,), name=f"{name}-{model}", daemon=True)
            for name, step in (("prepare", self._prepare_next), ("run", self._run_next))
        ]
        for thread in self._threads:
            thread.start()

    def offer(self, launch: Launch) -> None:
        """Take a batch; the lane asked :meth:`slots` before."""
        piece = whole(launch)
        with self._lock:
            self._flights += 1
            if launch.lane == "bulk" and not (self._offered["bulk"] or self._ready["bulk"]):
                self._bulk_ns = self._clock.monotonic_ns()
            self._offered[launch.lane].append(piece)
            self._lock.notify_all()

    def slots(self, lane: str) -> Slots:
        """What ``lane`` may offer now."""
        with self._lock:
            waiting = {name: [*self._offered[name], *self._ready[name]] for name in LANES}
            busy = len(self._running) + sum(map(len, waiting.values()))
            idle = max(0, self._instances - busy)
            ahead = 1 if lane == "fast" else self._ahead(waiting["bulk"])
            return Slots(idle, max(idle, ahead - len(waiting[lane])))

    def _ahead(self, waiting: list[Piece]) -> int:
        """Bulk batches to lay out ahead: one an instance, more while they are very short."""
        waiting_ms = sum(piece.flight.launch.predicted_ms for piece in waiting)
        short = waiting_ms < _AHEAD_MS * self._instances
        return self._instances * (_AHEAD_MAX if short else 1)

    def alive(self) -> bool:
        """Whether both threads live, nothing failed and the engine is well."""
        running = bool(self._threads) and all(thread.is_alive() for thread in self._threads)
        return running and self.failure is None and self._engine.health().ok

    def close(self, timeout_s: float) -> None:
        """End both threads; what is not told stays untold (its offsets never moved)."""
        with self._lock:
            self._stopping = True
            self._lock.notify_all()
        for thread in self._threads:
            thread.join(timeout_s)

    def _guard(self, step: Callable[[], None]) -> None:
        try:
            while not self._stopping and self.failure is None:
                step()
        except BaseException as error:
            # A silent dead thread would leave a process that is ready and does nothing.
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self.failure = self.failure or error
            self._lock.notify_all()

    # --- prepare ---

    def _prepare_next(self) -> None:
        with self._lock:
            self._lock.wait_for(lambda: self._stopping or self.failure or self._next_lane(), 0.5)
            lane = self._next_lane()
            if lane is None or self._stopping:
                return
            piece = self._offered[lane].popleft()
            # It counts as ready while it is laid out, so that the bounds hold.
            self._ready[lane].append(piece)
        if self._lay_out(piece):
            with self._lock:
                self._lock.notify_all()

    def _next_lane(self) -> str | None:
        return next((lane for lane in LANES if self._offered[lane]), None)

    def _lay_out(self, piece: Piece) -> bool:
        try:
            piece.host = self._engine.prepare(piece.columns)
        except EngineFailure as failure:
            self._withdraw(piece)
            self._take_apart(piece, failure, 0)
            return False
        except Exception as error:
            # Foreign code may repeat the input in its message: only the type is told.
            self._withdraw(piece)
            text = f"{type(error).__name__} while laying out the batch"
            self._take_apart(piece, EngineFailure("batch", "model_error", text), 0)
            return False
        return True

    def _withdraw(self, piece: Piece) -> None:
        with self._lock:
            lane = piece.lane
            self._ready[lane] = deque(kept for kept in self._ready[lane] if kept is not piece)

    # --- run ---

    def _run_next(self) -> None:
        with self._lock:
            self._lock.wait_for(
                lambda: self._stopping or self.failure or self._running or self._head(), 0.5
            )
            if self._stopping:
                return
        self._launch_ready()
        if self._running:
            idle = self._engine.capacity().idle > 0
            for outcome in self._engine.poll(_POLL_IDLE_S if idle else _POLL_BUSY_S):
                self._drain(outcome)

    def _head(self) -> Piece | None:
        """The prepared batch that goes next: fast first, but bulk once in a while."""
        heads = [self._ready[lane][0] for lane in LANES if self._ready[lane]]
        heads = [piece for piece in heads if piece.host is not None]
        if len(heads) == 2 and self._clock.monotonic_ns() - self._bulk_ns >= _BULK_SHARE_NS:
            return heads[1]
        return heads[0] if heads else None

    def _launch_ready(self) -> None:
        while True:
            with self._lock:
                piece = self._head()
                if piece is None:
                    return
                lane = piece.lane
                # Bulk starts only on an idle instance: a place inside the engine ahead of that
                # is left to fast batches, which then overtake.
                if lane == "bulk" and self._engine.capacity().idle < 1:
                    return
            if self._drop_late(piece):
                continue
            assert piece.host is not None
            ticket = self._engine.submit(piece.host, _PRIORITY[lane])
            if isinstance(ticket, Full):
                return
            with self._lock:
                self._ready[lane].popleft()
                self._running[ticket] = piece
                if lane == "bulk":
                    self._bulk_ns = self._clock.monotonic_ns()

    def _drop_late(self, piece: Piece) -> bool:
        """Answer what has expired while it waited; true when the batch changed."""
        launch = piece.flight.launch
        passed = late(launch.deadline_at_ms[piece.positions], self._clock.wall_ms())
        if not passed.any():
            return False
        self._withdraw(piece)
        expired = tuple(piece.positions[passed].tolist())
        kept = np.flatnonzero(~passed)
        if len(kept):
            with self._lock:
                self._offered[launch.lane].appendleft(piece.part(kept))
                self._lock.notify_all()
        self._report(piece.flight, expired=expired)
        return True

    # --- drain ---

    def _drain(self, outcome: BatchOutcome) -> None:
        with self._lock:
            piece = self._running[outcome.ticket]
            if outcome.final or outcome.failure is not None:
                del self._running[outcome.ticket]
        piece.told[outcome.done] = True
        piece.told[[one.item for one in outcome.failed]] = True
        if len(outcome.done) or outcome.failed:
            self._report(
                piece.flight, done=piece.positions[outcome.done], rows=outcome.rows,
                failed=item_failures(piece, outcome), ran=outcome,
            )  # fmt: skip
        if outcome.failure is not None:
            self._take_apart(piece, outcome.failure, outcome.tokens)

    def _take_apart(self, piece: Piece, failure: EngineFailure, tokens: int) -> None:
        """Run again, halve, or name the culprit; ``tokens`` is the size that failed."""
        if failure.kind in ("sticky", "lost"):
            self._fail(failure)
            return
        memory = tokens // 2 if failure.code == "out_of_memory" else 0
        instead = after_failure(piece, failure)
        if isinstance(instead, Failed):
            self._report(piece.flight, failed=(instead,), tokens_max=memory)
            return
        if memory:
            self._report(piece.flight, tokens_max=memory)
        with self._lock:
            self._offered[piece.lane].extendleft(reversed(instead))
            self._lock.notify_all()

    def _report(
        self,
        flight: Flight,
        *,
        done: NDArray[np.int64] | None = None,
        rows: NDArray[np.float32] | None = None,
        failed: tuple[Failed, ...] = (),
        expired: tuple[int, ...] = (),
        ran: BatchOutcome | None = None,
        tokens_max: int = 0,
    ) -> None:
        answered = np.empty(0, np.int64) if done is None else done
        with self._lock:
            flight.left -= len(answered) + len(failed) + len(expired)
            final = flight.left == 0
            if final:
                self._flights -= 1
        self._tell(
            News(
                launch=flight.launch,
                done=answered,
                rows=np.empty((0, 0), np.float32) if rows is None else rows,
                failed=failed,
                expired=expired,
                final=final,
                tokens=0 if ran is None else ran.tokens,
                squares=0.0 if ran is None else ran.squares,
                device_ms=0.0 if ran is None else ran.device_ms,
                tokens_max=tokens_max,
            )
        )
