"""What a submitter says about a job besides its items."""

from __future__ import annotations

from streamer.client.errors import InputRefused, JobConflict
from streamer.event.records import JobEntry


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
