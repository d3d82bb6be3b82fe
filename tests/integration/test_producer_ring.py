"""The ring of transactional producers against a real broker, fault by fault."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from streamer.deadline import Deadline
from streamer.emit.kafka_ring import Outcome, ProducerRing, RingLimits
from streamer.emit.ring import SlotState
from streamer.errors import ConfigurationError, ProducerFenced
from streamer.event.lane import EmitPlan, OffsetMark, OutRecord, TopicPartition
from tests.support.kafka_server import Topics
from tests.support.passing import CLOCK, read_all

pytestmark = pytest.mark.integration


class World:
    """A ring that writes to ``out`` and commits offsets of ``in``."""

    def __init__(self, bootstrap: str, prefix: str, topics: Topics) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.source = topics.create("in", 1)
        self.out = topics.create("out", 2)
        self.rebuilds: list[str] = []
        self.group = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{prefix}group"})
        self.rings: list[ProducerRing] = []

    def ring(
        self, *, crash: Callable[[str], None] | None = None, timeout_ms: int = 3_000
    ) -> ProducerRing:
        ring = ProducerRing(
            properties={"bootstrap.servers": self.bootstrap},
            id_prefix=f"{self.prefix}ring-0",
            limits=RingLimits(
                producers=2, tick_ms=20, transaction_timeout_ms=timeout_ms, missing_topic_ms=300
            ),
            clock=CLOCK,
            crash=crash or (lambda point: None),
            rebuilt=self.rebuilds.append,
        )
        ring.start(Deadline.after(CLOCK.monotonic_ns(), 20_000))
        self.rings.append(ring)
        return ring

    def plan(self, value: bytes, offset: int, *, topic: str = "", partition: int = 0) -> EmitPlan:
        record = OutRecord(topic or self.out, partition, None, value, {"h": b"1"})
        return EmitPlan([record], {TopicPartition(self.source, 0): OffsetMark(offset, "note")})

    def emit(self, ring: ProducerRing, value: bytes, offset: int) -> Outcome:
        return ring.emit(self.plan(value, offset), self.group.consumer_group_metadata())

    def committed(self) -> tuple[int, str | None]:
        [found] = self.group.committed([ClientPartition(self.source, 0)], timeout=10)
        return found.offset, found.metadata

    def values(self) -> list[bytes | None]:
        return [record.value for record in read_all(self.bootstrap, self.out, 2)]


@pytest.fixture
def world(kafka: str, prefix: str, topics: Topics) -> Iterator[World]:
    built = World(kafka, prefix, topics)
    yield built
    for ring in built.rings:
        ring.drop()
    built.group.close()


def once(point: str, act: Callable[[], None]) -> Callable[[str], None]:
    """Does ``act`` when ``point`` is reached for the first time."""
    left = [1]

    def crash(reached: str) -> None:
        if reached == point and left[0]:
            left[0] = 0
            act()

    return crash


def test_producers_take_turns_and_every_emission_leaves_once(world: World) -> None:
    used: list[int] = []

    def note(point: str) -> None:
        if point == "before_produce":
            used.extend(i for i in range(2) if ring._ring.state(i) is SlotState.OPEN)

    ring = world.ring(crash=note)

    outcomes = [world.emit(ring, b"%d" % n, n + 1) for n in range(12)]

    assert set(outcomes) == {Outcome.COMMITTED}
    assert used == [0, 1] * 6
    assert world.values() == [b"%d" % n for n in range(12)]
    assert world.committed() == (12, "note")
    assert world.rebuilds == ["new", "new"]


def test_an_aborted_transaction_leaves_nothing_and_costs_the_producer(world: World) -> None:
    def abort() -> None:
        ring._producers[0]._required.purge()
        raise_aborted()

    ring = world.ring(crash=once("after_offsets", lambda: abort()))

    assert world.emit(ring, b"lost", 5) is Outcome.ABORTED
    assert world.emit(ring, b"kept", 6) is Outcome.COMMITTED

    assert world.values() == [b"kept"]
    assert world.committed()[0] == 6
    assert world.rebuilds == ["new", "new", "aborted"]
    seen = [r.value for r in read_all(world.bootstrap, world.out, 2, committed=False)]
    assert seen == [b"lost", b"kept"]


def raise_aborted() -> None:
    from streamer.errors import TransactionAborted

    raise TransactionAborted("asked for by the test")


def raise_unknown() -> None:
    from streamer.errors import TransactionUnknown

    raise TransactionUnknown("asked for by the test")


@pytest.mark.parametrize(("point", "truth"), [("before_commit", -1001), ("after_commit", 5)])
def test_case_a5_after_an_unknown_outcome_the_committed_offset_tells_the_truth(
    world: World, point: str, truth: int
) -> None:
    ring = world.ring(crash=once(point, raise_unknown))

    assert world.emit(ring, b"in doubt", 5) is Outcome.UNKNOWN

    assert world.committed()[0] == truth
    assert world.values() == ([b"in doubt"] if truth == 5 else [])
    assert world.rebuilds[2:] == ["unknown"]
    assert world.emit(ring, b"next", 6) is Outcome.COMMITTED


def test_our_own_transaction_timeout_is_survived(world: World) -> None:
    ring = world.ring(crash=once("before_commit", lambda: time.sleep(2.7)), timeout_ms=1_000)

    first = world.emit(ring, b"too late", 5)
    second = world.emit(ring, b"in time", 6)

    assert first in (Outcome.FENCED, Outcome.ABORTED, Outcome.UNKNOWN)
    assert second is Outcome.COMMITTED
    assert world.values() == [b"in time"]


def test_two_processes_with_one_slot_do_not_fence_each_other_for_ever(world: World) -> None:
    mine = world.ring()
    assert world.emit(mine, b"1", 1) is Outcome.COMMITTED
    rival = world.ring()

    assert world.emit(mine, b"2", 2) is Outcome.FENCED  # rebuilt: now the rival is fenced

    def fight() -> None:
        for n in range(3, 9):
            world.emit(rival, b"%d" % n, n)
            world.emit(mine, b"%d" % n, n)

    with pytest.raises(ProducerFenced, match="slot"):
        fight()

    assert b"1" in world.values()


def test_a_wrong_target_is_refused_before_the_transaction_begins(world: World) -> None:
    ring = world.ring()
    wrong = world.plan(b"x", 1, partition=2)
    missing = world.plan(b"x", 1, topic=f"{world.prefix}nowhere")
    metadata = world.group.consumer_group_metadata()

    for plan in (wrong, missing):
        with pytest.raises(ConfigurationError, match="partition"):
            ring.emit(plan, metadata)

    assert ring._ring.state(0) is SlotState.READY
    assert world.emit(ring, b"fine", 2) is Outcome.COMMITTED


def test_a_plan_without_offsets_or_with_too_many_partitions_is_a_defect(world: World) -> None:
    ring = world.ring()
    plan = world.plan(b"x", 1)
    many = [OutRecord(world.out, partition, None, b"x") for partition in range(17)]

    for bad in (EmitPlan(plan.records, {}), EmitPlan(many, plan.offsets)):
        with pytest.raises(AssertionError):
            ring.emit(bad, world.group.consumer_group_metadata())


def test_a_record_above_the_topics_limit_aborts_and_the_ring_lives(
    world: World, topics: Topics
) -> None:
    small = topics.create("small", 1, max_message_bytes=1_000)
    points: list[str] = []
    ring = world.ring(crash=points.append)
    plan = world.plan(os.urandom(10_000), 1, topic=small)

    assert ring.emit(plan, world.group.consumer_group_metadata()) is Outcome.ABORTED
    assert points == ["before_produce"], "a bad delivery ends it before the offsets"
    assert world.emit(ring, b"fine", 2) is Outcome.COMMITTED
    assert world.committed()[0] == 2


def test_a_surplus_end_of_transaction_rebuilds_the_producer_before_its_next_begin(
    world: World,
) -> None:
    ring = world.ring()
    assert world.emit(ring, b"0", 1) is Outcome.COMMITTED
    ring._ring._slots[0].commits -= 1  # as if the client had sent its request twice

    for n in range(1, 5):
        assert world.emit(ring, b"%d" % n, n + 1) is Outcome.COMMITTED

    assert world.rebuilds == ["new", "new", "dirty"]
    assert world.values() == [b"%d" % n for n in range(5)]
