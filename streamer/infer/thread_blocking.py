"""One adapter that turns a blocking ``run(host_batch, instance) -> rows`` into an engine.

One thread an instance takes the most urgent waiting batch, runs it and puts the outcome where
``poll`` finds it. Row count and finiteness are checked here, for every blocking model alike: a
model that answers too few rows must not shift answers to wrong items.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.errors import EngineFailure
from streamer.infer.engine import (
    FULL,
    PRIORITY_BULK,
    BatchColumns,
    BatchOutcome,
    Capacity,
    EngineSpec,
    Full,
    Health,
    HostBatch,
    ItemFailure,
    Ticket,
)

_CLOSE_WAIT_S = 5.0


class BlockingModel(Protocol):
    """A model that computes in the calling thread."""

    @property
    def spec(self) -> EngineSpec:
        """See :class:`~streamer.infer.engine.Engine`."""
        ...

    def load(self) -> None:
        """See :class:`~streamer.infer.engine.Engine`."""
        ...

    def warm_up(self) -> None:
        """See :class:`~streamer.infer.engine.Engine`."""
        ...

    def prepare(self, columns: BatchColumns) -> HostBatch:
        """See :class:`~streamer.infer.engine.Engine`."""
        ...

    def run(self, batch: HostBatch, instance: int) -> NDArray[np.float32]:
        """Rows float32 [texts, *row_shape]; raises EngineFailure; on thread ``instance``."""
        ...

    def unload(self) -> None:
        """See :class:`~streamer.infer.engine.Engine`."""
        ...


class BlockingEngine:
    """An :class:`~streamer.infer.engine.Engine` over a :class:`BlockingModel`.

    Args:
        model: computes; ``run`` may be called from several threads at once.
        ahead: batches that may wait inside, so that an instance never idles between two; a
            batch of higher priority overtakes them.
    """

    def __init__(self, model: BlockingModel, *, ahead: int = 1) -> None:
        self._model = model
        self._ahead = ahead
        self._lock = threading.Condition()
        self._waiting: list[tuple[int, int, HostBatch]] = []
        self._news: deque[BatchOutcome] = deque()
        self._running: set[int] = set()
        self._next = 0
        self._broken: str = ""
        self._closed = False
        self._threads: list[threading.Thread] = []

    @property
    def spec(self) -> EngineSpec:
        """See :class:`~streamer.infer.engine.Engine`."""
        return self._model.spec

    def load(self) -> None:
        """Load the model and start its threads."""
        self._model.load()
        if self._threads:
            return
        self._threads = [
            threading.Thread(
                target=self._serve, args=(number,), name=f"engine-{number}", daemon=True
            )
            for number in range(self._model.spec.instances)
        ]
        for thread in self._threads:
            thread.start()

    def warm_up(self) -> None:
        """See :class:`~streamer.infer.engine.Engine`."""
        self._model.warm_up()

    def prepare(self, columns: BatchColumns) -> HostBatch:
        """See :class:`~streamer.infer.engine.Engine`."""
        return self._model.prepare(columns)

    def submit(self, batch: HostBatch, priority: int = PRIORITY_BULK) -> Ticket | Full:
        """See :class:`~streamer.infer.engine.Engine`."""
        with self._lock:
            if self._free() <= 0:
                return FULL
            self._next += 1
            heapq.heappush(self._waiting, (priority, self._next, batch))
            self._lock.notify_all()
            return Ticket(self._next)

    def poll(self, wait_s: float = 0.0) -> list[BatchOutcome]:
        """See :class:`~streamer.infer.engine.Engine`."""
        with self._lock:
            if not self._news and wait_s > 0:
                self._lock.wait_for(lambda: bool(self._news) or self._closed, wait_s)
            news = list(self._news)
            self._news.clear()
            return news

    def cancel(self, ticket: Ticket) -> bool:
        """See :class:`~streamer.infer.engine.Engine`."""
        with self._lock:
            kept = [entry for entry in self._waiting if entry[1] != ticket.number]
            found = len(kept) < len(self._waiting)
            if found:
                heapq.heapify(kept)
                self._waiting = kept
            return found

    def capacity(self) -> Capacity:
        """See :class:`~streamer.infer.engine.Engine`."""
        with self._lock:
            running, waiting = len(self._running), len(self._waiting)
            idle = max(0, len(self._threads) - running - waiting)
            return Capacity(running=running, waiting=waiting, free=max(0, self._free()), idle=idle)

    def health(self) -> Health:
        """See :class:`~streamer.infer.engine.Engine`."""
        with self._lock:
            return Health(ok=not self._broken and not self._closed, reason=self._broken)

    def unload(self) -> None:
        """See :class:`~streamer.infer.engine.Engine`."""
        self._model.unload()

    def close(self) -> None:
        """End the threads; a batch that runs on gets a few seconds."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            self._lock.notify_all()
        until = time.monotonic() + _CLOSE_WAIT_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._threads = []
        self._model.unload()

    def _free(self) -> int:
        if self._closed or self._broken:
            return 0
        return len(self._threads) + self._ahead - len(self._running) - len(self._waiting)

    def _serve(self, instance: int) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: bool(self._waiting) or self._closed)
                if self._closed:
                    return
                _, number, batch = heapq.heappop(self._waiting)
                self._running.add(number)
            outcome = self._run(Ticket(number), batch, instance)
            with self._lock:
                self._running.discard(number)
                if outcome.failure is not None and outcome.failure.kind in ("sticky", "lost"):
                    self._broken = outcome.failure.message
                    self._fail_waiting(outcome.failure)
                self._news.append(outcome)
                self._lock.notify_all()

    def _fail_waiting(self, failure: EngineFailure) -> None:
        lost = EngineFailure("lost", failure.code, failure.message)
        for _, number, batch in self._waiting:
            self._news.append(failed_outcome(Ticket(number), batch, self._model.spec, lost))
        self._waiting.clear()

    def _run(self, ticket: Ticket, batch: HostBatch, instance: int) -> BatchOutcome:
        begun = time.perf_counter_ns()
        try:
            rows = self._model.run(batch, instance)
            took_ms = (time.perf_counter_ns() - begun) / 1e6
            return checked_outcome(ticket, batch, self._model.spec, rows, took_ms, instance)
        except EngineFailure as failure:
            return failed_outcome(ticket, batch, self._model.spec, failure)
        except Exception as error:
            # The adapter stands between any model code and the worker; only the type is told,
            # because a message of foreign code may repeat the input.
            foreign = EngineFailure("batch", "model_error", f"{type(error).__name__} in the model")
            return failed_outcome(ticket, batch, self._model.spec, foreign)


