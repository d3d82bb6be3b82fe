"""Device slots on a scripted model: overtaking, halving, lateness, broken devices."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from streamer.batch.limits import BatchLimits
from streamer.clock import Clock, SystemClock
from streamer.errors import EngineFailure
from streamer.infer.engine import BatchColumns, HostBatch
from streamer.infer.fake_engine import FakeCost, FakeModel, fake_vectors
from streamer.infer.launch import Launch, News
from streamer.infer.thread_blocking import BlockingEngine
from streamer.process.executor import Executor, WorkHooks
from tests.support.work_builders import MODEL, a_core, a_spec, a_work, assigned, at_ms, delivered

_LIMIT_S = 10.0


class ScriptedModel(FakeModel):
    """A fake that records what it runs and asks a function before it answers."""

    def __init__(self, before: Callable[[HostBatch], None] | None = None) -> None:
        super().__init__(a_spec(), cost=FakeCost(), wait=lambda seconds: None)
        self.ran: list[list[int]] = []
        self._before = before

    def run(self, batch: HostBatch, instance: int) -> np.ndarray:
        self.ran.append(batch.columns.token_ids.tolist())
        if self._before is not None:
            self._before(batch)
        return super().run(batch, instance)


def _launch(*tokens: int, lane: str = "bulk", deadlines: list[int] | None = None) -> Launch:
    """Each item is one text of one token."""
    count = len(tokens)
    columns = BatchColumns(
        task="embed", params_key="k", params="{}", lengths=np.ones(count, np.int32),
        token_ids=np.array(tokens, np.uint16), pair_at=None,
        texts_per_item=np.ones(count, np.int32),
    )  # fmt: skip
    return Launch(
        lane=lane, model=MODEL, batch_id=f"{lane}-{tokens}", columns=columns, members=(),
        predicted_ms=40.0, deadline_at_ms=np.array(deadlines or [0] * count, np.int64),
    )  # fmt: skip


class MovedClock(SystemClock):
    """The system's clock, moved on by the test."""

    ahead_ns = 0

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self.ahead_ns


@contextmanager
def _executor(model: FakeModel, clock: Clock | None = None) -> Iterator[Executor]:
    engine = BlockingEngine(model)
    engine.load()
    executor = Executor({MODEL: engine}, clock=clock or SystemClock())
    executor.start()
    try:
        yield executor
    finally:
        executor.close(2.0)


def _wait_for(executor: Executor, lane: str = "bulk", finals: int = 1) -> list[News]:
    found: list[News] = []
    until = time.monotonic() + _LIMIT_S
    while sum(news.final for news in found) < finals:
        assert time.monotonic() < until, "no news in time"
        found += executor.collect(lane)
    return found


def _raise_on(token: int, kind: str = "batch", code: str = "model_error") -> Callable:
    def before(batch: HostBatch) -> None:
        if token in batch.columns.token_ids:
            raise EngineFailure(kind, code, "it broke")

    return before


def test_a_healthy_batch_comes_back_whole_and_in_order() -> None:
    with _executor(ScriptedModel()) as executor:
        executor.offer(_launch(5, 6, 7))
        (news,) = _wait_for(executor)

    assert news.done.tolist() == [0, 1, 2]
    expected = fake_vectors(np.array([5, 6, 7], np.uint16), np.ones(3, np.int32), 4)
    np.testing.assert_array_equal(news.rows, expected)


@pytest.mark.parametrize("position", range(7))
def test_a_batch_that_fails_is_halved_until_the_culprit_stands_alone(position: int) -> None:
    tokens = [10 + n for n in range(7)]
    with _executor(ScriptedModel(_raise_on(10 + position))) as executor:
        executor.offer(_launch(*tokens))
        pieces = _wait_for(executor)

    failed = [one for news in pieces for one in news.failed]
    assert [(one.item, one.culprit) for one in failed] == [(position, True)]
    done = sorted(at for news in pieces for at in news.done.tolist())
    assert done == [n for n in range(7) if n != position]
    for news in pieces:
        if not len(news.done):
            continue
        ids = np.array([tokens[at] for at in news.done], np.uint16)
        np.testing.assert_array_equal(news.rows, fake_vectors(ids, np.ones(len(ids), np.int32), 4))


