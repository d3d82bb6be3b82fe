"""[shell] Topics on a cluster: what they are, make them so, refuse what cannot be mended."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from streamer.errors import BrokerUnreachable, ConfigurationError
from streamer.event.file_schemas import schema_folder
from streamer.event.topic_rows import (
    ALTER,
    CREATE,
    REFUSE,
    Drift,
    FoundTopic,
    TopicLayout,
    WantedTopic,
    drift_of,
    expand,
)

CALL_TIMEOUT_S = 30.0
FIRST_ANSWER_S = 10.0
SETTLE_TIMEOUT_S = 10.0


def read_rows(path: Path | None = None) -> list[dict[str, Any]]:
    """The rows of ``topics.toml``.

    Raises:
        ConfigurationError: it is missing or broken.
    """
    path = path or schema_folder() / "topics.toml"
    try:
        rows: list[dict[str, Any]] = tomllib.loads(path.read_text())["topic"]
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise ConfigurationError(f"topics.toml cannot be read ({type(error).__name__})") from None
    return rows


def wanted_topics(layout: TopicLayout) -> tuple[WantedTopic, ...]:
    """All topics that a layout asks for."""
    return expand(read_rows(), layout)


def check_topics(client: Mapping[str, Any], wanted: Sequence[WantedTopic]) -> list[Drift]:
    """Compare a cluster with what is wanted; changes nothing.

    Args:
        client: client properties of the cluster.
        wanted: from ``wanted_topics``.

    Raises:
        BrokerUnreachable: nothing answered in time.
        ConfigurationError: the cluster refused to tell.
    """
    admin = _admin(client)
    return drift_of(wanted, _found(admin, wanted))


def apply_topics(client: Mapping[str, Any], wanted: Sequence[WantedTopic]) -> list[Drift]:
    """Create what is missing and alter what can be altered; doing it twice changes nothing.

    Returns:
        What was done.

    Raises:
        BrokerUnreachable: nothing answered in time.
        ConfigurationError: a topic differs in what cannot be altered (then nothing is changed),
            or the cluster refused.
    """
    admin = _admin(client)
    done: list[Drift] = []
    end_at = time.monotonic() + SETTLE_TIMEOUT_S
    # Brokers follow the controller by a moment, so look again until they show what was done;
    # a topic that another process makes meanwhile is then compared like any found one.
    while drifts := drift_of(wanted, _found(admin, wanted)):
        if time.monotonic() >= end_at:
            refuse_drift(drifts)
        refuse_drift([drift for drift in drifts if drift.remedy == REFUSE])
        missing = {drift.topic for drift in drifts if drift.remedy == CREATE}
        _create(admin, [topic for topic in wanted if topic.name in missing])
        _alter(admin, [drift for drift in drifts if drift.remedy == ALTER])
        done += [drift for drift in drifts if drift not in done]
        time.sleep(0.05)
    return done


def _admin(client: Mapping[str, Any]) -> AdminClient:
    """A client whose own log lines stay away from the terminal; calls report their errors."""
    return AdminClient({"log_level": 2, **client})


def refuse_drift(drifts: Sequence[Drift]) -> None:
    """Raise if there is any.

    Raises:
        ConfigurationError: one line a difference, and what to do.
    """
    if drifts:
        lines = "\n  ".join(drift.line() for drift in drifts)
        raise ConfigurationError(
            f"topics are not as the settings say:\n  {lines}\n"
            "streamer topics apply mends what can be mended"
        )


def _found(admin: AdminClient, wanted: Sequence[WantedTopic]) -> dict[str, FoundTopic]:
    try:
        listed = admin.list_topics(timeout=FIRST_ANSWER_S).topics
    except KafkaException as error:
        raise _as_ours(error, "list topics") from None
    names = [topic.name for topic in wanted if topic.name in listed]
    configs = _configs(admin, names)
    found = {}
    for name in names:
        partitions = listed[name].partitions
        copies = min((len(part.replicas) for part in partitions.values()), default=0)
        found[name] = FoundTopic(name, len(partitions), copies, configs[name])
    return found


def _configs(admin: AdminClient, names: Sequence[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    answers = admin.describe_configs(resources, request_timeout=CALL_TIMEOUT_S)
    return {
        resource.name: {key: str(entry.value) for key, entry in _result(answer, "describe").items()}
        for resource, answer in answers.items()
    }


def _create(admin: AdminClient, topics: Sequence[WantedTopic]) -> None:
    if not topics:
        return
    new = [
        NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication,
            config=dict(topic.config),
        )
        for topic in topics
    ]
    answers = admin.create_topics(
        new, operation_timeout=CALL_TIMEOUT_S, request_timeout=CALL_TIMEOUT_S
    )
    for name, answer in answers.items():
        try:
            answer.result()
        except KafkaException as error:
            # Another process was faster; what it made is checked like any found topic.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _as_ours(error, f"create {name}") from None


def _alter(admin: AdminClient, drifts: Sequence[Drift]) -> None:
    changes: dict[str, list[ConfigEntry]] = {}
    for drift in drifts:
        entry = ConfigEntry(drift.what, drift.wanted, incremental_operation=AlterConfigOpType.SET)
        changes.setdefault(drift.topic, []).append(entry)
    if not changes:
        return
    resources = [
        ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        for name, entries in changes.items()
    ]
    answers = admin.incremental_alter_configs(resources, request_timeout=CALL_TIMEOUT_S)
    for resource, answer in answers.items():
        _result(answer, f"alter {resource.name}")


def _result(answer: Future[Any], doing: str) -> Any:
    try:
        return answer.result()
    except KafkaException as error:
        raise _as_ours(error, doing) from None


def _as_ours(error: KafkaException, doing: str) -> Exception:
    reason = error.args[0]
    text = f"cannot {doing}: {reason.str()}"
    unreachable = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)
    if reason.code() in unreachable:
        return BrokerUnreachable(
            f"{text}: is the stack up (`streamer up`), and is kafka.bootstrap right?"
        )
    return ConfigurationError(text)
