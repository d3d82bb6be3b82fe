from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from streamer.errors import BrokerUnreachable, StreamerError
from streamer.event.lane import Assignment, Now, TopicPartition
from streamer.process.custody import Custody
from streamer.process.lane_hooks import LoopLimits, NoHooks
from tests.support.pass_core import PassCore

A = TopicPartition("in", 0)
B = TopicPartition("in", 1)


class _Clock:
    now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return self.now_ns // 1_000_000


class _Source:
    """Owns two partitions; its offsets cannot be read while ``is_down``."""

    is_down = False
    epoch = 10

    def owned(self) -> frozenset[TopicPartition]:
        return frozenset((A, B))

    def rewind(self, partitions: Collection[TopicPartition]) -> list[Assignment]:
        if self.is_down:
            raise BrokerUnreachable("down")
        self.epoch += 1
        return [Assignment(at=at, epoch=self.epoch, offset=0) for at in sorted(partitions)]


class _World:
    def __init__(self) -> None:
        self.clock, self.source, self.core = _Clock(), _Source(), PassCore("out")
        self.custody = Custody(
            name="pass.fast",
            core=self.core,
            source=self.source,  # type: ignore[arg-type]
            hooks=NoHooks(),
            clock=self.clock,
        )

    def now(self) -> Now:
        return Now(self.clock.now_ns, 0)

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.core.log]


def lend(world: _World, *partitions: TopicPartition, epoch: int = 1) -> Sequence[Assignment]:
    given = [Assignment(at=at, epoch=epoch, offset=0) for at in partitions]
    world.custody.lend(given)
    return given


def test_the_core_gives_back_a_partition_before_it_gets_it_again() -> None:
    world = _World()

    lend(world, A, B)
    lend(world, A, epoch=2)

    assert world.kinds() == ["assigned", "revoked", "assigned"]
    assert world.core.log[1] == ("revoked", [A])


def test_only_what_the_core_has_is_taken_back() -> None:
    world = _World()
    lend(world, A)

    world.custody.take_back([A, B])
    world.custody.take_back([A])

    assert world.core.log[1:] == [("revoked", [A])]


def test_giving_up_takes_all_back_and_reading_again_gives_all_out() -> None:
    world = _World()
    lend(world, A, B)

    world.custody.give_up("test")

    assert world.custody.rewinding
    assert world.core.log[-1] == ("revoked", [A, B])
    assert world.custody.rewind(world.now()) == 2
    assert not world.custody.rewinding
    assert world.kinds() == ["assigned", "revoked", "assigned"]


def test_while_nobody_answers_nothing_is_given_out() -> None:
    world = _World()
    lend(world, A)
    world.custody.give_up("test")
    world.source.is_down = True

    assert world.custody.rewind(world.now()) is None
    world.source.is_down = False
    assert world.custody.rewind(world.now()) is None, "too early"
    world.clock.now_ns = world.custody.rewind_at_ns or 0

    assert world.custody.rewind(world.now()) == 2


def test_pauses_grow_with_failures_in_a_row_and_a_commit_forgives() -> None:
    world = _World()
    pauses = []
    for _ in range(5):
        world.custody.give_up("test")
        pauses.append(world.custody.rewind_at_ns)
        world.clock.now_ns = 0

    assert pauses == [0, 0, 150_000_000, 200_000_000, 250_000_000]
    world.custody.succeeded()
    world.custody.give_up("test")
    assert world.custody.rewind_at_ns == 0


def test_a_lane_that_never_succeeds_ends_its_process() -> None:
    world = _World()
    for _ in range(30):
        world.custody.give_up("test")

    with pytest.raises(StreamerError, match="in a row"):
        world.custody.give_up("test")


def test_a_poll_is_short_while_work_is_in_flight_and_ends_when_the_core_wakes() -> None:
    limits = LoopLimits(busy_poll_ms=1, idle_poll_ms=50)

    assert limits.wait_s(busy=True, wake_ns=None, now_ns=0) == 0.001
    assert limits.wait_s(busy=False, wake_ns=None, now_ns=0) == 0.05
    assert limits.wait_s(busy=False, wake_ns=20_000_000, now_ns=0) == 0.02
    assert limits.wait_s(busy=False, wake_ns=0, now_ns=5) == 0.001, "no spinning"
    assert limits.wait_s(busy=False, wake_ns=1 << 60, now_ns=0) == 0.05
