"""The SDK against a scripted service on a real broker."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from loadgen.kafka_ledger import check_jobs
from loadgen.ledger import Ledger, Put
from streamer.client import (
    Client,
    InputRefused,
    JobConflict,
    JobUnknown,
    OutputsBroken,
    RequestFailed,
    WaitTimeout,
)
from streamer.client.kafka_submit import BLOCK_ITEMS
from streamer.event.records import OutputRun
from streamer.event.topics import TopicNames
from streamer.settings import Settings
from tests.support.scripted_service import ScriptedService, lane_topics, vector_of

pytestmark = pytest.mark.integration


@pytest.fixture
def names(kafka: str, prefix: str) -> TopicNames:
    return lane_topics(kafka, prefix)


@pytest.fixture
def client(kafka: str, names: TopicNames) -> Iterator[Client]:
    with Client(Settings(kafka={"bootstrap": kafka, "prefix": names.prefix})) as client:
        yield client


def service(kafka: str, names: TopicNames, lane: str = "bulk", **wishes: object) -> ScriptedService:
    return ScriptedService(kafka, names, lane=lane, **wishes)


@pytest.mark.parametrize("form", ["avro", "json"])
def test_results_come_in_order_and_end_with_the_job(
    kafka: str, names: TopicNames, client: Client, form: str
) -> None:
    texts = [f"text {n}" * (1 + n % 5) for n in range(BLOCK_ITEMS + 200)]
    ledger = Ledger()
    with service(kafka, names) as running:
        job = client.submit(texts, model="fake", job_id="ordered", form=form, total=len(texts))
        items = list(job.results(timeout_s=20))
        for n, text in enumerate(texts):
            ledger.put("ordered", n, Put(custom_id=str(n), vector=vector_of(text)))

    assert [item.index for item in items] == list(range(len(texts)))
    assert [item.custom_id for item in items] == [str(n) for n in range(len(texts))]
    assert np.array_equal(items[7].output, vector_of(texts[7]))
    assert [index for _, index in running.received].count(5) == 1
    report = check_jobs(ledger, {"bootstrap.servers": kafka}, names.outputs("bulk"))["ordered"]
    assert report.ok, report.problems
    assert job.progress().state == "completed"
    assert job.progress().final == len(texts)
    assert client.job("ordered").wait(5).succeeded == len(texts)


def test_reading_from_the_middle_gives_the_rest(
    kafka: str, names: TopicNames, client: Client
) -> None:
    with service(kafka, names):
        job = client.submit((f"t{n}" for n in range(50)), model="fake", job_id="mid")

        assert [item.index for item in job.results(start=40, timeout_s=20)] == list(range(40, 50))


def test_a_stream_says_its_total_at_the_end(kafka: str, names: TopicNames, client: Client) -> None:
    with service(kafka, names):
        job = client.submit(iter(["a", "b", "c"]), model="fake")

        assert job.job_id.startswith("job_")
        assert job.wait(20).total == 3


def test_an_empty_job_completes_empty(kafka: str, names: TopicNames, client: Client) -> None:
    with service(kafka, names):
        job = client.submit([], model="fake", total=0)

        assert list(job.results(timeout_s=20)) == []


def test_a_file_with_broken_lines_keeps_their_places(
    kafka: str, names: TopicNames, client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl"
    lines = [json.dumps({"custom_id": f"c{n}", "input": f"text {n}"}) for n in range(5)]
    lines[2] = '{"custom_id": "c2", "input": '
    lines[4] = '{"custom_id": "c4", "input": ["a", 7]}'
    path.write_text("\ufeff" + "\n".join(lines))
    with service(kafka, names):
        items = list(client.submit(path, model="fake").results(timeout_s=20))

    assert [item.custom_id for item in items] == ["c0", "c1", "c2", "c3", "c4"]
    assert [item.status for item in items] == [
        "succeeded", "succeeded", "errored", "succeeded", "errored"
    ]  # fmt: skip
    assert items[2].error is not None
    assert items[2].error.code == "invalid_json"
    assert items[2].error.message.startswith("line 3: ")
    assert items[4].error is not None
    assert items[4].error.message.startswith("line 5: ")


def test_the_same_submission_again_sends_only_what_is_missing(
    kafka: str, names: TopicNames, client: Client
) -> None:
    texts = [f"t{n}" for n in range(3000)]

    def cut_off() -> Iterator[str]:
        yield from texts[:1500]
        raise ConnectionError("the submitter dies")

    with service(kafka, names, hold=lambda request: (request.index or 0) >= 700) as running:
        with pytest.raises(ConnectionError):
            client.submit(cut_off(), model="fake", job_id="again", total=3000)
        running.hold = lambda request: False
        job = client.submit(texts, model="fake", job_id="again", total=3000)
        items = list(job.results(timeout_s=20))
        third = client.submit(texts, model="fake", job_id="again", total=3000)

    assert len(items) == 3000
    assert third.progress().closed
    assert len(running.received) == 3000
    assert len(set(running.received)) == 3000


def test_a_job_id_of_other_input_is_refused(
    kafka: str, names: TopicNames, client: Client, tmp_path: Path
) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text('{"custom_id": "a", "input": "x"}\n')
    two.write_text('{"custom_id": "a", "input": "y"}\n')
    client.submit(one, model="fake", job_id="taken")

    with pytest.raises(JobConflict, match="input"):
        client.submit(two, model="fake", job_id="taken")
    with pytest.raises(JobConflict, match="model"):
        client.submit(one, model="other", job_id="taken")


def test_a_missing_row_is_never_passed_over(kafka: str, names: TopicNames, client: Client) -> None:
    def drop(run: OutputRun) -> list[OutputRun]:
        return [] if run.first_index == 3 else [run]

    with service(kafka, names, change=drop):
        job = client.submit([f"t{n}" for n in range(6)], model="fake", job_id="hole")

        with pytest.raises(OutputsBroken, match="row 3 is missing"):
            list(job.results(timeout_s=20))


def test_a_cancelled_job_ends(kafka: str, names: TopicNames, client: Client) -> None:
    with service(kafka, names, hold=lambda request: (request.index or 0) >= 2):
        job = client.submit(["a", "b", "c"], model="fake", job_id="cancelled")
        job.cancel()

        assert job.wait(20).state == "cancelled"


def test_waiting_ends_with_the_time_and_unknown_jobs_are_named(
    names: TopicNames, client: Client
) -> None:
    job = client.submit(["a"], model="fake", job_id="nobody-works")

    with pytest.raises(WaitTimeout):
        job.wait(0.3)
    with pytest.raises(WaitTimeout):
        list(job.results(timeout_s=0.3))
    with pytest.raises(JobUnknown):
        client.job("never-heard-of").progress()


def test_duplicates_in_a_file_send_nothing(
    names: TopicNames, client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"custom_id": "a", "input": "x"}\n' * 2)

    with pytest.raises(InputRefused, match="lines 1, 2"):
        client.submit(path, model="fake", job_id="doubles")
    assert client.board.known(client.job("doubles").name).entries == {}


def test_embed_gives_one_vector_a_text_in_order(
    kafka: str, names: TopicNames, client: Client
) -> None:
    texts = [f"question {n}" for n in range(40)]
    with service(kafka, names, lane="fast"):
        many = client.embed(texts, model="fake", timeout_s=20)
        one = client.embed("a single one", model="fake", timeout_s=20)

    assert many.shape == (40, 2)
    assert np.array_equal(many, np.stack([vector_of(text) for text in texts]))
    assert np.array_equal(one, vector_of("a single one"))


def test_threads_share_a_client(kafka: str, names: TopicNames, client: Client) -> None:
    found: dict[int, bool] = {}

    def ask(n: int) -> None:
        texts = [f"{n} {m}" for m in range(30)]
        vectors = client.embed(texts, model="fake", timeout_s=20)
        found[n] = np.array_equal(vectors, np.stack([vector_of(text) for text in texts]))

    with service(kafka, names, lane="fast"):
        threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

    assert found == {0: True, 1: True, 2: True, 3: True}


def test_a_refused_text_is_named_by_its_place(
    kafka: str, names: TopicNames, client: Client
) -> None:
    with service(kafka, names, lane="fast"), pytest.raises(RequestFailed) as refused:
        client.embed(["fine", "   "], model="fake", timeout_s=20)

    assert (refused.value.code, refused.value.position) == ("empty_input", 1)


def test_an_answer_that_does_not_come_ends_by_the_time(names: TopicNames, client: Client) -> None:
    with pytest.raises(WaitTimeout, match="1 of 1"):
        client.embed("anybody?", model="fake", timeout_s=0.5)


def test_a_request_gives_back_the_callers_name(
    kafka: str, names: TopicNames, client: Client
) -> None:
    with service(kafka, names, lane="fast"):
        answer = client.request("x", model="fake", custom_id="mine").result(20)

    assert (answer.custom_id, answer.index, answer.status) == ("mine", None, "succeeded")
