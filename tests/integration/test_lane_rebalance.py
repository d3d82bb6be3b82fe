"""Members come, go, fall silent; partitions appear; offsets are missing: on a real broker."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from streamer.deadline import Deadline
from streamer.event.lane import Assignment, EmitPlan, Now, TopicPartition
from tests.support.kafka_server import Topics
from tests.support.pass_core import PassCore
from tests.support.pass_process import build_pass_loop
from tests.support.passing import CLOCK, emitted, feed, judge, running, wait_until

pytestmark = pytest.mark.integration


def owned(core: PassCore) -> int:
    """Partitions a core was given and not asked back."""
    held: set[TopicPartition] = set()
    for kind, what in list(core.log):
        if kind == "assigned":
            held |= {given.at for given in what}
        elif kind == "revoked":
            held -= set(what)
    return len(held)


def settled(core: PassCore) -> int:
    """Transactions a core saw committed."""
    return sum(1 for kind, _ in list(core.log) if kind == "settled")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_join_and_leave_in_mid_stream_keep_each_record_once(
    kafka: str, prefix: str, topics: Topics, protocol: str
) -> None:
    topics.create("in", 4)
    out = topics.create("out", 4)
    loops = [build_pass_loop(kafka, prefix, slot=slot, protocol=protocol) for slot in range(2)]
    (first, first_core), (second, second_core) = loops
    stop = threading.Event()
    fed = 0

    def keep_feeding() -> None:
        nonlocal fed
        while not stop.is_set():
            feed(kafka, f"{prefix}in", 4, 40, first=fed)
            fed += 40
            stop.wait(0.05)

    feeder = threading.Thread(target=keep_feeding)
    feeder.start()
    try:
        with running(first, second):
            wait_until(lambda: settled(second_core) > 5 and settled(first_core) > 5, 25, "both")
            assert first.stop(Deadline.after(CLOCK.monotonic_ns(), 5_000))
            wait_until(lambda: owned(second_core) == 4, 20, "the second owns all")
            stop.set()
            feeder.join()
            wait_until(lambda: emitted(kafka, out, 4) >= fed, 20, "everything is out")
    finally:
        stop.set()
        feeder.join()

    assert first.failure is None
    assert second.failure is None
    assert judge(kafka, out, 4, fed).is_exact


class _OnlyFinalCore(PassCore):
    """Finishes offsets 0 to 9 and 12 of each partition; would never emit by itself."""

    def finish_some(self) -> bool:
        for at, epoch, offset in self._undone:
            if (offset < 10 or offset == 12) and self._frontiers[at].epoch == epoch:
                self._frontiers[at].finish(offset)
        self._undone.clear()
        return False

    def plan(self, now: Now, *, final: bool = False) -> EmitPlan | None:
        return super().plan(now) if final else None


def test_case_a3_a_revoke_emits_the_finished_prefix_and_the_successor_starts_there(
    kafka: str, prefix: str, topics: Topics
) -> None:
    topics.create("in", 2)
    out = topics.create("out", 2)
    feed(kafka, f"{prefix}in", 2, 30)
    giving = _OnlyFinalCore(out, batch=100)
    taking = PassCore(out, seed=5)
    first, _ = build_pass_loop(kafka, prefix, slot=0, core=giving)
    second, _ = build_pass_loop(kafka, prefix, slot=1, core=taking)

    with running(first):
        wait_until(lambda: sum(f.position for f in giving._frontiers.values()) == 30)
        with running(second):
            wait_until(lambda: owned(taking) == 1, 20, "one partition moves")
            given: Assignment = next(what for kind, what in taking.log if kind == "assigned")[0]
            assert (given.offset, given.metadata) == (10, "m")
            assert [kind for kind, _ in giving.log] == ["assigned", "settled", "revoked"]
            wait_until(lambda: emitted(kafka, out, 2) == 25, 20, "10 of one, 15 of the other")
        assert first.stop(Deadline.after(CLOCK.monotonic_ns(), 5_000))

    last, _ = build_pass_loop(kafka, prefix, slot=0)
    with running(last):
        wait_until(lambda: emitted(kafka, out, 2) >= 30)
    assert judge(kafka, out, 2, 30).is_exact


def test_partitions_and_topics_that_appear_later_are_read_from_their_start(
    kafka: str, prefix: str, topics: Topics
) -> None:
    topics.create("in", 1)
    out = topics.create("out", 3)
    loop, core = build_pass_loop(kafka, prefix, source="in,later")
    loop._source._config["topic.metadata.refresh.interval.ms"] = 300

    with running(loop):
        wait_until(lambda: owned(core) == 1)
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_partitions([NewPartitions(f"{prefix}in", 3)])[f"{prefix}in"].result(10)
        feed(kafka, f"{prefix}in", 3, 30)
        topics.create("later", 1)
        feed(kafka, f"{prefix}later", 1, 10, first=30)
        wait_until(lambda: emitted(kafka, out, 3) >= 40)
        assert owned(core) == 4

    starts = [a.offset for kind, what in core.log if kind == "assigned" for a in what]
    assert starts == [0, 0, 0, 0]
    assert loop.failure is None


def test_a_partition_whose_first_records_are_gone_is_held_and_the_others_go_on(
    kafka: str, prefix: str, topics: Topics
) -> None:
    source = topics.create("in", 2)
    out = topics.create("out", 2)
    feed(kafka, source, 2, 20)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_records([ClientPartition(source, 1, 4)])[ClientPartition(source, 1, 4)].result(10)
    loop, core = build_pass_loop(kafka, prefix)

    with running(loop):
        wait_until(lambda: emitted(kafka, out, 2) >= 10)
        feed(kafka, source, 2, 20, first=20)
        wait_until(lambda: emitted(kafka, out, 2) >= 20)
        held = loop._source.held()

    assert list(held) == [TopicPartition(source, 1)]
    assert "starts at 4" in held[TopicPartition(source, 1)]
    assert {given.at.partition for k, what in core.log if k == "assigned" for given in what} == {0}
    assert loop.failure is None


def test_case_a6_a_member_that_fell_silent_emits_nothing_of_what_it_lost(
    kafka: str, prefix: str, topics: Topics
) -> None:
    topics.create("in", 2)
    out = topics.create("out", 2)
    feed(kafka, f"{prefix}in", 2, 40)
    silent, silent_core = build_pass_loop(
        kafka, prefix, slot=0, session_timeout_ms=2_000, max_poll_interval_ms=2_500
    )
    asleep, wake = threading.Event(), threading.Event()
    finish_some = silent_core.finish_some

    def sleep_once() -> bool:
        if silent_core._frontiers and not asleep.is_set():
            asleep.set()
            wake.wait(25)
        # Its work ends only after it came back: what it still held of the other's would go out.
        came_back = sum(1 for kind, _ in silent_core.log if kind == "assigned") > 1
        return finish_some() if came_back else bool(silent_core._undone)

    silent_core.finish_some = sleep_once  # type: ignore[method-assign]
    other, other_core = build_pass_loop(kafka, prefix, slot=1)
    with running(silent):
        wait_until(asleep.is_set)
        with running(other):
            wait_until(lambda: owned(other_core) == 2, 20, "the other takes over")
            wait_until(lambda: emitted(kafka, out, 2) >= 40)
            wake.set()
            feed(kafka, f"{prefix}in", 2, 40, first=40)
            wait_until(lambda: owned(silent_core) == 1, 20, "the silent one is back")
            wait_until(lambda: emitted(kafka, out, 2) >= 80)

    assert judge(kafka, out, 2, 80).is_exact
    assert silent.failure is None
