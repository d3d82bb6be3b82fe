"""The work process on a real broker with the fake engine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from streamer.event import wire
from streamer.event.topics import TopicNames
from streamer.infer.fake_engine import fake_vector
from tests.support.work_builders import a_work
from tests.support.work_line import WorkProcess, make_topics, read_until, running, send_work

pytestmark = pytest.mark.integration


def _rows(messages: list) -> Counter[int]:
    counted: Counter[int] = Counter()
    for message in messages:
        counted.update(wire.decode_result(message.value()).items.index.tolist())
    return counted


def test_every_item_is_answered_once_though_the_worker_is_killed_in_between(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    make_topics(kafka, prefix)
    records = [(n % 3, a_work(16, first_index=16 * n)) for n in range(120)]
    send_work(kafka, prefix, records)
    topic = TopicNames(prefix).results("bulk")
    worker = WorkProcess(
        kafka, prefix, tmp_path, STREAMER_WORK__BATCH_TOKENS="256",
        STREAMER_MODELS='{"fake": {"engine": "fake", "fake_fixed_ms": 100}}',
    )  # fmt: skip

    with running(worker):
        worker.start(0)
        before = read_until(kafka, topic, lambda found: _rows(found).total() >= 300)
        worker.kill()
        assert 300 <= _rows(before).total() < 1_920
        worker.start(0)
        found = read_until(kafka, topic, lambda found: len(_rows(found)) == 1_920)
        code = worker.stop()

    assert code == 0, worker.log()
    assert set(_rows(found).values()) == {1}, worker.log()
    assert len(_rows(found)) == 1_920
    dirty = read_until(kafka, topic, lambda _: False, timeout_s=2, isolation="read_uncommitted")
    assert set(_rows(dirty)) == set(_rows(found))


def test_single_requests_are_answered_with_the_model_s_rows(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    make_topics(kafka, prefix)
    singles = [
        (n % 3, a_work(1, job_id=None, lane="fast", first_index=n, form="avro")) for n in range(30)
    ]
    worker = WorkProcess(kafka, prefix, tmp_path)

    with running(worker):
        worker.start(0)
        send_work(kafka, prefix, singles)
        topic = TopicNames(prefix).replies("fast")
        found = read_until(kafka, topic, lambda found: len(found) >= 30)
        assert worker.stop() == 0, worker.log()

    runs = {run.items.custom_id[0]: run for run in (wire.decode_output(m.value()) for m in found)}
    assert len(found) == len(runs) == 30
    for _, work in singles:
        outputs = runs[work.items.custom_id[0]].outputs
        np.testing.assert_array_equal(
            np.frombuffer(outputs.data, "<f4"), fake_vector(work.token_ids, 2)
        )


def test_bytes_that_are_no_work_record_become_a_dead_letter_and_the_next_record_is_answered(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    make_topics(kafka, prefix)
    send_work(kafka, prefix, [(0, b"\x00\x00junk"), (0, a_work(2))])
    names = TopicNames(prefix)
    worker = WorkProcess(kafka, prefix, tmp_path)

    with running(worker):
        worker.start(0)
        letters = read_until(kafka, names.dead_letters("bulk"), lambda found: len(found) >= 1)
        results = read_until(kafka, names.results("bulk"), lambda found: len(found) >= 1)
        assert worker.stop() == 0, worker.log()

    assert wire.decode_dead_letter(letters[0].value()).value == b"\x00\x00junk"
    assert _rows(results).total() == 2


def test_a_broken_device_ends_the_process_with_a_failure(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    make_topics(kafka, prefix)
    from streamer.route.fake_tokenizer import fake_ids

    token = int(fake_ids("fault-sticky")[0])
    send_work(kafka, prefix, [(0, a_work(1, lengths=[1], first_token=token))])
    models = '{"fake": {"engine": "fake", "fake_faults": true}}'
    worker = WorkProcess(kafka, prefix, tmp_path, STREAMER_MODELS=models)

    with running(worker):
        worker.start(0)

        assert worker.wait() == 1, worker.log()


def test_a_worker_that_counts_other_partitions_than_the_topics_have_refuses_to_start(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    make_topics(kafka, prefix)
    worker = WorkProcess(kafka, prefix, tmp_path, STREAMER_KAFKA__PARTITIONS="6")

    with running(worker):
        worker.start(0)

        assert worker.wait() == 3, worker.log()

    assert "has 3 partitions" in worker.log()
