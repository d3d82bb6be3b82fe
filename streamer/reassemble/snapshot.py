"""A job in memory <-> its record in the compacted topic ``job-state``."""

from __future__ import annotations

from streamer.errors import ConfigurationError
from streamer.event.codes import STATUSES
from streamer.event.records import JobState
from streamer.event.topics import job_key
from streamer.reassemble.job import CLOSING_OF_REASON, CLOSING_REASON, ENDED, Job

VERSION = 1


def state_of(job: Job, *, lane: str, closed_at_ms: int = 0, reason: str = "") -> JobState:
    """The record of a job as it stands; ``closed_at_ms`` and ``reason`` only once it has ended.

    A job whose holes are being filled is still open, with the reason already set: a successor
    goes on filling and does not judge again.
    """
    ended = job.life in ENDED
    return JobState(
        lane=lane,
        tenant=job.tenant,
        job_id=job.job_id,
        version=VERSION,
        next_index=job.next_index,
        total=job.total,
        deadline_at_ms=job.deadline_at_ms,
        counts={name: count for name, count in zip(STATUSES, job.counts, strict=True) if count},
        digest=job.digest,
        results_from=job.results_from,
        released_origin=dict(job.released_origin),
        closed=job.life.value if ended else "",
        closed_reason=reason if ended else CLOSING_REASON.get(job.life, ""),
        closed_at_ms=closed_at_ms,
        closed_at_offset=job.last_offset if ended else -1,
        total_conflict=job.total_conflict,
        form=job.form,
        encoding=job.encoding,
    )


def job_from(state: JobState, *, at_ms: int) -> Job:
    """The open job that ``state`` (appended at ``at_ms``) describes.

    Raises:
        ConfigurationError: a newer version of streamer wrote it.
    """
    check_version(state)
    job = Job(
        key=job_key(state.lane, state.tenant, state.job_id),
        tenant=state.tenant,
        job_id=state.job_id,
    )
    job.next_index = state.next_index
    job.total = state.total
    job.total_conflict = state.total_conflict
    job.deadline_at_ms = state.deadline_at_ms
    job.counts = [state.counts.get(name, 0) for name in STATUSES]
    job.digest = state.digest
    job.results_from = state.results_from
    job.released_origin = dict(state.released_origin)
    job.form = state.form
    job.encoding = state.encoding
    job.life = CLOSING_OF_REASON.get(state.closed_reason, job.life)
    job.saw(at_ms)
    return job


def check_version(state: JobState) -> None:
    """Refuse a record whose meaning we cannot know.

    Raises:
        ConfigurationError: a newer version of streamer wrote it.
    """
    if state.version > VERSION:
        raise ConfigurationError(
            f"job state of version {state.version} was written by a newer streamer: "
            f"this one reads up to {VERSION}; upgrade before taking over its jobs"
        )
