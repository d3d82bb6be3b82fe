"""A job id is single-use, also after its job is closed."""

from __future__ import annotations

import pytest

from streamer.client.descriptor import check_closed, descriptor
from streamer.client.errors import JobConflict
from streamer.client.kafka_jobs import JobName
from streamer.event.records import JobEntry, JobState


def an_entry(total: int | None) -> JobEntry:
    name = JobName(lane="bulk", job_id="j")
    return descriptor(
        name, model="m", form="avro", source="", total=total, deadline_ms=None, at_ms=1
    )


def closed(total: int) -> JobState:
    return JobState(lane="bulk", tenant="default", job_id="j", total=total, closed="completed")


def test_the_id_of_a_closed_job_is_refused_for_another_number_of_items() -> None:
    with pytest.raises(JobConflict, match="closed job of 4000 items, not 3000"):
        check_closed(closed(4000), an_entry(3000))


@pytest.mark.parametrize(("before", "now"), [(3000, 3000), (-1, 3000), (3000, None)])
def test_equal_or_unknown_numbers_pass(before: int, now: int | None) -> None:
    check_closed(closed(before), an_entry(now))
