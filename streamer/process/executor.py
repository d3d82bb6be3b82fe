"""All device slots of a worker, shared by its lanes, and the hooks by which a lane uses them.

Each lane's owner thread offers launches and collects news here; nothing else crosses between the
threads. One failure anywhere ends the process: a worker that is alive and does nothing is worse
than one that starts again, since Kafka delivers again what was not committed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from streamer.batch.limits import Budget
from streamer.clock import Clock
from streamer.errors import EngineFailure
from streamer.event.lane import Assignment, EmitPlan, Now
from streamer.infer.engine import Engine
from streamer.infer.launch import Launch, News
from streamer.process.device_slots import LANES, DeviceSlots
from streamer.process.slot_pieces import Slots
from streamer.process.work_plan import ended_with
from streamer.process.worker_core import WorkerCore

# Bulk batches stay short for this long after the last fast one.
_FAST_PRESENT_NS = 2_000_000_000


class WorkObserver(Protocol):
    """Told the facts of work, for metrics; called on the owner threads."""

    def launched(self, launch: Launch) -> None:
        """One batch was handed to the device slots."""

    def landed(self, news: News) -> None:
        """A piece of a batch came back."""

    def committed(self, ended: Mapping[str, int]) -> None:
        """An emission was committed; items that end with it, by state."""


class NoWorkObserver:
    """Tells nobody."""

    def launched(self, launch: Launch) -> None:
        """Nothing."""

    def landed(self, news: News) -> None:
        """Nothing."""

    def committed(self, ended: Mapping[str, int]) -> None:
        """Nothing."""


class Executor:
    """Device slots of all models.

    Args:
        engines: by model slug, loaded and warm.
        clock: source of time.
    """

    def __init__(self, engines: Mapping[str, Engine], *, clock: Clock) -> None:
        self._engines = engines
        self._clock = clock
        self._lock = threading.Lock()
        self._news: dict[str, deque[News]] = {lane: deque() for lane in LANES}
        self._fast_ns: int | None = None
        self._slots = {
            model: DeviceSlots(engine, clock=clock, tell=self._tell)
            for model, engine in engines.items()
        }

    @property
    def models(self) -> Sequence[str]:
        """Slugs of the models, in the order in which they are served."""
        return tuple(self._slots)

    def start(self) -> None:
        """Start the threads of every model."""
        for slots in self._slots.values():
            slots.start()

    def slots(self, lane: str, model: str) -> Slots:
        """What ``lane`` may offer for ``model`` now."""
        return self._slots[model].slots(lane)

    def offer(self, launch: Launch) -> None:
        """Take a batch."""
        if launch.lane == "fast":
            self._fast_ns = self._clock.monotonic_ns()
        self._slots[launch.model].offer(launch)

    def fast_is_present(self) -> bool:
        """Whether a fast batch was offered a short while ago."""
        seen = self._fast_ns
        return seen is not None and self._clock.monotonic_ns() - seen < _FAST_PRESENT_NS

    def collect(self, lane: str) -> list[News]:
        """News of the lane's launches since the last call.

        Raises:
            EngineFailure: the device slots of a model are out of order; the process must end.
        """
        for model, slots in self._slots.items():
            if not slots.alive():
                raise EngineFailure(
                    "sticky", "model_error", f"model {model}: {self._reason(model, slots)}"
                ) from slots.failure
        with self._lock:
            news = list(self._news[lane])
            self._news[lane].clear()
        return news

    def alive(self) -> bool:
        """Whether every model can run batches; part of ``/ready``."""
        return all(slots.alive() for slots in self._slots.values())

    def close(self, timeout_s: float = 5.0) -> None:
        """End the threads, then the engines."""
        for slots in self._slots.values():
            slots.close(timeout_s)
        for engine in self._engines.values():
            engine.close()

    def _reason(self, model: str, slots: DeviceSlots) -> str:
        """Why a model cannot run; foreign messages may repeat an input, so only their type."""
        if isinstance(slots.failure, EngineFailure):
            return str(slots.failure)
        if slots.failure is not None:
            return f"{type(slots.failure).__name__} in a device thread"
        return self._engines[model].health().reason or "a device thread ended"

    def _tell(self, news: News) -> None:
        with self._lock:
            self._news[news.launch.lane].append(news)


class WorkHooks:
    """Between a lane's core and the device slots; called on the lane's owner thread.

    Args:
        core: the decisions.
        executor: shared by the lanes.
        lane: whose batches these are.
        bulk_chunk_ms: longest bulk batch while fast traffic is present.
        draining: whether the process is about to stop.
        observer: told facts for metrics.
    """

    def __init__(
        self,
        core: WorkerCore,
        executor: Executor,
        *,
        lane: str,
        bulk_chunk_ms: float,
        draining: Callable[[], bool] = lambda: False,
        observer: WorkObserver | None = None,
    ) -> None:
        self._core = core
        self._executor = executor
        self._lane = lane
        self._bulk_chunk_ms = bulk_chunk_ms
        self._draining = draining
        self._observer = observer or NoWorkObserver()

    def assigned(self, assignments: Sequence[Assignment], now: Now) -> None:
        """Nothing to restore."""

    def pump(self, now: Now) -> bool:
        """Take news in, hand batches out; true while any item has not ended."""
        for news in self._executor.collect(self._lane):
            self._core.batch_done(news, now)
            self._observer.landed(news)
        budget = None
        if self._lane == "bulk" and self._executor.fast_is_present():
            budget = Budget(ms_max=self._bulk_chunk_ms)
        for model in self._executor.models:
            self._hand_out(model, budget, now)
        return self._core.unfinished_items > 0

    def settled(self, plan: EmitPlan, now: Now) -> None:
        """Count what is committed."""
        self._observer.committed(ended_with(plan))

    def _hand_out(self, model: str, budget: Budget | None, now: Now) -> None:
        while True:
            slots = self._executor.slots(self._lane, model)
            if slots.room < 1:
                return
            # A fast batch is laid out even while all slots are busy: it goes next, before bulk
            # that was prepared earlier, and would else never see an idle slot under bulk load.
            free = slots.idle > 0 or self._lane == "fast"
            launch = self._core.next_batch(
                now, model=model, slot_free=free, budget=budget, drain=self._draining()
            )
            if launch is None:
                return
            self._executor.offer(launch)
            self._observer.launched(launch)