def test_a_transient_failure_is_tried_again_and_harms_nobody() -> None:
    left = [2]

    def before(batch: HostBatch) -> None:
        if left[0]:
            left[0] -= 1
            raise EngineFailure("transient", "model_error", "busy")

    model = ScriptedModel(before)
    with _executor(model) as executor:
        executor.offer(_launch(1, 2))
        (news,) = _wait_for(executor)

    assert news.done.tolist() == [0, 1]
    assert model.ran == [[1, 2]] * 3


def test_running_out_of_memory_is_halved_and_remembered() -> None:
    def before(batch: HostBatch) -> None:
        if batch.columns.items > 2:
            raise EngineFailure("batch", "out_of_memory", "too large")

    with _executor(ScriptedModel(before)) as executor:
        executor.offer(_launch(1, 2, 3, 4))
        pieces = _wait_for(executor)

    assert not any(news.failed for news in pieces)
    assert sorted(at for news in pieces for at in news.done.tolist()) == [0, 1, 2, 3]
    assert max(news.tokens_max for news in pieces) == 2


def test_a_fast_batch_overtakes_the_bulk_batches_that_wait() -> None:
    gate = threading.Event()
    begun = threading.Event()

    def before(batch: HostBatch) -> None:
        begun.set()
        assert gate.wait(_LIMIT_S)

    model = ScriptedModel(before)
    with _executor(model) as executor:
        executor.offer(_launch(1))
        assert begun.wait(_LIMIT_S)
        executor.offer(_launch(2))
        executor.offer(_launch(3))
        executor.offer(_launch(9, lane="fast"))
        _until(lambda: executor.slots("fast", MODEL).room == 1)
        gate.set()
        _wait_for(executor, "fast")
        _wait_for(executor, "bulk", 3)

    assert model.ran == [[1], [9], [2], [3]]


def test_bulk_begins_a_batch_now_and_then_however_much_fast_traffic_there_is() -> None:
    gate, begun = threading.Event(), threading.Event()

    def before(batch: HostBatch) -> None:
        begun.set()
        _passes(gate)

    model, clock = ScriptedModel(before), MovedClock()
    with _executor(model, clock) as executor:
        executor.offer(_launch(8, lane="fast"))
        assert begun.wait(_LIMIT_S)
        executor.offer(_launch(1))
        executor.offer(_launch(9, lane="fast"))
        clock.ahead_ns = 600_000_000
        executor.offer(_launch(10, lane="fast"))
        gate.set()
        _wait_for(executor, "fast", 3)
        _wait_for(executor, "bulk")

    # The engine's place ahead may have taken 9 before the clock moved.
    assert model.ran.index([1]) < model.ran.index([10])


def test_a_fast_request_is_laid_out_while_bulk_keeps_every_slot_busy() -> None:
    gate = threading.Event()
    model = ScriptedModel(lambda batch: _passes(gate))
    cores = {lane: a_core(lane=lane, batch=BatchLimits(items_max=2)) for lane in ("bulk", "fast")}
    for lane, core in cores.items():
        assigned(core, 0, lane=lane)
    cores["bulk"].deliver([delivered(a_work(8), 0)], at_ms())
    with _executor(model) as executor:
        hooks = {
            lane: WorkHooks(core, executor, lane=lane, bulk_chunk_ms=40.0)
            for lane, core in cores.items()
        }
        assert hooks["bulk"].pump(at_ms())
        _until(lambda: model.ran != [])
        hooks["bulk"].pump(at_ms())
        assert executor.slots("bulk", MODEL).room < 8, "no bulk batch waits"
        fast = a_work(1, job_id=None, lane="fast", first_index=50)
        cores["fast"].deliver([delivered(fast, 0)], at_ms())

        assert hooks["fast"].pump(at_ms())
        _until(lambda: executor.slots("fast", MODEL).room == 1)
        gate.set()
        _until(lambda: not hooks["fast"].pump(at_ms()))
        _until(lambda: not hooks["bulk"].pump(at_ms()))

    assert model.ran.index(fast.token_ids.tolist()) == 1
    assert executor.fast_is_present()


