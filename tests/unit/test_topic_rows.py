"""Which topics a layout asks for, and how found ones differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamer.errors import ConfigurationError
from streamer.event.kafka_topics import read_rows, wanted_topics
from streamer.event.topic_rows import (
    ALTER,
    CREATE,
    REFUSE,
    FoundTopic,
    TopicLayout,
    WantedTopic,
    drift_of,
    expand,
)
from streamer.event.topics import TopicNames

LAYOUT = TopicLayout(
    prefix="p.",
    models=("a", "b"),
    partitions=6,
    replication=1,
    min_insync=1,
    retention_ms=3_600_000,
    request_bytes=4 << 20,
)


def _as_found(topic: WantedTopic) -> FoundTopic:
    return FoundTopic(topic.name, topic.partitions, topic.replication, dict(topic.config))


def _all_found() -> dict[str, FoundTopic]:
    return {topic.name: _as_found(topic) for topic in wanted_topics(LAYOUT)}


def test_every_name_that_the_code_uses_is_wanted_and_no_other() -> None:
    names = TopicNames("p.")
    by_lane = ["requests", "results", "replies", "outputs", "job_state", "jobs", "dead_letters"]
    expected = {names.plans, names.events}
    for lane in ("fast", "bulk"):
        expected |= {names.work("a", lane), names.work("b", lane)}
        expected |= {getattr(names, kind)(lane) for kind in by_lane}

    assert {topic.name for topic in wanted_topics(LAYOUT)} == expected


def test_all_topics_take_the_time_of_the_log_and_have_no_size_limit() -> None:
    for topic in wanted_topics(LAYOUT):
        assert topic.config["message.timestamp.type"] == "LogAppendTime"
        assert topic.config["retention.bytes"] == "-1"
        assert topic.config["unclean.leader.election.enable"] == "false"


def test_results_outputs_and_job_state_of_a_lane_have_equal_partition_counts() -> None:
    counts = {topic.name: topic.partitions for topic in wanted_topics(LAYOUT)}

    assert {counts[f"p.{kind}.bulk"] for kind in ("results", "outputs", "job-state", "jobs")} == {6}
    assert counts["p.plans"] == 1


def test_dead_letters_are_kept_longer_than_requests() -> None:
    config = {topic.name: topic.config for topic in wanted_topics(LAYOUT)}

    kept_ms = int(config["p.dead-letters.bulk"]["retention.ms"])
    assert kept_ms > int(config["p.requests.bulk"]["retention.ms"])


def test_a_dead_letter_has_room_for_the_largest_request() -> None:
    config = {topic.name: topic.config for topic in wanted_topics(LAYOUT)}

    request = int(config["p.requests.fast"]["max.message.bytes"])
    assert request >= LAYOUT.request_bytes
    assert int(config["p.dead-letters.fast"]["max.message.bytes"]) > request


def test_a_cluster_as_wanted_has_no_drift() -> None:
    assert drift_of(wanted_topics(LAYOUT), _all_found()) == []


def test_a_missing_topic_is_created() -> None:
    found = _all_found()
    del found["p.plans"]

    assert [(d.topic, d.remedy) for d in drift_of(wanted_topics(LAYOUT), found)] == [
        ("p.plans", CREATE)
    ]


def test_another_partition_count_cannot_be_mended() -> None:
    found = _all_found()
    found["p.results.bulk"] = replace(found["p.results.bulk"], partitions=7)

    (drift,) = drift_of(wanted_topics(LAYOUT), found)

    assert (drift.what, drift.found, drift.wanted, drift.remedy) == ("partitions", "7", "6", REFUSE)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("message.timestamp.type", "CreateTime"),
        ("retention.bytes", "1000000"),
        ("cleanup.policy", "compact"),
        ("retention.ms", "60000"),
        ("max.message.bytes", "1000"),
        ("unclean.leader.election.enable", "true"),
    ],
)
def test_a_setting_that_loses_records_is_drift(key: str, value: str) -> None:
    found = _all_found()
    requests = found["p.requests.bulk"]
    found["p.requests.bulk"] = replace(requests, config={**requests.config, key: value})

    (drift,) = drift_of(wanted_topics(LAYOUT), found)

    assert (drift.what, drift.found, drift.remedy) == (key, value, ALTER)


@pytest.mark.parametrize("kept_ms", ["-1", "360000000"])
def test_a_longer_retention_is_no_drift(kept_ms: str) -> None:
    found = _all_found()
    requests = found["p.requests.bulk"]
    longer = {**requests.config, "retention.ms": kept_ms}
    found["p.requests.bulk"] = replace(requests, config=longer)

    assert drift_of(wanted_topics(LAYOUT), found) == []


def test_topics_of_others_are_left_alone() -> None:
    found = {**_all_found(), "other": FoundTopic("other", 1, 1)}

    assert drift_of(wanted_topics(LAYOUT), found) == []


def test_a_model_name_that_cannot_stand_in_a_topic_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot stand in a topic"):
        wanted_topics(replace(LAYOUT, models=("No/Good",)))


def test_a_row_with_an_unknown_word_is_refused_by_name() -> None:
    (first, *_rest) = read_rows()

    with pytest.raises(ConfigurationError, match=r"requests\.\{lane\}.*'forever'"):
        expand([{**first, "retention": "forever"}], LAYOUT)
