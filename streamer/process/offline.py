"""Batcher, device slots and engine of the worker without Kafka: records in, finished records out.

The raw loop that users and benches compare the service with: the same code forms and runs the
batches, nothing is consumed, committed or reassembled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from streamer.batch.limits import BatchLimits
from streamer.clock import Clock
from streamer.event.lane import Now, TopicPartition
from streamer.event.records import Receipt, WorkRecord
from streamer.infer.engine import Engine
from streamer.process.executor import Executor
from streamer.process.held_record import Held, news_by_member
from streamer.process.model_stream import ModelStream
from streamer.process.work_intake import hold_work

# Items that are read, tokenized and sorted together, as in the service.
WINDOW_ITEMS = 2_048
_LANE = "bulk"
_AT = TopicPartition("file", 0)
_TURN_S = 0.0005
# Far beyond any run: only full batches leave until the input ends.
_LINGER_NS = 86_400_000_000_000


@dataclass(slots=True, kw_only=True)
class RunStats:
    """What a run did; ``padded_tokens`` counts longest × texts of every batch."""

    items: int = 0
    texts: int = 0
    succeeded: int = 0
    batches: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    device_ms: float = 0.0
    tokenize_s: float = 0.0
    wall_s: float = 0.0
    load_s: float = 0.0
    dtype: str = ""
    instances: int = 0

    @property
    def padding_overhead(self) -> float:
        """Padded / real − 1."""
        return self.padded_tokens / self.tokens - 1 if self.tokens else 0.0

    @property
    def items_per_s(self) -> float:
        """Items by the time from the first text to the last row; loading not counted."""
        return self.items / self.wall_s if self.wall_s else 0.0


class OfflineRun:
    """One model, one thread of control.

    Args:
        engine: loaded and warm.
        limits: bounds of the batches.
        clock: source of time.
    """

    def __init__(self, engine: Engine, limits: BatchLimits, *, clock: Clock) -> None:
        spec = engine.spec
        limits = replace(limits, linger_ns=_LINGER_NS, patience_ns=2 * _LINGER_NS)
        self._clock = clock
        self._executor = Executor({spec.model: engine}, clock=clock)
        self._stream = ModelStream(spec, limits, lane=_LANE, name="offline")
        self._held: dict[int, Held] = {}
        self._number = 0
        self.stats = RunStats(dtype=spec.dtype, instances=spec.instances)

    def __enter__(self) -> Self:
        self._executor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.close()

    @property
    def open_items(self) -> int:
        """Items taken in that have not ended."""
        return sum(held.left for held in self._held.values())

    def add(self, work: WorkRecord) -> int:
        """Take a record in; returns the number it is named by."""
        self._number += 1
        spec = self._stream.spec
        receipt = Receipt(
            revision=spec.revision, tokenizer_hash=spec.tokenizer_hash, dtype=spec.dtype,
            worker="offline",
        )  # fmt: skip
        held = hold_work(work, receipt, _AT, self._number)
        self._held[self._number] = held
        self._stream.add(held, self._now())
        self.stats.items += len(work.items)
        self.stats.texts += len(work.lengths)
        return self._number

    def turn(self, *, drain: bool) -> list[tuple[int, Held]]:
        """Hand batches out, take news in.

        Args:
            drain: nothing more will be added: partly filled batches leave too.

        Returns:
            Records all of whose items have ended.

        Raises:
            EngineFailure: the device is out of order.
        """
        self._hand_out(drain)
        finished = []
        for news in self._executor.collect(_LANE):
            self.stats.device_ms += news.device_ms
            for part in news_by_member(news, self._stream.landed(news)):
                held = part.held
                if len(part.done):
                    held.answer(part.done, part.rows)
                    self.stats.succeeded += len(part.done)
                for row, code, message, _ in part.failed:
                    held.end_without_answer([row], code, message)
                held.end_without_answer(part.expired, "expired", "the deadline passed")
                if held.left == 0:
                    spec = self._stream.spec
                    held.answers.kind, held.answers.labels = spec.output, spec.labels
                    finished.append((held.offset, held))
                    del self._held[held.offset]
        return finished

    def finish(self) -> Iterator[tuple[int, Held]]:
        """Run everything that was added to its end; yields records as they finish."""
        while self._held:
            finished = self.turn(drain=True)
            if not finished:
                time.sleep(_TURN_S)
            yield from finished

    def _hand_out(self, drain: bool) -> None:
        now = self._now()
        model = self._stream.spec.model
        while True:
            slots = self._executor.slots(_LANE, model)
            if slots.room < 1:
                return
            taken = self._stream.take(now, slot_free=slots.idle > 0, budget=None, drain=drain)
            if taken is None:
                return
            launch = self._stream.launch(taken, taken.members)
            self.stats.batches += 1
            self.stats.tokens += launch.tokens
            self.stats.padded_tokens += launch.padded_tokens
            self._executor.offer(launch)

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ns(), self._clock.wall_ms())
