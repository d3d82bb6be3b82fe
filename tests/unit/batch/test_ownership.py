from __future__ import annotations

from streamer.batch.ownership import GAP_RETRY_NS, RETRY_NS, Ownership
from streamer.batch.placement import Held, Placed, place
from streamer.event.lane import Assignment, TopicPartition

AT = TopicPartition("in", 0)
OTHER = TopicPartition("in", 1)


def test_epochs_only_grow_and_outlive_assignments() -> None:
    mine = Ownership()

    first = mine.own(AT, Placed(5, "note"))
    mine.forget([AT])
    second = mine.own(AT, Placed(7))

    assert first == Assignment(at=AT, epoch=1, offset=5, metadata="note")
    assert (second.epoch, second.offset) == (2, 7)


def test_a_record_counts_only_under_the_epoch_in_which_it_came_out() -> None:
    mine = Ownership()
    mine.own(AT, Placed(5))
    stale = mine.stamp(AT)
    assert stale is not None
    mine.own(AT, Placed(5))

    assert not mine.take(AT, stale, 5)
    assert mine.take(AT, stale + 1, 5)
    assert mine.stamp(OTHER) is None
    assert not mine.take(OTHER, 1, 0)


def test_gaps_are_fine_but_a_step_back_stops_the_partition_until_it_is_rewound() -> None:
    mine = Ownership()
    epoch = mine.own(AT, Placed(5)).epoch

    assert mine.take(AT, epoch, 8)
    assert not mine.take(AT, epoch, 8)
    assert mine.misplaced() == {AT}
    assert not mine.take(AT, epoch, 9)

    epoch = mine.own(AT, Placed(9)).epoch
    assert mine.misplaced() == set()
    assert mine.take(AT, epoch, 9)


def test_the_clients_position_is_trusted_only_after_a_record_of_this_epoch() -> None:
    mine = Ownership()
    epoch = mine.own(AT, Placed(100)).epoch
    assert mine.moved() == []
    mine.take(AT, epoch, 500)
    assert mine.moved() == [AT]

    mine.own(AT, Placed(100))

    assert mine.moved() == []


def test_a_held_partition_is_not_owned_and_is_asked_about_again() -> None:
    mine = Ownership()
    mine.own(OTHER, Placed(0))

    assert mine.hold(AT, Held("unknown"), now_ns=0)
    assert not mine.hold(AT, Held("unknown"), now_ns=0)

    assert mine.owned() == {OTHER}
    assert mine.owned_of([AT, OTHER]) == [OTHER]
    assert list(mine.held()) == [AT]
    assert not mine.retry_due(RETRY_NS - 1)
    assert mine.retry_due(RETRY_NS)
    mine.hold(AT, Held("gone", is_gap=True), now_ns=RETRY_NS)
    assert not mine.retry_due(RETRY_NS + GAP_RETRY_NS - 1)
    mine.own(AT, Placed(3))
    assert mine.held() == {}
    assert not mine.retry_due(1 << 62)


def test_only_what_is_owned_can_be_misplaced() -> None:
    mine = Ownership()
    mine.misplace(AT)
    assert mine.misplaced() == set()

    mine.own(AT, Placed(0))
    mine.misplace(AT)

    assert mine.misplaced() == {AT}
    mine.forget([AT])
    assert mine.misplaced() == set()


def test_reading_starts_at_the_committed_offset_with_its_metadata() -> None:
    assert place(committed=7, metadata="v1", log_start=None) == Placed(7, "v1")
    assert place(committed=7, metadata="", log_start=7) == Placed(7)


def test_without_a_committed_offset_only_a_whole_log_is_read() -> None:
    assert place(committed=None, metadata="", log_start=0) == Placed(0)

    for start, is_gap in ((None, False), (4, True)):
        held = place(committed=None, metadata="", log_start=start)
        assert isinstance(held, Held)
        assert held.is_gap is is_gap


def test_a_committed_offset_below_the_start_of_the_log_is_a_gap() -> None:
    held = place(committed=3, metadata="", log_start=4)

    assert isinstance(held, Held)
    assert held.is_gap
    assert "3" in held.reason
    assert "4" in held.reason


def test_a_gap_does_not_delay_those_that_may_be_placed_in_a_moment() -> None:
    mine = Ownership()
    mine.hold(OTHER, Held("not known yet"), 0)
    mine.hold(AT, Held("gone", is_gap=True), 0)

    assert mine.retry_due(RETRY_NS)


def test_the_end_of_a_partition_counts_in_its_epoch_only() -> None:
    mine = Ownership()
    mine.own(AT, Placed(5))
    mine.reached(AT, 9)
    mine.reached(OTHER, 9)
    assert mine.ends() == {AT: 9}

    mine.own(AT, Placed(5))
    assert mine.ends() == {}

    mine.reached(AT, 9)
    mine.misplace(AT)
    assert mine.ends() == {}
