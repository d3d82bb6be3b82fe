"""Every metric with its kind, unit, labels and help; the README table is made from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: as scraped, the unit last (counters get ``_total``).
        kind: what it is.
        help: what it means, in a sentence.
        labels: names; values come from closed lists or from settings, never from requests.
        buckets: upper bounds of a histogram.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_SECONDS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

ITEMS: Final = Metric(
    "streamer_items", "counter", "Items that left this process, by outcome.", ("lane", "outcome")
)
RECORDS: Final = Metric(
    "streamer_records_delivered", "counter", "Records taken from Kafka.", ("lane",)
)
TRANSACTIONS: Final = Metric(
    "streamer_transactions",
    "counter",
    "Emissions, by how they ended: committed, aborted, unknown, fenced.",
    ("lane", "outcome"),
)
TRANSACTION_SECONDS: Final = Metric(
    "streamer_transaction_seconds",
    "histogram",
    "From handing a plan over to its known outcome.",
    ("lane",),
    _SECONDS,
)
REBUILDS: Final = Metric(
    "streamer_producer_rebuilds",
    "counter",
    "Transactional producers dropped and built anew, by cause (new = at the start).",
    ("lane", "cause"),
)
REWINDS: Final = Metric(
    "streamer_partitions_rewound",
    "counter",
    "Partitions read again from their committed offsets after an emission that failed.",
    ("lane",),
)
HELD: Final = Metric(
    "streamer_partitions_held",
    "gauge",
    "Partitions that are ours but not read: their records are gone or their offset is unknown.",
    ("lane",),
)
BATCHES: Final = Metric(
    "streamer_batches", "counter", "Batches run, by why they closed.", ("lane", "model", "reason")
)
BATCH_ITEMS: Final = Metric(
    "streamer_batch_items", "counter", "Items of the batches run.", ("lane", "model")
)
BATCH_TOKENS: Final = Metric(
    "streamer_batch_tokens", "counter", "Real tokens of the batches run.", ("lane", "model")
)
PADDED_TOKENS: Final = Metric(
    "streamer_batch_padded_tokens",
    "counter",
    "Tokens computed, padding included.",
    ("lane", "model"),
)
BACKLOG: Final = Metric(
    "streamer_backlog_items", "gauge", "Items held in this process, not yet emitted.", ("lane",)
)
JOBS: Final = Metric(
    "streamer_jobs",
    "counter",
    "What happened to jobs: completed, expired, cancelled, conflicts (a differing total was "
    "named), bad_entries (what was said about a job could not be used).",
    ("lane", "event"),
)
BUILD_INFO: Final = Metric(
    "streamer_build_info", "gauge", "1, with version, role and slot.", ("version", "role", "slot")
)

METRICS: Final = (
    ITEMS, RECORDS, TRANSACTIONS, TRANSACTION_SECONDS, REBUILDS, REWINDS, HELD, BATCHES,
    BATCH_ITEMS, BATCH_TOKENS, PADDED_TOKENS, BACKLOG, JOBS, BUILD_INFO,
)  # fmt: skip
