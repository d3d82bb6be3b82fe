"""Any interleaving of rows, repeats, entries, time, aborts and restarts keeps the promise."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamer.event.codes import ERRORED, SUCCEEDED
from streamer.event.lane import Now, TopicPartition
from tests.support.aggregate_model import AggregateModel, Told
from tests.support.aggregate_world import RESULTS, AggregateWorld, some_limits
from tests.support.results import Row, a_result, an_entry

JOB_IDS = ("a", "b", "c")
PARTITIONS = 2


class Story:
    """Everything that can happen, as methods with plain arguments."""

    def __init__(self) -> None:
        self.world = AggregateWorld(some_limits(PARTITIONS, fill_max=40))
        self.model = AggregateModel(self.world)
        self.sent: list[tuple[str, list[Row]]] = []
        self.asked: list[tuple[int, int, Now, list[str]]] = []
        self.next_origin = 0

    def tick(self) -> None:
        self.world.mono_ns += 1

    def about(self, job_id: str) -> Told:
        """Every job begins with a descriptor that asks for Avro, which the world can read."""
        if job_id not in self.model.told:
            self.world.entry(an_entry("descriptor", job_id=job_id, form="avro"))
        return self.model.about(job_id)

    def send(self, job_id: str, items: list[Row], *, carried: bool = False) -> None:
        told = self.about(job_id)
        offset = self.world.result(a_result(items, job_id=job_id), carried=carried)
        told.rows += [(offset, row) for row in items]
        self.sent.append((job_id, items))

    def answer_items(self, job_id: str, indices: list[int], failing: bool) -> None:
        items = []
        for index in indices:
            self.next_origin += 1
            status = ERRORED if failing and index % 3 == 0 else SUCCEEDED
            items.append(Row(index=index, value=index, origin=(0, self.next_origin), status=status))
        self.send(job_id, items)

    def intrude(self, job_id: str, index: int) -> None:
        self.next_origin += 1
        text = f"other {self.next_origin}"
        self.send(job_id, [Row(index=index, value=-1, text=text, origin=(0, self.next_origin))])

    def repeat(self, number: int, *, carried: bool) -> None:
        job_id, items = self.sent[number % len(self.sent)]
        if not carried:
            items = [
                Row(index=r.index, value=r.value + 0.5, text=r.text, origin=r.origin,
                    status=r.status)
                for r in items
            ]  # fmt: skip
        self.send(job_id, items, carried=carried)

    def say(self, job_id: str, kind: str, total: int, in_ms: int) -> None:
        told = self.about(job_id)
        deadline_at_ms = self.world.wall_ms + in_ms if in_ms else 0
        told.totals += [total] if total >= 0 else []
        told.deadlines += [deadline_at_ms] if in_ms else []
        told.cancelled = told.cancelled or kind == "cancel"
        form = "avro" if kind == "descriptor" else ""
        self.world.entry(
            an_entry(kind, job_id=job_id, total=total, deadline_at_ms=deadline_at_ms, form=form)
        )

    def ask(self) -> None:
        self.tick()
        for number in self.world.core.wants_watermark(self.world.now()):
            high = self.world.logs[TopicPartition(RESULTS, number)].end
            closable = self.model.closable(number)
            self.asked.append((number, high, self.world.now(), closable))

    def answer(self) -> None:
        for number, high, asked_at, closable in self.asked:
            self.model.answered(closable, high)
            self.world.core.watermark(number, high, asked_at)
        self.asked.clear()

    def lose_everything(self) -> None:
        self.asked.clear()
        self.tick()
        self.world.restart()

    def heal(self) -> None:
        """Faults stop; every deadline passes; all must end."""
        for wait_ms in (0, 100_000, 0, 0):
            self.world.pass_time(wait_ms)
            for _ in range(2_000):
                for number in range(PARTITIONS):
                    self.world.deliver(number)
                    self.world.hear(number)
                self.ask()
                has_asked = bool(self.asked)
                self.answer()
                if not (has_asked or self.world.commit()):
                    break
            else:
                raise AssertionError("never quiet")
        self.model.check()
        self.model.check_the_end()


job_ids = st.sampled_from(JOB_IDS)
numbers = st.integers(0, PARTITIONS - 1)


class AnyStory(RuleBasedStateMachine):
    """Hypothesis chooses what happens."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story()

    @rule(job_id=job_ids, indices=st.lists(st.integers(-1, 12), min_size=1, max_size=5),
          failing=st.booleans())  # fmt: skip
    def answer_items(self, job_id: str, indices: list[int], failing: bool) -> None:
        self.story.answer_items(job_id, indices, failing)

    @rule(job_id=job_ids, start=st.integers(0, 8))
    def answer_a_row_of_items(self, job_id: str, start: int) -> None:
        self.story.answer_items(job_id, list(range(start, start + 5)), False)

    @rule(job_id=job_ids, index=st.integers(0, 12))
    def intrude(self, job_id: str, index: int) -> None:
        self.story.intrude(job_id, index)

    @precondition(lambda self: self.story.sent)
    @rule(number=st.integers(0, 50), carried=st.booleans())
    def repeat(self, number: int, carried: bool) -> None:
        self.story.repeat(number, carried=carried)

    @rule(job_id=job_ids, kind=st.sampled_from(["descriptor", "seen", "total"]),
          total=st.integers(-1, 13), in_ms=st.sampled_from([0, 1, 500, 20_000]))  # fmt: skip
    def say(self, job_id: str, kind: str, total: int, in_ms: int) -> None:
        self.story.say(job_id, kind, total, in_ms)

    @rule(job_id=job_ids)
    def cancel(self, job_id: str) -> None:
        self.story.say(job_id, "cancel", -1, 0)

    @rule(ms=st.sampled_from([1, 150, 3_000, 12_000]))
    def pass_time(self, ms: int) -> None:
        self.story.world.pass_time(ms)

    @rule(number=numbers, count=st.integers(1, 6))
    def deliver(self, number: int, count: int) -> None:
        self.story.world.deliver(number, count)

    @rule(number=numbers)
    def marker(self, number: int) -> None:
        self.story.world.logs[TopicPartition(RESULTS, number)].marker()

    @rule(number=numbers)
    def hear(self, number: int) -> None:
        self.story.tick()
        self.story.world.hear(number)

    @rule()
    def ask(self) -> None:
        self.story.ask()

    @rule()
    def answer(self) -> None:
        self.story.answer()

    @rule()
    def begin(self) -> None:
        self.story.world.begin()

    @rule()
    def commit(self) -> None:
        self.story.world.commit()

    @rule()
    def abort(self) -> None:
        self.story.asked.clear()
        self.story.tick()
        self.story.world.abort()

    @rule()
    def restart(self) -> None:
        self.story.lose_everything()

    @rule(number=numbers)
    def move(self, number: int) -> None:
        self.story.asked.clear()
        self.story.tick()
        self.story.world.move(number)

    @invariant()
    def holds(self) -> None:
        self.story.model.check()

    def teardown(self) -> None:
        self.story.heal()


