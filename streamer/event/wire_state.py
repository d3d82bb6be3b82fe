"""Job states, job entries, plans, dead letters and facts to and from their dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any

from streamer.event.columns import MAX_ITEMS, expect, pack, unpack
from streamer.event.records import (
    DIGEST_BYTES,
    BucketPlan,
    DeadLetter,
    Fact,
    JobEntry,
    JobState,
)

Datum = Mapping[str, Any]

JOB_STATE_VERSION = 1


_NAMES: Mapping[type, tuple[str, ...]] = {
    record: tuple(field.name for field in fields(record))
    for record in (JobState, JobEntry, DeadLetter, Fact)
}


def plain_datum(record: JobEntry | DeadLetter | Fact) -> dict[str, Any]:
    """The dictionary of a record whose fields are those of its schema."""
    return {name: getattr(record, name) for name in _NAMES[type(record)]}


def job_state_datum(state: JobState) -> dict[str, Any]:
    """The dictionary of a job state; the released origins become two columns."""
    expect(len(state.digest) == DIGEST_BYTES, "digest: length")
    partitions = sorted(state.released_origin)
    datum = {name: getattr(state, name) for name in _NAMES[JobState] if name != "released_origin"}
    datum["released_partition"] = pack(partitions, "<i4")
    datum["released_offset"] = pack([state.released_origin[p] for p in partitions], "<i8")
    return datum


def job_state_of(datum: dict[str, Any]) -> JobState:
    """The job state of a dictionary."""
    expect(datum["version"] <= JOB_STATE_VERSION, f"version {datum['version']} is too new")
    expect(len(datum["digest"]) == DIGEST_BYTES, "digest: length")
    partitions, offsets = datum.pop("released_partition"), datum.pop("released_offset")
    count = len(partitions) // 4
    at = unpack(partitions, "<i4", count, "released_partition").tolist()
    highest = unpack(offsets, "<i8", count, "released_offset").tolist()
    return JobState(**datum, released_origin=dict(zip(at, highest, strict=True)))


def job_of(datum: dict[str, Any]) -> JobEntry:
    """The job entry of a dictionary."""
    return JobEntry(**datum)


def plan_datum(plan: BucketPlan) -> dict[str, Any]:
    """The dictionary of a bucket plan."""
    check_plan(plan)
    return {
        "model": plan.model,
        "lane": plan.lane,
        "version": plan.version,
        "bounds": list(plan.bounds),
        "labels": list(plan.labels),
    }


def plan_of(datum: Datum) -> BucketPlan:
    """The bucket plan of a dictionary."""
    plan = BucketPlan(
        model=datum["model"],
        lane=datum["lane"],
        version=datum["version"],
        bounds=tuple(datum["bounds"]),
        labels=tuple(datum["labels"]),
    )
    check_plan(plan)
    return plan


def check_plan(plan: BucketPlan) -> None:
    """Raise unless bounds ascend and every bucket, and no other, has a partition."""
    bounds = plan.bounds
    expect(0 < len(bounds) <= MAX_ITEMS, "plan: no bucket")
    expect(len(plan.labels) <= MAX_ITEMS, "plan: too many partitions")
    expect(all(a < b for a, b in pairwise(bounds)), "plan: bounds must ascend")
    expect(set(plan.labels) == set(range(len(bounds))), "plan: a bucket without a partition")


def dead_letter_of(datum: dict[str, Any]) -> DeadLetter:
    """The dead letter of a dictionary."""
    return DeadLetter(**datum)


def fact_of(datum: dict[str, Any]) -> Fact:
    """The fact of a dictionary."""
    return Fact(**datum)
