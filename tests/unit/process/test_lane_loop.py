"""Rebalance callbacks of the loop, with a source and a ring that do what the test says."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator

import pytest

from streamer.clock import SystemClock
from streamer.deadline import Deadline
from streamer.emit.kafka_ring import Outcome
from streamer.event.lane import Assignment, EmitPlan, Record, TopicPartition
from streamer.process.lane_loop import LaneLoop, LoopLimits
from tests.support.pass_core import PassCore, PassHooks

A = TopicPartition("in", 0)
B = TopicPartition("in", 1)
CLOCK = SystemClock()


class _Source:
    def __init__(self) -> None:
        self.mine = {A, B}
        self.metadata: object | None = b"member"

    def group_metadata(self) -> object | None:
        return self.metadata

    def owned(self) -> frozenset[TopicPartition]:
        return frozenset(self.mine)

    def rewind(self, partitions: Collection[TopicPartition]) -> list[Assignment]:
        return [Assignment(at=at, epoch=9, offset=0) for at in sorted(partitions)]


class _Ring:
    is_rebuilding = False

    def __init__(self) -> None:
        self.outcome = Outcome.COMMITTED
        self.open = threading.Event()
        self.open.set()
        self.plans: list[EmitPlan] = []

    def tick(self) -> float:
        return 0.01

    def emit(self, plan: EmitPlan, group_metadata: object) -> Outcome:
        assert group_metadata == b"member"
        self.plans.append(plan)
        self.open.wait(10)
        return self.outcome

    def close(self) -> None:
        pass

    def drop(self) -> None:
        pass


class _World:
    def __init__(self, *, revoke_ms: int = 5_000) -> None:
        self.core, self.source, self.ring = PassCore("out"), _Source(), _Ring()
        self.loop = LaneLoop(
            name="pass.fast",
            core=self.core,
            source=self.source,  # type: ignore[arg-type]
            ring=self.ring,  # type: ignore[arg-type]
            clock=CLOCK,
            hooks=PassHooks(self.core),
            limits=LoopLimits(busy_poll_ms=1, revoke_ms=revoke_ms),
        )
        self.loop._commit.start()
        self.loop.on_assigned([Assignment(at=at, epoch=1, offset=0) for at in (A, B)])
        for at in (A, B):
            record = Record(at.topic, at.partition, 0, -1, None, b"%d" % at.partition, {})
            self.core.deliver([record], self.loop._now())

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.core.log]

    def close(self) -> None:
        self.ring.open.set()
        self.loop._commit.stop(Deadline.after(CLOCK.monotonic_ns(), 5_000))


@pytest.fixture
def worlds() -> Iterator[list[_World]]:
    made: list[_World] = []
    yield made
    for world in made:
        world.close()


def test_what_is_lost_is_forgotten_without_an_emission(worlds: list[_World]) -> None:
    world = _World()
    worlds.append(world)

    world.loop.on_lost([A])

    assert world.core.log[1:] == [("revoked", [A])]
    assert world.ring.plans == []


def test_what_is_revoked_is_emitted_settled_and_only_then_forgotten(worlds: list[_World]) -> None:
    world = _World()
    worlds.append(world)

    world.loop.on_revoked([A])

    assert world.kinds() == ["assigned", "settled", "revoked"]
    assert [set(plan.offsets) for plan in world.ring.plans] == [{A, B}]


def test_a_failed_emission_inside_a_revoke_gives_everything_up(worlds: list[_World]) -> None:
    world = _World()
    worlds.append(world)
    world.ring.outcome = Outcome.UNKNOWN

    world.loop.on_revoked([A])
    world.source.mine = {B}

    assert world.kinds() == ["assigned", "revoked"]
    assert world.core.log[1] == ("revoked", [A, B])
    world.loop._rewind(world.loop._now())
    assert world.core.log[2] == ("assigned", [Assignment(at=B, epoch=9, offset=0)])


def test_without_a_member_id_nothing_leaves_and_a_revoke_reads_the_rest_again(
    worlds: list[_World],
) -> None:
    world = _World()
    worlds.append(world)
    world.source.metadata = None

    world.loop.on_revoked([A])

    assert world.ring.plans == []
    assert world.loop._custody.rewinding
    assert {at for kind, what in world.core.log if kind == "revoked" for at in what} == {A, B}


def test_an_emission_that_outlives_the_revoke_is_not_settled_even_if_it_commits(
    worlds: list[_World],
) -> None:
    world = _World(revoke_ms=30)
    worlds.append(world)
    world.ring.open.clear()

    world.loop.on_revoked([A])
    world.ring.open.set()
    while world.loop._commit.busy:
        world.loop._collect(1.0)

    assert "settled" not in world.kinds()
    assert world.loop._custody.rewinding
