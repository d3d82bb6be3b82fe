"""What this machine and the cluster have, and how to get what is missing."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, libversion
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from streamer.errors import StreamerError
from streamer.event.file_models import resolve_model
from streamer.event.kafka_topics import check_topics, wanted_topics
from streamer.settings import Settings, client_properties
from streamer.stack.kafka_home import find_java
from streamer.stack.kafka_jars import (
    cache_folder,
    jars_folder,
    read_pins,
    recipe_folder,
    verify_jars,
)
from streamer.stack.kafka_warm import warm_up
from streamer.stack.local import BUNDLED_MODELS
from streamer.stack.topic_plan import topic_layout

OK = "ok"
NOTE = "note"
FIX = "fix"

DISK_FREE_MIN_MB = 2_048
PYTHON_MIN = (3, 11)
LIBRDKAFKA_MIN = "2.16"
REACH_TIMEOUT_S = 4.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: ``ok``, ``note`` (works, but look) or ``fix`` (will not work)."""

    name: str
    state: str
    text: str
    remedy: str = ""


def examine(settings: Settings, root: Path, *, own_broker: bool) -> Iterator[Finding]:
    """All findings, one by one, since some take seconds.

    Args:
        settings: of this folder.
        root: where the stack keeps its data.
        own_broker: whether ``up`` would start a broker here; then Java and Maven are needed.
    """
    yield _python()
    yield _client()
    yield from _local_broker(needed=own_broker)
    yield _disk("disk", root)
    yield _disk("cache", cache_folder())
    yield from _models(settings)
    yield from _cluster(settings)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON_MIN:
        return Finding("python", FIX, version, "use Python 3.11 or newer")
    if not __debug__:
        return Finding("python", FIX, f"{version} with -O", "run without -O: checks are part of it")
    return Finding("python", OK, f"{version} ({sys.executable})")


def _client() -> Finding:
    name, have = "client", libversion()[0]
    text = f"confluent-kafka {importlib.metadata.version('confluent-kafka')}, librdkafka {have}"
    if tuple(map(int, have.split(".")[:2])) < tuple(map(int, LIBRDKAFKA_MIN.split("."))):
        return Finding(name, FIX, text, "pip install --upgrade confluent-kafka")
    return Finding(name, OK, text)


def _local_broker(*, needed: bool) -> Iterator[Finding]:
    bad = FIX if needed else NOTE
    yield _attempt("java", bad, lambda: find_java()[1].splitlines()[0])
    jars = jars_folder(cache_folder())
    if jars.is_dir():
        pins = read_pins(recipe_folder() / "jars.sha256")
        yield _attempt("kafka", bad, lambda: _verified(jars, pins))
    elif maven := shutil.which("mvn"):
        yield Finding("maven", OK, f"{maven}; Kafka's jars are not fetched yet (54 MB)")
    else:
        remedy = "apt-get install maven, or brew install maven; or use a cluster: --bootstrap"
        yield Finding("maven", bad, "missing; needed once, to fetch Kafka", remedy)


def _verified(folder: Path, pins: Mapping[str, str]) -> str:
    verify_jars(folder, pins)
    return f"{len(pins)} jars as pinned in {folder}"


def _disk(name: str, folder: Path) -> Finding:
    there = next(path for path in (folder, *folder.resolve().parents) if path.is_dir())
    free_mb = shutil.disk_usage(there).free >> 20
    text = f"{free_mb:,} MB free at {there}"
    if free_mb < DISK_FREE_MIN_MB:
        return Finding(name, FIX, text, f"free {DISK_FREE_MIN_MB:,} MB, or choose another folder")
    return Finding(name, OK, text)


def _models(settings: Settings) -> Iterator[Finding]:
    models: Mapping[str, Mapping[str, Any]] = {
        slug: {
            "path": model.path,
            "engine": model.engine,
            "task": model.task,
            "revision": model.revision,
            "max_length": model.max_length,
        }
        for slug, model in settings.models.items()
    } or BUNDLED_MODELS
    for slug, values in models.items():
        yield _attempt(f"model {slug}", FIX, partial(_resolved, slug, values))


def _resolved(slug: str, values: Mapping[str, Any]) -> str:
    files = resolve_model(slug, **values)
    where = files.folder or "fake engine, no files"
    return f"revision {files.revision}, up to {files.max_length} tokens, {where}"


def _cluster(settings: Settings) -> Iterator[Finding]:
    client = dict(client_properties(settings.kafka))
    where = settings.kafka.bootstrap
    admin = AdminClient({**client, "log_level": 0})
    try:
        metadata = admin.list_topics(timeout=REACH_TIMEOUT_S)
    except KafkaException as error:
        remedy = "streamer up, or set STREAMER_KAFKA__BOOTSTRAP to your cluster"
        yield Finding("broker", NOTE, f"{where} does not answer: {error.args[0].str()}", remedy)
        return
    yield Finding("broker", OK, f"{where}: {len(metadata.brokers)} broker(s)")
    yield _attempt("transactions", FIX, lambda: _served(settings, client))
    yield from _broker_settings(admin, min(metadata.brokers), settings.kafka.retention_ms)
    yield _attempt("topics", NOTE, lambda: _no_drift(settings, client))


def _served(settings: Settings, client: Mapping[str, Any]) -> str:
    warm_up(settings.kafka.bootstrap, 10.0, client)
    return "served"


def _no_drift(settings: Settings, client: Mapping[str, Any]) -> str:
    wanted = wanted_topics(topic_layout(settings))
    drifts = check_topics(client, wanted)
    if drifts:
        more = f" (and {len(drifts) - 1} more)" if len(drifts) > 1 else ""
        raise StreamerError(f"{drifts[0].line()}{more}; streamer topics plan shows all")
    return f"{len(wanted)} as the settings say"


def _broker_settings(admin: AdminClient, broker: int, retention_ms: int) -> Iterator[Finding]:
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    try:
        found = admin.describe_configs([resource], request_timeout=10.0)[resource].result()
    except KafkaException as error:
        text = f"settings cannot be read: {error.args[0].str()}"
        yield Finding("broker settings", NOTE, text, "allow DescribeConfigs to see more")
        return
    values = {key: str(entry.value) for key, entry in found.items()}
    wrong = []
    if int(values.get("offsets.retention.minutes", "0")) * 60_000 < retention_ms:
        wrong.append("offsets.retention.minutes is below kafka.retention_ms")
    sweep = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    if int(values.get(sweep, "0")) > 2_000:
        wrong.append(f"{sweep} is above 2000: a crash hides results of others longer")
    if values.get("auto.create.topics.enable") == "true":
        wrong.append("auto.create.topics.enable is true: a typing error makes a topic")
    if wrong:
        yield Finding("broker settings", NOTE, "; ".join(wrong), "change the broker's settings")
    else:
        yield Finding("broker settings", OK, "offset retention, transaction sweep, topic creation")


def _attempt(name: str, bad: str, attempt: Callable[[], str]) -> Finding:
    try:
        return Finding(name, OK, attempt())
    except StreamerError as error:
        text, _, remedy = str(error).partition(": ")
        return Finding(name, bad, text, remedy)
