"""A service of one thread that answers as the real one would, or breaks the rules on purpose.

It reads ``requests``, writes ``replies``, ``outputs`` and ``job-state`` in one transaction a turn,
and knows nothing of crashes. Clients and audits are tested against it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streamer.errors import Undecodable
from streamer.event.digest import START, input_digest, running_digest
from streamer.event.intake import read_request
from streamer.event.kafka_record import record_of
from streamer.event.lane import OutRecord, Record
from streamer.event.records import (
    Completion,
    DeadLetter,
    InferenceRequest,
    ItemColumns,
    ItemError,
    JobState,
    OutputRun,
    Outputs,
    Receipt,
)
from streamer.event.topics import TopicNames, job_key, partition_of
from streamer.event.wire import (
    decode_job,
    encode_dead_letter,
    encode_job_state,
    output_records,
)

DIMENSION = 2
PARTITIONS = 3


def lane_topics(bootstrap: str, prefix: str) -> TopicNames:
    """The topics that clients and the scripted service use, in both lanes, made at once."""
    kinds = {name: "delete" for name in ("requests", "replies", "outputs", "results",
                                         "dead-letters")}  # fmt: skip
    kinds |= {"job-state": "compact", "jobs": "compact"}
    new = [
        NewTopic(
            f"{prefix}{name}.{lane}", num_partitions=PARTITIONS, replication_factor=1,
            config={"message.timestamp.type": "LogAppendTime", "cleanup.policy": cleanup},
        )
        for lane in ("fast", "bulk")
        for name, cleanup in kinds.items()
    ]  # fmt: skip
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(new).values():
        made.result(30)
    return TopicNames(prefix)


def vector_of(text: str) -> np.ndarray:
    """The scripted answer to a text."""
    return np.array([len(text), sum(text.encode()) % 997], dtype=np.float32)


@dataclass
class _Job:
    rows: dict[int, tuple[InferenceRequest, int, int]] = field(default_factory=dict)
    next_index: int = 0
    total: int = -1
    digest: bytes = START
    succeeded: int = 0
    errored: int = 0
    cancelled: bool = False
    closed: bool = False
    descriptor_form: str = ""


class ScriptedService:
    """See the head of this file.

    Args:
        bootstrap: the broker.
        names: topics; they exist.
        lane: fast or bulk.
        hold: an item is answered only once this says so.
        change: gives the runs to write instead of one (to break a rule).
    """

    def __init__(
        self,
        bootstrap: str,
        names: TopicNames,
        *,
        lane: str,
        hold: Callable[[InferenceRequest], bool] = lambda _: False,
        change: Callable[[OutputRun], list[OutputRun]] = lambda run: [run],
    ) -> None:
        self.bootstrap = bootstrap
        self.names = names
        self.lane = lane
        self.hold = hold
        self.change = change
        self.jobs: dict[bytes, _Job] = {}
        self.received: list[tuple[str | None, int | None]] = []
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def __enter__(self) -> ScriptedService:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)
        if self.failure is not None:
            raise self.failure

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.failure = error

    def _run(self) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "scripted",
             "enable.auto.commit": False, "fetch.wait.max.ms": 10}
        )  # fmt: skip
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": f"{self.names.prefix}s",
             "linger.ms": 0}
        )  # fmt: skip
        producer.init_transactions(20)
        consumer.assign(
            [TopicPartition(topic, p, 0) for topic in
             (self.names.requests(self.lane), self.names.jobs(self.lane))
             for p in range(PARTITIONS)]
        )  # fmt: skip
        while not self._stop.is_set():
            out: list[OutRecord] = []
            for message in consumer.consume(500, 0.03):
                if message.error() is None:
                    out += self._take(record_of(message))
            for key, job in self.jobs.items():
                out += self._release(key, job)
            if out:
                producer.begin_transaction()
                for record in out:
                    producer.produce(
                        record.topic, record.value, record.key, record.partition,
                        headers=dict(record.headers),
                    )  # fmt: skip
                producer.commit_transaction(20)
        consumer.close()

    def _take(self, record: Record) -> list[OutRecord]:
        if record.topic == self.names.jobs(self.lane):
            if record.value is not None:
                entry = decode_job(record.value)
                job = self._job(job_key(entry.lane, entry.tenant, entry.job_id))
                job.total = entry.total if job.total < 0 else job.total
                job.descriptor_form = job.descriptor_form or entry.form
                job.cancelled |= entry.kind == "cancel"
            return []
        try:
            request = read_request(record.value, record.headers)
        except Undecodable as error:
            letter = DeadLetter(
                topic=record.topic, partition=record.partition, offset=record.offset,
                stage="route", code=error.code, message=error.message, value=record.value,
            )  # fmt: skip
            topic = self.names.dead_letters(self.lane)
            return [OutRecord(topic, record.partition, None, encode_dead_letter(letter))]
        self.received.append((request.job_id, request.index))
        if request.job_id is not None:
            job = self._job(job_key(self.lane, request.tenant, request.job_id))
            job.rows.setdefault(request.index or 0, (request, record.partition, record.offset))
            return []
        if self.hold(request):
            return []
        where = record.partition if request.reply_to is None else request.reply_to
        runs = self.change(self._run_of([(request, record.partition, record.offset)], b""))
        topic = self.names.replies(self.lane)
        return [out for run in runs for out in output_records(run, topic, where)]

    def _job(self, key: bytes) -> _Job:
        return self.jobs.setdefault(key, _Job())

    def _release(self, key: bytes, job: _Job) -> list[OutRecord]:
        """The next run, the completion when it is the last, and the state; one message an item."""
        lane, tenant, job_id = key.decode().split("/")
        place = partition_of(key, PARTITIONS)
        out: list[OutRecord] = []
        first = job.next_index
        while not job.closed and job.next_index in job.rows and not job.cancelled:
            row = job.rows[job.next_index]
            if self.hold(row[0]):
                break
            status = 1 if row[0].invalid else 0
            job.succeeded, job.errored = job.succeeded + (not status), job.errored + status
            run = self._run_of([row], job.digest)
            job.digest = run.digest
            job.next_index += 1
            for changed in self.change(run):
                out += output_records(changed, self.names.outputs(lane), place)
        full = job.total >= 0 and job.next_index == job.total
        closed = "" if job.closed else "cancelled" if job.cancelled else "completed" if full else ""
        counts = {"succeeded": job.succeeded, "errored": job.errored}
        if closed:
            job.closed = True
            completion = Completion(
                lane=lane, tenant=tenant, job_id=job_id, form=job.descriptor_form or "json",
                status=closed, total=job.next_index, counts=counts, digest=job.digest,
            )  # fmt: skip
            out += output_records(completion, self.names.outputs(lane), place)
        if closed or job.next_index != first:
            state = JobState(
                lane=lane, tenant=tenant, job_id=job_id, next_index=job.next_index,
                total=job.total, counts=counts, digest=job.digest, closed=closed,
            )  # fmt: skip
            topic = self.names.job_state(lane)
            out.append(OutRecord(topic, place, key, encode_job_state(state)))
        return out

    def _run_of(self, rows: list[tuple[InferenceRequest, int, int]], digest: bytes) -> OutputRun:
        ((request, partition, offset),) = rows
        status = 1 if request.invalid else 0
        answer = b"" if status else vector_of(request.rows[0].text or "").tobytes()
        item_digest = input_digest(request.task or "", request.input_canonical, "{}")
        index = -1 if request.index is None else request.index
        if request.job_id is not None:
            digest = running_digest(digest, index, status, item_digest, answer)
        code, message = request.invalid or ("", "")
        return OutputRun(
            lane=self.lane, tenant=request.tenant, job_id=request.job_id, model=request.model,
            task="embed", form=request.form, encoding="float",
            origin_topic=self.names.requests(self.lane), first_index=index,
            items=ItemColumns(
                index=np.array([index]), custom_id=[request.custom_id],
                origin_partition=np.array([partition], np.int32),
                origin_offset=np.array([offset]),
                rows=np.array([0 if status else 1], np.int32), metadata=None,
                input_digest=item_digest, accepted_at_ms=np.array([0]),
                flags=np.array([0], np.uint8),
            ),
            status=np.array([status], np.uint8),
            outputs=None if status else Outputs(
                kind="embedding", dtype="f32", row_shape=(DIMENSION,), data=answer
            ),
            errors=(ItemError(row=0, code=code, message=message),) if status else (),
            input_tokens=np.array([1], np.int32), labels=None, receipts=(Receipt(),),
            receipt_at=np.array([0], np.uint16), digest=digest,
        )  # fmt: skip
