from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from streamer.errors import EngineFailure
from streamer.infer.engine import FULL, PRIORITY_BULK, PRIORITY_FAST, BatchOutcome, Full
from streamer.infer.fake_engine import (
    FakeCost,
    FakeFaults,
    FakeModel,
    fake_spec,
    fake_vector,
    fake_vectors,
)
from streamer.infer.thread_blocking import BlockingEngine
from tests.support.batches import a_batch

MARK = 60_000


def a_model(
    fault: str = "", *, cost: FakeCost | None = None, wait: Callable[[float], None] | None = None,
    instances: int = 1,
) -> FakeModel:  # fmt: skip
    cost = cost or FakeCost()
    spec = fake_spec(
        model="m", task="embed", revision="r", tokenizer_hash="fake", dimension=4, max_length=64,
        instances=instances, cost=cost,
    )  # fmt: skip
    faults = FakeFaults(marks={MARK: fault}) if fault else None
    return FakeModel(spec, cost=cost, wait=wait or (lambda _: None), faults=faults)


@pytest.fixture
def engines() -> Iterator[Callable[..., BlockingEngine]]:
    opened: list[BlockingEngine] = []

    def start(model: FakeModel, **options: int) -> BlockingEngine:
        engine = BlockingEngine(model, **options)
        engine.load()
        opened.append(engine)
        return engine

    yield start
    for engine in opened:
        engine.close()


def outcome_of(engine: BlockingEngine, texts: list[list[int]], **kinds: object) -> BatchOutcome:
    ticket = engine.submit(engine.prepare(a_batch(texts, **kinds)))  # type: ignore[arg-type]
    assert not isinstance(ticket, Full)
    (outcome,) = engine.poll(5.0)
    assert outcome.ticket == ticket
    return outcome


def test_a_row_depends_on_its_own_tokens_only() -> None:
    texts = [[7, 8, 9], [1], [7, 8, 9, 0]]
    flat = np.array([token for text in texts for token in text], np.uint16)

    rows = fake_vectors(flat, np.array([3, 1, 4], np.int32), 5)

    for row, text in zip(rows, texts, strict=True):
        alone = fake_vector(np.array(text, np.uint32), 5)
        assert row.tobytes() == alone.tobytes()
    assert (np.abs(rows) <= 1).all()
    assert len({row.tobytes() for row in rows}) == 3


def test_fake_vectors_never_change() -> None:
    known = [0.49674785137176514, -0.3129223585128784, -0.8273423910140991]
    assert fake_vector(np.array([1, 2]), 3).tolist() == known


def test_the_stated_cost_is_waited_for() -> None:
    waits: list[float] = []
    model = a_model(cost=FakeCost(fixed_ms=2, token_us=500), wait=waits.append)

    model.run(model.prepare(a_batch([[1, 2, 3, 4], [1]])), 0)

    assert waits == [pytest.approx(0.002 + 8 * 0.0005)]
    assert model.spec.cost.predict_ms(8) == pytest.approx(6.0)


def test_s9_batches_of_changing_size_answer_every_row_right(
    engines: Callable[..., BlockingEngine],
) -> None:
    engine = engines(a_model())

    for size in (10, 2, 10, 1, 64, 3):
        texts = [[size, at, at + 1] for at in range(size)]
        outcome = outcome_of(engine, texts)
        assert outcome.done.tolist() == list(range(size))
        for row, text in zip(outcome.rows, texts, strict=True):
            assert row.tobytes() == fake_vector(np.array(text), 4).tobytes()


@pytest.mark.parametrize("fault", ["item", "nan"])
def test_a_row_that_is_not_finite_fails_its_item_alone(
    engines: Callable[..., BlockingEngine], fault: str
) -> None:
    engine = engines(a_model(fault))

    outcome = outcome_of(engine, [[1], [2], [MARK], [3]], texts_per_item=[1, 2, 1])

    assert [(f.item, f.kind, f.code) for f in outcome.failed] == [(1, "item", "non_finite_output")]
    assert outcome.done.tolist() == [0, 2]
    assert outcome.rows[1].tobytes() == fake_vector(np.array([3]), 4).tobytes()


