"""Topics on a real broker: made once, mended, refused."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from streamer.errors import BrokerUnreachable, ConfigurationError
from streamer.event.kafka_topics import apply_topics, check_topics, wanted_topics
from streamer.event.topic_rows import TopicLayout
from tests.support.kafka_server import Topics

pytestmark = pytest.mark.integration


def _layout(prefix: str) -> TopicLayout:
    return TopicLayout(
        prefix=prefix,
        models=("fake",),
        partitions=2,
        replication=1,
        min_insync=1,
        retention_ms=3_600_000,
        request_bytes=4 << 20,
    )


def test_apply_makes_everything_and_a_second_apply_changes_nothing(kafka: str, prefix: str) -> None:
    client = {"bootstrap.servers": kafka}
    wanted = wanted_topics(_layout(prefix))

    made = apply_topics(client, wanted)
    again = apply_topics(client, wanted)

    assert len(made) == len(wanted) == 18
    assert again == []
    assert check_topics(client, wanted) == []


def _comes_true(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    """Brokers show a new topic's settings a moment after they made it."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_apply_mends_a_setting(topics: Topics, kafka: str, prefix: str) -> None:
    client = {"bootstrap.servers": kafka}
    wanted = wanted_topics(_layout(prefix))
    topics.create("requests.fast", 2, message_timestamp_type="CreateTime")

    assert _comes_true(
        lambda: (
            {d.what for d in check_topics(client, wanted) if d.found == "CreateTime"}
            == {"message.timestamp.type"}
        )
    )
    apply_topics(client, wanted)

    assert check_topics(client, wanted) == []


def test_a_wrong_partition_count_is_refused_before_anything_is_made(
    topics: Topics, kafka: str, prefix: str
) -> None:
    client = {"bootstrap.servers": kafka}
    wanted = wanted_topics(_layout(prefix))
    topics.create("results.bulk", 3)

    with pytest.raises(ConfigurationError, match="partitions is 3, wanted 2"):
        apply_topics(client, wanted)

    missing = [drift for drift in check_topics(client, wanted) if drift.found == "missing"]
    assert len(missing) == len(wanted) - 1


def test_no_broker_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.event.kafka_topics.CALL_TIMEOUT_S", 0.5)

    with pytest.raises(BrokerUnreachable):
        check_topics({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, ())
