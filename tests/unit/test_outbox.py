"""What leaves in one transaction."""

from __future__ import annotations

import pytest

from streamer.emit.outbox import Outbox, OutboxLimits, finished
from streamer.event.lane import OutRecord, TopicPartition

P0, P1 = TopicPartition("work", 0), TopicPartition("work", 1)


def _out(partition: int, size: int = 10) -> OutRecord:
    return OutRecord("results", partition, None, b"x" * size)


def _outbox(*, start: int = 0, **limits: int) -> Outbox:
    outbox = Outbox(OutboxLimits(**limits))
    for at in (P0, P1):
        outbox.assign(at, epoch=1, start=start)
    return outbox


def _put(
    outbox: Outbox, offset: int, *records: OutRecord, at: TopicPartition = P0, epoch: int = 1,
    now_ns: int = 0,
) -> bool:  # fmt: skip
    done = finished(records, counts=(1, 0, 0, 0), now_ns=now_ns)
    return outbox.put(at, epoch=epoch, offset=offset, done=done)


def test_only_the_contiguous_finished_prefix_leaves_with_the_offset_that_covers_it() -> None:
    outbox = _outbox(start=3)
    for offset in (3, 4, 7, 8):
        outbox.track(P0, offset)
    for offset in (7, 3, 8):
        _put(outbox, offset, _out(offset))

    cut = outbox.cut()

    assert [record.partition for record in cut.records] == [3]
    assert cut.offsets == {P0: 4}
    outbox.settled(cut)
    outbox.check()
    assert outbox.cut() is None
    _put(outbox, 4)
    cut = outbox.cut()
    assert [record.partition for record in cut.records] == [7, 8]
    assert cut.offsets == {P0: 9}
    assert cut.counts == (3, 0, 0, 0)


def test_the_prefix_is_cut_where_one_output_partition_too_many_would_be_opened() -> None:
    outbox = _outbox(partitions_max=16)
    for offset in range(20):
        outbox.track(P0, offset)
        _put(outbox, offset, _out(offset))

    cut = outbox.cut()

    assert len({record.at for record in cut.records}) == 16
    assert cut.offsets == {P0: 16}
    outbox.settled(cut)
    assert outbox.cut().offsets == {P0: 20}


def test_one_source_record_over_the_bound_still_leaves_alone() -> None:
    outbox = _outbox(partitions_max=2, bytes_max=50)
    for offset in range(2):
        outbox.track(P0, offset)
        _put(outbox, offset, *(_out(p, 100) for p in range(5)))

    cut = outbox.cut()

    assert cut.offsets == {P0: 1}
    assert len(cut.records) == 5


def test_a_cut_is_bounded_in_bytes() -> None:
    outbox = _outbox(bytes_max=1_000)
    for offset in range(100):
        outbox.track(P0, offset)
        _put(outbox, offset, _out(0, 100))

    cut = outbox.cut()

    assert sum(len(record.value) for record in cut.records) <= 1_000
    assert 0 < cut.offsets[P0] < 100


def test_no_partition_is_starved_by_its_neighbour() -> None:
    outbox = _outbox(partitions_max=1)
    for offset in range(10):
        for number, at in enumerate((P0, P1)):
            outbox.track(at, offset)
            _put(outbox, offset, _out(number), at=at)

    served = set()
    for _ in range(2):
        cut = outbox.cut()
        served |= cut.offsets.keys()
        outbox.settled(cut)

    assert served == {P0, P1}
    assert outbox.size_bytes == 0
    assert outbox.items == 0


def test_output_of_an_old_epoch_is_not_kept() -> None:
    outbox = _outbox()
    outbox.track(P0, 0)
    _put(outbox, 0, _out(1))
    outbox.assign(P0, epoch=2, start=0)

    assert outbox.items == 0
    assert not _put(outbox, 0, _out(1), epoch=1)
    assert outbox.cut() is None


def test_a_commit_of_an_old_epoch_forgets_nothing_of_the_new_one() -> None:
    outbox = _outbox()
    outbox.track(P0, 0)
    _put(outbox, 0, _out(1))
    cut = outbox.cut()
    outbox.assign(P0, epoch=2, start=0)
    outbox.track(P0, 0)
    _put(outbox, 0, _out(1), epoch=2)

    outbox.settled(cut)

    outbox.check()
    assert outbox.items == 1


def test_a_record_finishes_once() -> None:
    outbox = _outbox()
    outbox.track(P0, 0)
    _put(outbox, 0)

    with pytest.raises(AssertionError, match="twice"):
        _put(outbox, 0)


def test_waiting_counts_from_the_oldest_prefix_that_could_leave() -> None:
    outbox = _outbox()
    for offset in range(3):
        outbox.track(P0, offset)
    _put(outbox, 1, now_ns=5)

    assert outbox.ready_since() is None
    _put(outbox, 0, now_ns=9)
    assert outbox.ready_since() == 9
