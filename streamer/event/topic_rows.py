"""Which topics there must be, and how found ones differ (pure).

A row of ``schemas/topics.toml`` is expanded by lane and model into wanted topics. A found topic
that differs is drift, with the one remedy it has: create, alter, or nothing but a new topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from streamer.errors import ConfigurationError
from streamer.event.codes import LANES
from streamer.event.topics import TopicNames

CREATE: Final = "create"
ALTER: Final = "alter"
REFUSE: Final = "refuse"

_MIB: Final = 1 << 20
_DAY_MS: Final = 86_400_000
# Found values above the wanted one are fine: a longer memory, a larger record.
_AT_LEAST: Final = frozenset({"retention.ms", "max.message.bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLayout:
    """What the settings say about topics.

    Attributes:
        prefix: put before every name.
        models: slugs; each has a work topic a lane.
        partitions: of every lane topic.
        replication: copies of each partition.
        min_insync: copies that must have a record before it is acknowledged.
        retention_ms: of requests, work, results, replies and outputs.
        request_bytes: largest request record.
        lanes: fast and bulk.
    """

    prefix: str
    models: tuple[str, ...]
    partitions: int
    replication: int
    min_insync: int
    retention_ms: int
    request_bytes: int
    lanes: tuple[str, ...] = LANES


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """One topic as it must be; ``config`` values are text, as Kafka has them."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """One topic as the cluster has it."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference: what it is, what was found and wanted, and which remedy there is."""

    topic: str
    what: str
    found: str
    wanted: str
    remedy: str

    def line(self) -> str:
        """For people."""
        if self.remedy == CREATE:
            return f"{self.topic}: missing (create with {self.wanted})"
        tail = "" if self.remedy == ALTER else "; cannot be changed, use a new kafka.prefix"
        return f"{self.topic}: {self.what} is {self.found}, wanted {self.wanted}{tail}"


def expand(rows: Iterable[Mapping[str, Any]], layout: TopicLayout) -> tuple[WantedTopic, ...]:
    """All topics of a layout, in the order of the rows.

    Raises:
        ConfigurationError: a row is wrong, or a model's name cannot stand in a topic name.
    """
    names = TopicNames(layout.prefix)
    for model in layout.models:
        names.work(model, layout.lanes[0])  # refuses a name that cannot stand in a topic
    wanted = []
    for row in rows:
        config = _config(row, layout)
        partitions = layout.partitions if row["partitions"] == "lane" else int(row["partitions"])
        wanted += [
            WantedTopic(f"{layout.prefix}{name}", partitions, layout.replication, config)
            for name in _names(row["name"], layout)
        ]
    return tuple(wanted)


def _names(pattern: str, layout: TopicLayout) -> list[str]:
    models = layout.models if "{model}" in pattern else ("",)
    lanes = layout.lanes if "{lane}" in pattern else ("",)
    return [pattern.format(lane=lane, model=model) for model in models for lane in lanes]


def _config(row: Mapping[str, Any], layout: TopicLayout) -> dict[str, str]:
    retention = {
        "job": layout.retention_ms, "long": 4 * layout.retention_ms, "day": _DAY_MS, "none": None
    }  # fmt: skip
    record = {
        "row": _MIB,
        "request": layout.request_bytes + _MIB // 16,
        "letter": layout.request_bytes + _MIB,
    }
    try:
        retention_ms, record_bytes = retention[row["retention"]], record[row["record"]]
    except KeyError as error:
        raise ConfigurationError(f"topics.toml, {row.get('name')}: unknown word {error}") from None
    config = {
        "cleanup.policy": str(row["cleanup"]),
        "message.timestamp.type": "LogAppendTime",
        "retention.bytes": "-1",
        "max.message.bytes": str(record_bytes),
        "min.insync.replicas": str(layout.min_insync),
        "unclean.leader.election.enable": "false",
    }
    if retention_ms is not None:
        config["retention.ms"] = str(retention_ms)
    if row["cleanup"] == "compact":
        # A restart reads the whole log: small segments, since the newest is never compacted.
        config |= {"segment.bytes": str(16 * _MIB), "min.cleanable.dirty.ratio": "0.2"}
    return config


def drift_of(wanted: Sequence[WantedTopic], found: Mapping[str, FoundTopic]) -> list[Drift]:
    """All differences, in the order of ``wanted``; topics nobody asked for are left alone."""
    drifts = []
    for topic in wanted:
        have = found.get(topic.name)
        if have is None:
            shape = f"{topic.partitions} partitions, {topic.replication} copies"
            drifts.append(Drift(topic.name, "topic", "missing", shape, CREATE))
        else:
            drifts += _differences(topic, have)
    return drifts


def _differences(topic: WantedTopic, have: FoundTopic) -> list[Drift]:
    shapes = (
        ("partitions", have.partitions, topic.partitions),
        ("replication", have.replication, topic.replication),
    )
    drifts = [
        Drift(topic.name, what, str(is_now), str(should), REFUSE)
        for what, is_now, should in shapes
        if is_now != should
    ]
    for key, value in topic.config.items():
        is_now = have.config.get(key, "")
        if not _fits(key, is_now, value):
            drifts.append(Drift(topic.name, key, is_now or "unset", value, ALTER))
    return drifts


def _fits(key: str, found: str, wanted: str) -> bool:
    if key in _AT_LEAST:
        return found == "-1" or (found.isdigit() and int(found) >= int(wanted))
    return found == wanted
