from __future__ import annotations

import io
import json
import logging
import urllib.error
import urllib.request

import pytest

from streamer.errors import BrokerUnreachable, ConfigurationError
from streamer.telemetry.http_health import HealthServer
from streamer.telemetry.json_logs import JsonFormatter, told
from streamer.telemetry.names import METRICS
from streamer.telemetry.prometheus_metrics import Metrics


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_every_named_metric_is_exposed_under_its_name() -> None:
    metrics = Metrics(role="work", slot=3, version="1.2")
    lane = metrics.lane("fast")
    lane.transaction("committed", 0.004)
    lane.polled(7)
    lane.rewound(2)
    lane.rebuilt("unknown")
    metrics.items("fast", "succeeded", 5)
    metrics.items("fast", "errored", 0)
    metrics.batch(lane="fast", model="m", reason="items", items=4, tokens=30, padded_tokens=32)
    metrics.watch_backlog("fast", lambda: 11.0)
    metrics.watch_held("fast", lambda: 1.0)

    text = metrics.exposition().decode()

    for metric in METRICS:
        assert f"\n# HELP {metric.name}" in "\n" + text
    assert 'streamer_items_total{lane="fast",outcome="succeeded"} 5.0' in text
    assert 'outcome="errored"' not in text
    assert 'streamer_transactions_total{lane="fast",outcome="committed"} 1.0' in text
    assert 'streamer_transaction_seconds_bucket{lane="fast",le="0.005"} 1.0' in text
    assert 'streamer_batch_padded_tokens_total{lane="fast",model="m"} 32.0' in text
    assert 'streamer_backlog_items{lane="fast"} 11.0' in text
    assert 'streamer_build_info{role="work",slot="3",version="1.2"} 1.0' in text


def test_two_processes_in_one_interpreter_do_not_share_counts() -> None:
    first, second = (Metrics(role="work", slot=n, version="1") for n in range(2))
    first.items("bulk", "succeeded", 3)

    assert b"succeeded" not in second.exposition()


def test_health_says_what_is_missing_and_serves_metrics() -> None:
    missing: list[str] = ["work.fast"]
    server = HealthServer(host="127.0.0.1", port=0, ready=lambda: missing, metrics=lambda: b"m 1\n")
    url = server.start()
    try:
        assert get(f"{url}/live") == (200, "live\n")
        assert get(f"{url}/ready") == (503, "not ready: work.fast\n")
        missing.clear()
        assert get(f"{url}/ready") == (200, "ready\n")
        assert get(f"{url}/metrics") == (200, "m 1\n")
        assert get(f"{url}/secrets")[0] == 404
        port = int(url.rpartition(":")[2])
        taken = HealthServer(host="127.0.0.1", port=port, ready=list, metrics=bytes)
        with pytest.raises(ConfigurationError, match=r"http\.port"):
            taken.start()
    finally:
        server.stop()


def test_a_log_line_is_one_json_object_with_bound_keys_and_extras() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter({"role": "work", "slot": 1}))
    log = logging.getLogger("test.json")
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)

    log.info("assigned", extra={"partitions": 3})
    try:
        raise ValueError("bad")
    except ValueError:
        log.exception("failed")

    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["event"] == "assigned"
    assert (first["role"], first["slot"], first["partitions"]) == ("work", 1, 3)
    assert first["level"] == "INFO"
    assert second["error"] == "ValueError"
    assert "test_telemetry" in second["stack"][0]


def test_messages_of_foreign_errors_stay_out_of_the_log() -> None:
    try:
        float("somebody's text")
    except ValueError as error:
        foreign = error

    assert told(foreign) == "ValueError"
    assert told(BrokerUnreachable("no answer")) == "BrokerUnreachable: no answer"
