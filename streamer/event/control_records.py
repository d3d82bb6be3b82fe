"""Records about jobs, plans, failures and processes: what is known, not what is asked or answered.

Part of the vocabulary of ``records``, which names them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The last record of a job in ``outputs``."""

    lane: str
    tenant: str
    job_id: str
    form: str
    status: str
    total: int
    counts: Mapping[str, int]
    digest: bytes
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """What aggregate must know of a job after a restart (compacted topic ``job-state``).

    Attributes:
        next_index: first index not released.
        total: -1 while unknown.
        deadline_at_ms: 0 while unknown.
        counts: released rows by item state.
        digest: running digest over the released rows.
        results_from: lowest results offset that may hold a row of this job; -1 unknown.
        released_origin: requests partition -> highest released origin offset.
        closed: "" while open, else a job state; a closed mark stays until its tombstone.
        form, encoding: of the job's first released item; "" while unknown.
    """

    lane: str
    tenant: str
    job_id: str
    version: int = 1
    next_index: int = 0
    total: int = -1
    deadline_at_ms: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    digest: bytes = bytes(DIGEST_BYTES)
    results_from: int = -1
    released_origin: Mapping[int, int] = field(default_factory=dict)
    closed: str = ""
    closed_reason: str = ""
    closed_at_ms: int = 0
    closed_at_offset: int = -1
    total_conflict: bool = False
    form: str = ""
    encoding: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEntry:
    """One record of ``jobs.<lane>``; key text ``lane/tenant/job#kind``.

    ``kind``: ``descriptor`` (SDK and CLI: model, form, deadline, total when known, file
    digest for resume), ``seen`` (route: deadline, total), ``total`` (SDK at the end of a
    stream), ``cancel``.
    """

    lane: str
    tenant: str
    job_id: str
    kind: str
    total: int = -1
    deadline_at_ms: int = 0
    model: str = ""
    form: str = ""
    source: str = ""
    created_at_ms: int = 0
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlan:
    """Which partition of ``work.<model>.<lane>`` carries which length class.

    Attributes:
        bounds: upper token bound of each bucket, ascending, the last one covers all.
        labels: bucket of each partition; every bucket has at least one partition.
    """

    model: str
    lane: str
    version: int
    bounds: tuple[int, ...]
    labels: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One record or row that could not become an answer, with where it came from.

    ``value`` holds the raw bytes only when the record was undecodable.
    """

    topic: str
    partition: int
    offset: int
    stage: str
    code: str
    message: str
    tenant: str = ""
    job_id: str | None = None
    index: int = -1
    custom_id: str = ""
    key: bytes | None = None
    value: bytes | None = None
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that happened in a process, for views only (topic ``events``)."""

    name: str
    process: str
    slot: int
    at_ms: int
    lane: str = ""
    model: str = ""
    fields: Mapping[str, float] = field(default_factory=dict)