TestAnyStory = AnyStory.TestCase
TestAnyStory.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_a_long_random_story_keeps_the_promise(seed: int) -> None:
    chance = random.Random(seed)
    story = Story()
    steps: list[tuple[float, Any]] = [
        (8, lambda: story.answer_items(
            chance.choice(JOB_IDS), [chance.randrange(40) for _ in range(4)], True)),
        (2, lambda: story.repeat(chance.randrange(1_000), carried=chance.random() < 0.3)),
        (0.5, lambda: story.intrude(chance.choice(JOB_IDS), chance.randrange(40))),
        (1, lambda: story.say(chance.choice(JOB_IDS), "seen", chance.choice([-1, 40, 40, 41]), 0)),
        (0.05, lambda: story.say(chance.choice(JOB_IDS), "cancel", -1, 0)),
        (8, lambda: story.world.deliver(chance.randrange(PARTITIONS), chance.randrange(1, 9))),
        (2, lambda: story.world.hear(chance.randrange(PARTITIONS))),
        (1, lambda: story.world.pass_time(chance.choice([1, 10, 200]))),
        (2, story.ask),
        (2, story.answer),
        (6, story.world.commit),
        (0.5, story.lose_everything),
    ]  # fmt: skip
    story.answer_items("a", [3], False)

    for step in chance.choices([s for _, s in steps], [w for w, _ in steps], k=400):
        story.tick()
        step()
        story.model.check()

    story.heal()