def test_too_few_rows_fail_the_batch_and_shift_nothing(
    engines: Callable[..., BlockingEngine],
) -> None:
    outcome = outcome_of(engines(a_model("short")), [[1], [MARK]])

    assert outcome.failure is not None
    assert outcome.failure.kind == "batch"
    assert len(outcome.done) == len(outcome.rows) == 0


@pytest.mark.parametrize("kind", ["batch", "transient"])
def test_an_engine_goes_on_after_a_failed_batch(
    engines: Callable[..., BlockingEngine], kind: str
) -> None:
    engine = engines(a_model(kind))

    assert outcome_of(engine, [[MARK]]).failure.kind == kind  # type: ignore[union-attr]

    assert outcome_of(engine, [[5]]).done.tolist() == [0]
    assert engine.health().ok


def test_a_sticky_failure_ends_the_engine_and_tells_what_waited(
    engines: Callable[..., BlockingEngine],
) -> None:
    begun, go = threading.Event(), threading.Event()

    def wait(_: float) -> None:
        begun.set()
        assert go.wait(5)

    engine = engines(a_model("sticky", cost=FakeCost(fixed_ms=1), wait=wait), ahead=1)
    first = engine.submit(engine.prepare(a_batch([[MARK]])))
    assert begun.wait(5)
    second = engine.submit(engine.prepare(a_batch([[1]])))
    go.set()

    outcomes: dict[object, str] = {}
    while len(outcomes) < 2:
        news = engine.poll(5.0)
        assert news, "an outcome is missing"
        outcomes |= {outcome.ticket: outcome.failure.kind for outcome in news if outcome.failure}

    assert outcomes == {first: "sticky", second: "lost"}
    assert not engine.health().ok
    assert engine.submit(engine.prepare(a_batch([[1]]))) is FULL


def test_a_fast_batch_overtakes_what_waits_and_a_full_engine_says_so(
    engines: Callable[..., BlockingEngine],
) -> None:
    begun, go = threading.Event(), threading.Event()

    def wait(_: float) -> None:
        begun.set()
        assert go.wait(5)

    engine = engines(a_model(cost=FakeCost(fixed_ms=1), wait=wait), ahead=2)
    running = engine.submit(engine.prepare(a_batch([[1]])), PRIORITY_BULK)
    assert begun.wait(5)
    bulk = engine.submit(engine.prepare(a_batch([[2]])), PRIORITY_BULK)
    fast = engine.submit(engine.prepare(a_batch([[3]])), PRIORITY_FAST)
    assert engine.submit(engine.prepare(a_batch([[4]]))) is FULL
    assert engine.capacity().free == 0
    go.set()

    order = []
    while len(order) < 3:
        news = engine.poll(5.0)
        assert news, "an outcome is missing"
        order += [outcome.ticket for outcome in news]

    assert order == [running, fast, bulk]


def test_a_cancelled_batch_is_never_told(engines: Callable[..., BlockingEngine]) -> None:
    begun, go = threading.Event(), threading.Event()

    def wait(_: float) -> None:
        begun.set()
        assert go.wait(5)

    engine = engines(a_model(cost=FakeCost(fixed_ms=1), wait=wait))
    running = engine.submit(engine.prepare(a_batch([[1]])))
    assert begun.wait(5)
    waiting = engine.submit(engine.prepare(a_batch([[2]])))
    assert not isinstance(waiting, Full)
    assert not isinstance(running, Full)

    assert engine.cancel(waiting)
    assert not engine.cancel(running)
    go.set()

    assert [outcome.ticket for outcome in engine.poll(5.0)] == [running]
    assert engine.poll(0.0) == []


def test_foreign_errors_do_not_repeat_the_input(engines: Callable[..., BlockingEngine]) -> None:
    class Talkative(FakeModel):
        def run(self, batch: object, instance: int) -> np.ndarray:
            raise ValueError("the secret text")

    base = a_model()
    engine = engines(Talkative(base.spec, cost=FakeCost(), wait=lambda _: None))

    failure = outcome_of(engine, [[1]]).failure

    assert isinstance(failure, EngineFailure)
    assert "secret" not in str(failure)
