"""Turns facts into metrics: the only place that counts, so that nothing else has to."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from streamer.telemetry import names
from streamer.telemetry.names import Metric


class Metrics:
    """The metrics of one process, in a registry of their own.

    Args:
        role: ``route``, ``work`` or ``aggregate``.
        slot: number of this process in its role.
        version: of the service.
    """

    def __init__(self, *, role: str, slot: int, version: str) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        self._items = self._counter(names.ITEMS)
        self._records = self._counter(names.RECORDS)
        self._transactions = self._counter(names.TRANSACTIONS)
        self._transaction_seconds = self._histogram(names.TRANSACTION_SECONDS)
        self._rebuilds = self._counter(names.REBUILDS)
        self._rewinds = self._counter(names.REWINDS)
        self._held = self._gauge(names.HELD)
        self._batches = self._counter(names.BATCHES)
        self._batch_items = self._counter(names.BATCH_ITEMS)
        self._batch_tokens = self._counter(names.BATCH_TOKENS)
        self._padded_tokens = self._counter(names.PADDED_TOKENS)
        self._backlog = self._gauge(names.BACKLOG)
        self._jobs = self._counter(names.JOBS)
        self._gauge(names.BUILD_INFO).labels(version, role, str(slot)).set(1)

    def exposition(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self._registry)

    def lane(self, lane: str) -> LaneMetrics:
        """What one lane reports to."""
        return LaneMetrics(self, lane)

    def items(self, lane: str, outcome: str, count: int) -> None:
        """Items whose records are committed, by outcome."""
        if count:
            self._items.labels(lane, outcome).inc(count)

    def jobs(self, lane: str, event: str, count: int) -> None:
        """What happened to jobs."""
        if count:
            self._jobs.labels(lane, event).inc(count)

    def transaction(self, lane: str, outcome: str, seconds: float) -> None:
        """One emission ended."""
        self._transactions.labels(lane, outcome).inc()
        self._transaction_seconds.labels(lane).observe(seconds)

    def rebuilt(self, lane: str, cause: str) -> None:
        """A transactional producer was built anew."""
        self._rebuilds.labels(lane, cause).inc()

    def polled(self, lane: str, records: int) -> None:
        """Records were delivered."""
        self._records.labels(lane).inc(records)

    def rewound(self, lane: str, partitions: int) -> None:
        """Partitions are read again."""
        self._rewinds.labels(lane).inc(partitions)

    def batch(
        self, *, lane: str, model: str, reason: str, items: int, tokens: int, padded_tokens: int
    ) -> None:
        """One batch was run."""
        self._batches.labels(lane, model, reason).inc()
        self._batch_items.labels(lane, model).inc(items)
        self._batch_tokens.labels(lane, model).inc(tokens)
        self._padded_tokens.labels(lane, model).inc(padded_tokens)

    def watch_backlog(self, lane: str, items: Callable[[], float]) -> None:
        """Ask ``items`` at every scrape; it must be safe from any thread."""
        self._backlog.labels(lane).set_function(items)

    def watch_held(self, lane: str, partitions: Callable[[], float]) -> None:
        """Ask ``partitions`` at every scrape; it must be safe from any thread."""
        self._held.labels(lane).set_function(partitions)

    def _counter(self, metric: Metric) -> Counter:
        return Counter(metric.name, metric.help, metric.labels, registry=self._registry)

    def _gauge(self, metric: Metric) -> Gauge:
        return Gauge(metric.name, metric.help, metric.labels, registry=self._registry)

    def _histogram(self, metric: Metric) -> Histogram:
        return Histogram(
            metric.name,
            metric.help,
            metric.labels,
            registry=self._registry,
            buckets=metric.buckets,
        )


class LaneMetrics:
    """The facts of one lane: what a loop and its ring tell.

    Args:
        metrics: of the process.
        lane: label value.
    """

    def __init__(self, metrics: Metrics, lane: str) -> None:
        self._metrics = metrics
        self._lane = lane

    def transaction(self, outcome: str, seconds: float) -> None:
        """One emission ended: committed, aborted, unknown or fenced."""
        self._metrics.transaction(self._lane, outcome, seconds)

    def polled(self, records: int) -> None:
        """Records delivered to the core."""
        self._metrics.polled(self._lane, records)

    def rewound(self, partitions: int) -> None:
        """Partitions read again from their committed offsets."""
        self._metrics.rewound(self._lane, partitions)

    def rebuilt(self, cause: str) -> None:
        """A producer of the ring was built anew."""
        self._metrics.rebuilt(self._lane, cause)