def _until(holds: Callable[[], bool]) -> None:
    """Poll with a deadline."""
    until = time.monotonic() + _LIMIT_S
    while not holds():
        assert time.monotonic() < until


def test_very_short_batches_are_laid_out_further_ahead_within_a_bound() -> None:
    gate = threading.Event()
    model = ScriptedModel(lambda batch: _passes(gate))
    with _executor(model) as executor:
        executor.offer(_launch(1))
        _until(lambda: model.ran == [[1]])
        _until(lambda: executor.slots("bulk", MODEL).room == 8)
        count = 0
        while executor.slots("bulk", MODEL).room:
            executor.offer(replace(_launch(2), predicted_ms=0.1))
            count += 1
        gate.set()
        _wait_for(executor, finals=1 + count)

    assert count == 8


def test_what_expires_while_it_waits_is_not_run() -> None:
    gate = threading.Event()
    model = ScriptedModel(lambda batch: _passes(gate))
    soon = SystemClock().wall_ms() + 100
    with _executor(model) as executor:
        executor.offer(_launch(1))
        executor.offer(_launch(2, 3, deadlines=[0, soon]))
        _until(lambda: SystemClock().wall_ms() > soon)
        gate.set()
        pieces = _wait_for(executor, finals=2)

    assert model.ran == [[1], [2]]
    assert [at for news in pieces for at in news.expired] == [1]


def _passes(gate: threading.Event) -> None:
    assert gate.wait(_LIMIT_S)


@pytest.mark.parametrize("kind", ["sticky", "lost"])
def test_a_broken_device_is_told_to_every_lane(kind: str) -> None:
    with _executor(ScriptedModel(_raise_on(1, kind))) as executor:
        executor.offer(_launch(1))
        _until(lambda: not executor.alive())

        for lane in ("fast", "bulk"):
            with pytest.raises(EngineFailure):
                executor.collect(lane)


def test_a_thread_that_dies_makes_the_executor_unready() -> None:
    model = ScriptedModel()
    with _executor(model) as executor:
        assert executor.alive()
        broken = replace(_launch(1), deadline_at_ms=None)  # type: ignore[arg-type]
        executor.offer(broken)

        _until(lambda: not executor.alive())
        with pytest.raises(EngineFailure, match="in a device thread"):
            executor.collect("bulk")


def test_a_batch_that_cannot_be_laid_out_is_answered_errored() -> None:
    model = ScriptedModel()

    def refuse(columns: BatchColumns) -> HostBatch:
        if 7 in columns.token_ids:
            raise EngineFailure("item", "model_error", "id above the vocabulary")
        return FakeModel.prepare(model, columns)

    model.prepare = refuse  # type: ignore[method-assign]
    with _executor(model) as executor:
        executor.offer(_launch(6, 7, 8))
        pieces = _wait_for(executor)

    assert [one.item for news in pieces for one in news.failed] == [1]
    assert sorted(at for news in pieces for at in news.done.tolist()) == [0, 2]


def test_bulk_is_prepared_one_batch_an_instance_ahead() -> None:
    gate = threading.Event()
    with _executor(ScriptedModel(lambda batch: _passes(gate))) as executor:
        assert executor.slots("bulk", MODEL).idle == 1
        executor.offer(_launch(1))
        _until(lambda: executor.slots("bulk", MODEL).room == 8)
        executor.offer(_launch(2))

        assert executor.slots("bulk", MODEL).room == 0
        assert executor.slots("fast", MODEL).room == 1
        gate.set()
        _wait_for(executor, finals=2)