def failed_outcome(
    ticket: Ticket, batch: HostBatch, spec: EngineSpec, failure: EngineFailure
) -> BatchOutcome:
    """The whole ticket failed."""
    return BatchOutcome(
        ticket=ticket,
        done=np.empty(0, np.int32),
        rows=np.empty((0, *spec.row_shape), np.float32),
        failure=failure,
        tokens=batch.tokens,
        squares=batch.squares,
    )


def checked_outcome(
    ticket: Ticket,
    batch: HostBatch,
    spec: EngineSpec,
    rows: NDArray[np.float32],
    took_ms: float,
    instance: int,
) -> BatchOutcome:
    """Rows as an outcome: wrong shape fails the ticket, a non-finite row fails its item alone."""
    columns = batch.columns
    if rows.shape != (columns.texts, *spec.row_shape):
        failure = EngineFailure(
            "batch", "model_error",
            f"the model answered shape {rows.shape} for {columns.texts} texts",
        )  # fmt: skip
        return failed_outcome(ticket, batch, spec, failure)
    failed: tuple[ItemFailure, ...] = ()
    done = np.arange(columns.items, dtype=np.int32)
    finite = np.isfinite(rows.reshape(columns.texts, -1)).all(axis=1)
    if not finite.all():
        item_of_text = np.repeat(done, columns.texts_per_item)
        bad = np.unique(item_of_text[~finite])
        failed = tuple(
            ItemFailure(
                item=int(item), kind="item", code="non_finite_output",
                message="the model answered NaN or infinity for this input",
            )
            for item in bad
        )  # fmt: skip
        rows = rows[~np.isin(item_of_text, bad)]
        done = np.setdiff1d(done, bad).astype(np.int32)
    return BatchOutcome(
        ticket=ticket,
        done=done,
        rows=np.ascontiguousarray(rows, dtype=np.float32),
        failed=failed,
        device_ms=took_ms,
        tokens=batch.tokens,
        squares=batch.squares,
        instance=instance,
    )
