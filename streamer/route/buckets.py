"""Length classes and the bucket plan: which partition of a stream carries which class.

A plan is a hint for efficiency. Correctness never depends on it, so a plan that does not fit the
topic is ignored rather than obeyed. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from streamer.event.records import BucketPlan

BUCKETS_MAX = 4
_SHUFFLES = 300


def bucket_of(plan: BucketPlan, tokens: int) -> int:
    """The class of a text: the first bound that is not below it, else the last class."""
    return min(bisect_left(plan.bounds, tokens), len(plan.bounds) - 1)


def default_plan(*, model: str, lane: str, partitions: int, max_length: int) -> BucketPlan:
    """The plan used until one is published: version 0, one class.

    More classes pay only when their bounds follow the lengths that really come: a job of short
    texts alone would leave the partitions of the long class idle. Padding does not need them,
    since records are sorted.
    """
    return static_plan(
        model=model, lane=lane, version=0, bounds=(max_length,), counts=(partitions,)
    )


def static_plan(
    *, model: str, lane: str, version: int, bounds: Sequence[int], counts: Sequence[int]
) -> BucketPlan:
    """A plan with these bounds and so many partitions for each of its classes."""
    return BucketPlan(
        model=model, lane=lane, version=version, bounds=tuple(bounds), labels=interleaved(counts)
    )


def why_unusable(plan: BucketPlan, partitions: int) -> str | None:
    """What is wrong with a published plan for a topic of so many partitions; None = nothing."""
    buckets = len(plan.bounds)
    if not 1 <= buckets <= BUCKETS_MAX:
        return f"{buckets} buckets; 1 to {BUCKETS_MAX} are possible"
    if list(plan.bounds) != sorted(set(plan.bounds)) or plan.bounds[0] < 1:
        return "bounds do not ascend"
    if len(plan.labels) != partitions:
        return f"{len(plan.labels)} labels for {partitions} partitions"
    if set(plan.labels) != set(range(buckets)):
        return "a bucket without a partition, or a label without a bucket"
    return None


def interleaved(counts: Sequence[int], *, seed: int = 0) -> tuple[int, ...]:
    """Labels of the partitions: each bucket spread over whatever share a worker may own.

    The best of 300 seeded shuffles by the worst max / mean of a bucket's partitions a worker, over
    worker counts, for owners of blocks as well as of every n-th partition. Blocks or a regular
    pattern would line up with an assignor and give one worker all long texts.

    Args:
        counts: partitions of each bucket.
        seed: the same seed gives the same labels.
    """
    labels = np.repeat(np.arange(len(counts)), counts)
    if len(counts) == 1:
        return tuple(int(label) for label in labels)
    shuffle = np.random.Generator(np.random.PCG64(seed))
    candidates = [shuffle.permutation(labels) for _ in range(_SHUFFLES)]
    best = min(candidates, key=lambda candidate: unevenness(candidate.tolist()))
    return tuple(int(label) for label in best)


def unevenness(labels: Sequence[int]) -> tuple[float, float]:
    """How unfair labels are: (worst, mean) of max / mean over worker counts; 1 = fair."""
    row = np.asarray(labels)
    ratios = []
    for workers in range(2, min(len(row), 8) + 1):
        at = np.arange(len(row))
        for owner in (at % workers, at * workers // len(row)):
            for bucket in np.unique(row):
                shares = np.bincount(owner[row == bucket], minlength=workers)
                ratios.append(float(shares.max() / shares.mean()))
    return (max(ratios, default=1.0), float(np.mean(ratios)) if ratios else 1.0)
