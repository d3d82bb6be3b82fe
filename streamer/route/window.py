"""When the collected items of a lane are cut, and how much of them goes into one transaction.

All windows of a lane are cut together, as a prefix of what was delivered: windows cut one by one
would wait for each other's prefixes for ever. Invariants *prefix* and *bound*. Pure.

    delivered  a1 b1 a2 x3 b2 a3 ...     (a, b, x: jobs; 1..3: partitions)
    cut        a1 b1 a2 x3 |             every partition's part is a prefix of it
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from streamer.event.lane import TopicPartition
from streamer.route.entry import Entry, WorkItem

Stream = tuple[str, str | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLimits:
    """When a window is full, and the bounds of a transaction and of the buffer.

    Attributes:
        items, tokens: of one (job, model); reaching either cuts.
        wait_ms: of the oldest item; 0 = nothing is ever held.
        plan_items, plan_bytes: of one transaction.
        buffer_items, buffer_tokens, buffer_bytes: held before consuming stops.
        deliver_items: records welcome at a time, so that a turn of the loop stays short.
    """

    items: int = 2_048
    tokens: int = 131_072
    wait_ms: int = 100
    plan_items: int = 8_192
    plan_bytes: int = 16_777_216
    buffer_items: int = 16_384
    buffer_tokens: int = 1_048_576
    buffer_bytes: int = 67_108_864
    deliver_items: int = 1_024


class Window:
    """Entries in order of delivery, counted by (tenant, job, model)."""

    def __init__(self, limits: WindowLimits) -> None:
        self._limits = limits
        self._entries: deque[Entry] = deque()
        self._items: Counter[Stream] = Counter()
        self._tokens: Counter[Stream] = Counter()
        self._full: set[Stream] = set()
        self.tokens = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        """Append a delivered entry."""
        self._entries.append(entry)
        self.tokens += entry.tokens
        self.size_bytes += entry.size_bytes
        stream = _stream(entry)
        if stream is None:
            return
        self._items[stream] += 1
        self._tokens[stream] += entry.tokens
        if self._items[stream] >= self._limits.items or self._tokens[stream] >= self._limits.tokens:
            self._full.add(stream)

    def due(self, now_ns: int, *, final: bool = False) -> str | None:
        """Why the windows are cut now: ``drain now age items tokens room``; None = wait."""
        if not self._entries:
            return None
        if final:
            return "drain"
        if now_ns >= self.wake_at_ns():
            return "age" if self._limits.wait_ms else "now"
        if self._full:
            by_items = any(self._items[stream] >= self._limits.items for stream in self._full)
            return "items" if by_items else "tokens"
        return "room" if self.room() == 0 else None

    def wake_at_ns(self) -> int:
        """When the oldest entry has waited long enough; meaningless when empty."""
        oldest = self._entries[0].arrived_ns if self._entries else 0
        return oldest + self._limits.wait_ms * 1_000_000

    def room(self, held_items: int = 0) -> int:
        """Records welcome besides ``held_items`` in flight; 0 = stop consuming."""
        limits = self._limits
        left_bytes = limits.buffer_bytes - self.size_bytes
        if left_bytes <= 0 or self.tokens >= limits.buffer_tokens:
            return 0
        left = limits.buffer_items - len(self._entries) - held_items
        # A record may be large: fewer are welcome when the bytes run out.
        return max(0, min(left, limits.deliver_items, 1 + left_bytes // 16_384))

    def cut(self, fits: Callable[[Entry], bool]) -> list[Entry]:
        """Take the longest prefix whose entries all fit, at least the first one.

        Args:
            fits: asked once an entry in order; it keeps account of what was accepted.
        """
        prefix: list[Entry] = []
        size = 0
        while self._entries and len(prefix) < self._limits.plan_items:
            entry = self._entries[0]
            size += entry.size_bytes
            if prefix and size > self._limits.plan_bytes:
                break
            if not fits(entry):
                break
            prefix.append(self._entries.popleft())
        self._uncount(prefix)
        return prefix

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the entries of these partitions (invariant *epoch*)."""
        gone = [entry for entry in self._entries if entry.at in partitions]
        self._entries = deque(entry for entry in self._entries if entry.at not in partitions)
        self._uncount(gone)

    def _uncount(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.tokens -= entry.tokens
            self.size_bytes -= entry.size_bytes
            stream = _stream(entry)
            if stream is None:
                continue
            self._items[stream] -= 1
            self._tokens[stream] -= entry.tokens
            if not self._items[stream]:
                del self._items[stream], self._tokens[stream]
        self._full = {
            stream
            for stream in self._full
            if self._items[stream] >= self._limits.items
            or self._tokens[stream] >= self._limits.tokens
        }


def _stream(entry: Entry) -> Stream | None:
    if not isinstance(entry.content, WorkItem):
        return None
    key = entry.content.key
    return (key.tenant, key.job_id, key.model)


class PartitionBudget:
    """Keeps one transaction within its output partitions while a prefix grows.

    A stream (model) is counted with one partition a bucket; what is left over is shared out when
    the groups are placed.

    Args:
        partitions_max: output partitions of a transaction.
    """

    def __init__(self, partitions_max: int = 16) -> None:
        self._max = partitions_max
        self.fixed: set[TopicPartition] = set()
        self.buckets: dict[str, set[int]] = {}

    def admit(self, fixed: Collection[TopicPartition], bucket: tuple[str, int] | None) -> bool:
        """Whether these outputs still fit; if so they are counted.

        Args:
            fixed: partitions given by keys: results, replies, jobs, dead letters.
            bucket: (model, bucket) of a work item.
        """
        new = sum(at not in self.fixed for at in set(fixed))
        if bucket is not None and bucket[1] not in self.buckets.get(bucket[0], ()):
            new += 1
        used = len(self.fixed) + sum(len(of) for of in self.buckets.values())
        if used and used + new > self._max:
            return False
        self.fixed.update(fixed)
        if bucket is not None:
            self.buckets.setdefault(bucket[0], set()).add(bucket[1])
        return True

    def shares(self) -> dict[str, int]:
        """Partitions each stream may use: its buckets, and an equal part of what is left."""
        shares = {model: len(of) for model, of in self.buckets.items()}
        left = self._max - len(self.fixed) - sum(shares.values())
        for at in range(max(0, left)):
            if not shares:
                break
            shares[sorted(shares)[at % len(shares)]] += 1
        return shares
