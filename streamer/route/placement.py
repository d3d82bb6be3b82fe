"""Which partition of its stream a work record goes to: the least loaded one of its bucket.

Never a hash of the job: one job must use every partition. The load of a partition is what work
has not committed yet at the last reading, plus what was sent since, in predicted milliseconds.
Without readings it is what was sent lately, which makes a weighted round robin. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from streamer.event.records import BucketPlan
from streamer.route.grouping import Group

_SPILL_AFTER_NS = 5_000_000_000
_READING_VALID_NS = 10_000_000_000
_SENT_KEPT_NS = 60_000_000_000
_NEW_WEIGHT = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Predicted device time of a work record; only the proportions matter.

    Attributes:
        fixed_ms: a batch.
        token_ms: a padded token.
    """

    fixed_ms: float = 4.0
    token_ms: float = 0.034

    def of(self, padded_tokens: int) -> float:
        """Milliseconds."""
        return self.fixed_ms + self.token_ms * padded_tokens


class Ledger:
    """Outstanding predicted milliseconds of each partition of one stream.

    Args:
        partitions: of the stream's topic.
        record_ms: of a record whose size is unknown (sent by another router, or before a restart).
    """

    def __init__(self, partitions: int, *, record_ms: float) -> None:
        self._sent: list[deque[tuple[int, float]]] = [deque() for _ in range(partitions)]
        self._record_ms = [record_ms] * partitions
        self._behind_ms = [0.0] * partitions
        self._read_ns: int | None = None

    def sent(self, partition: int, ms: float, now_ns: int) -> None:
        """A record of ``ms`` was committed to the partition."""
        self._sent[partition].append((now_ns, ms))
        self._record_ms[partition] += _NEW_WEIGHT * (ms - self._record_ms[partition])

    def read(self, behind: Mapping[int, int], read_ns: int) -> None:
        """Take over a reading of work's progress.

        Args:
            behind: partition -> end offset minus committed offset. The last transaction's marker
                stays behind for ever, so that 1 means drained.
            read_ns: monotonic time before the reading began; later sends are not in it.
        """
        self._read_ns = read_ns
        for partition, count in behind.items():
            if 0 <= partition < len(self._sent):
                self._behind_ms[partition] = max(0, count - 1) * self._record_ms[partition]
        for line in self._sent:
            while line and line[0][0] < read_ns:
                line.popleft()

    def loads(self, now_ns: int) -> list[float]:
        """Predicted milliseconds ahead of a record sent to each partition now."""
        for line in self._sent:
            while line and line[0][0] < now_ns - _SENT_KEPT_NS:
                line.popleft()
        fresh = self._read_ns is not None and now_ns - self._read_ns <= _READING_VALID_NS
        return [
            sum(ms for _, ms in line) + (behind if fresh else 0.0)
            for line, behind in zip(self._sent, self._behind_ms, strict=True)
        ]


class Placement:
    """Places the groups of one stream.

    Args:
        plan: bucket of each partition.
        ledger: loads of the partitions.
        cost: predicted time of a record.
    """

    def __init__(self, plan: BucketPlan, ledger: Ledger, cost: Cost) -> None:
        self.plan = plan
        self._ledger = ledger
        self._cost = cost
        self._lopsided_since: dict[int, int] = {}
        self._turn = 0

    def relabel(self, plan: BucketPlan) -> None:
        """Use another plan from now on; nothing already placed moves."""
        self.plan = plan
        self._lopsided_since.clear()

    def cost_ms(self, group: Group) -> float:
        """Predicted milliseconds of a group."""
        return self._cost.of(group.padded_tokens)

    def place(self, groups: Sequence[Group], now_ns: int, *, partitions_max: int) -> list[int]:
        """A partition for each group.

        Args:
            groups: of this stream.
            now_ns: monotonic.
            partitions_max: distinct partitions, at least one a bucket that occurs.
        """
        loads = self._ledger.loads(now_ns)
        allowed = {
            bucket: self._candidates(bucket, loads, now_ns)
            for bucket in {group.bucket for group in groups}
        }
        order = _spread(len(loads))
        rank = {partition: (at - self._turn) % len(order) for at, partition in enumerate(order)}
        self._turn += 1
        chosen: set[int] = set()
        unserved = set(allowed)
        placed = [0] * len(groups)
        # The heaviest first: the light ones then even out what is left.
        for at in sorted(range(len(groups)), key=lambda at: -groups[at].padded_tokens):
            bucket = groups[at].bucket
            candidates = allowed[bucket]
            kept_free = len(unserved - {bucket})
            if len(chosen) + kept_free >= partitions_max:
                candidates = [one for one in candidates if one in chosen] or (
                    candidates if len(chosen) < partitions_max else sorted(chosen)
                )
            best = min(candidates, key=lambda one: (loads[one], rank[one]))
            loads[best] += self.cost_ms(groups[at])
            chosen.add(best)
            unserved.discard(bucket)
            placed[at] = best
        return placed

    def _candidates(self, bucket: int, loads: Sequence[float], now_ns: int) -> list[int]:
        """The bucket's partitions, and the idlest of all once they lag behind it for 5 s."""
        own = [at for at, label in enumerate(self.plan.labels) if label == bucket]
        if min(loads[at] for at in own) <= 2 * min(loads):
            self._lopsided_since.pop(bucket, None)
            return own
        since = self._lopsided_since.setdefault(bucket, now_ns)
        if now_ns - since < _SPILL_AFTER_NS:
            return own
        return list(range(len(loads)))


def _spread(count: int) -> list[int]:
    """All partitions in an order whose neighbours lie far apart.

    Workers own blocks or every n-th partition; a few records should reach several of either.
    """
    step = max(1, round(count * 0.618))
    while gcd(step, count) != 1:
        step += 1
    return [at * step % count for at in range(count)]
