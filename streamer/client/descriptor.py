"""What a submitter says about a job besides its items."""

from __future__ import annotations

from streamer.client.errors import InputRefused, JobConflict
from streamer.client.kafka_jobs import JobName
from streamer.event.codes import FORMS, LANES
from streamer.event.records import JobEntry, JobState
from streamer.event.topics import JOB_ID


def descriptor(
    name: JobName,
    *,
    model: str,
    form: str,
    source: str,
    total: int | None,
    deadline_ms: int | None,
    at_ms: int,
) -> JobEntry:
    """The first thing said about a job.

    Args:
        name: of the job.
        model: for items that name none.
        form: of the answers.
        source: digest of the input, "" when nobody knows.
        total: items, None while nobody knows.
        deadline_ms: from now, None = the service's default.
        at_ms: now, Unix ms.

    Raises:
        InputRefused: a value is not possible.
    """
    if name.lane not in LANES:
        raise InputRefused(f"lane must be one of {', '.join(LANES)}")
    if form not in FORMS:
        raise InputRefused(f"form must be one of {', '.join(FORMS)}")
    if not JOB_ID.match(name.job_id):
        raise InputRefused("job_id must be 1 to 64 of A-Z a-z 0-9 . _ -")
    if deadline_ms is not None and deadline_ms <= 0:
        raise InputRefused("deadline_ms must be above 0")
    return JobEntry(
        lane=name.lane,
        tenant=name.tenant,
        job_id=name.job_id,
        kind="descriptor",
        total=-1 if total is None else total,
        deadline_at_ms=0 if deadline_ms is None else at_ms + deadline_ms,
        model=model,
        form=form,
        source=source,
        created_at_ms=at_ms,
    )


def check_same(before: JobEntry, now: JobEntry) -> None:
    """Refuse a job id that was given to other input before.

    Raises:
        JobConflict: model, input or form differ.
    """
    for what, old, new in (("model", before.model, now.model), ("input", before.source, now.source),
                           ("form", before.form, now.form)):  # fmt: skip
        if old != new:
            raise JobConflict(
                f"job id {now.job_id} belongs to a job with another {what}: choose another id "
                "(ids are single-use for as long as results are kept)"
            )


def check_closed(before: JobState, now: JobEntry) -> None:
    """Refuse the id of a closed job for other input; its descriptor is gone, its counts are not.

    Raises:
        JobConflict: the number of items differs.
    """
    if now.total >= 0 and before.total >= 0 and before.total != now.total:
        raise JobConflict(
            f"job id {now.job_id} belongs to a closed job of {before.total} items, not "
            f"{now.total}: choose another id (ids are single-use for as long as results are kept)"
        )


def total_entry(descriptor: JobEntry, count: int, at_ms: int) -> JobEntry | None:
    """What is said after the last of ``count`` items; None when the descriptor said it already."""
    if descriptor.total == count:
        return None
    if descriptor.total >= 0:
        raise InputRefused(
            f"job {descriptor.job_id}: total is {descriptor.total}, but {count} items were given; "
            "the job ends by its deadline, or cancel it"
        )
    return JobEntry(
        lane=descriptor.lane,
        tenant=descriptor.tenant,
        job_id=descriptor.job_id,
        kind="total",
        total=count,
        model=descriptor.model,
        form=descriptor.form,
        created_at_ms=at_ms,
    )
