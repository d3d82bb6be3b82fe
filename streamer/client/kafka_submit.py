"""Sending the items of a job: descriptor first, then requests in order, then the total.

The producer is idempotent and not transactional: what it acknowledged is accepted, in the order of
sending per partition. Items of a job are spread by (job, index div 1,024), so that blocks of
neighbours stay together and a long job uses every partition. Sending again after an interruption
skips what the topics already have.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streamer.client.errors import InputRefused
from streamer.client.jsonl import Line
from streamer.client.kafka_jobs import JobName
from streamer.client.kafka_read import Place, Properties, quiet, translate
from streamer.errors import StreamerError, Undecodable
from streamer.event.headers import AVRO, CONTENT_TYPE, JOB, JSON, KIND
from streamer.event.json_form import request_json
from streamer.event.records import InferenceRequest, JobEntry
from streamer.event.request_fields import IntakeLimits
from streamer.event.request_fields import request_of as checked_request
from streamer.event.topics import TopicNames, job_entry_key, murmur2
from streamer.event.wire import encode_job, encode_request

BLOCK_ITEMS = 1_024
FLUSH_S = 60.0
_LIMITS = IntakeLimits()


def make_producer(properties: Properties, *, linger_ms: int) -> Producer:
    """An idempotent producer whose memory is bounded."""
    return Producer(
        {
            **properties,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": linger_ms,
            "compression.type": "lz4",
            "batch.size": 262_144,
            "message.max.bytes": 8_388_608,
            "queue.buffering.max.kbytes": 65_536,
            "queue.buffering.max.messages": 100_000,
            "error_cb": quiet,
            "log_level": 2,
        }
    )


def request_of(
    line: Line, *, model: str, place: dict[str, object], form: str = "avro"
) -> InferenceRequest:
    """The request of one line; what is wrong with it is in ``invalid``.

    Args:
        line: the line or item.
        model: for lines that name none.
        place: further fields: ``job_id``, ``index``, ``tenant``, ``reply_to``, ...
        form: of the answer.

    Raises:
        InputRefused: a field that says where the answer belongs is wrong.
    """
    fields = {**line.fields, **place, "custom_id": line.custom_id}
    if not fields.get("model"):
        fields["model"] = model
    if line.invalid is not None:
        fields["invalid"] = dict(zip(("code", "message"), line.invalid, strict=True))
    try:
        request = checked_request(fields, form=form, limits=_LIMITS)
    except Undecodable as error:
        raise InputRefused(f"{line.custom_id}: {error.message}") from None
    if request.invalid is not None and line.invalid is None and line.number:
        code, message = request.invalid
        return replace(request, invalid=(code, f"line {line.number}: {message}"))
    return request


class JobWriter:
    """Writes one job.

    Args:
        properties: client properties with ``bootstrap.servers``.
        names: topic names.
        job: which.
        requests_partitions: partitions of ``requests.<lane>``.
        jobs_partition: the partition of ``jobs.<lane>`` that carries the job.
        form: ``avro`` (results as columns) or ``json``.
    """

    def __init__(
        self,
        properties: Properties,
        names: TopicNames,
        job: JobName,
        *,
        requests_partitions: int,
        jobs_partition: int,
        form: str,
    ) -> None:
        self._properties = properties
        self._where = str(properties.get("bootstrap.servers", ""))
        self._names = names
        self._job = job
        self._partitions = requests_partitions
        self._jobs_place: Place = (names.jobs(job.lane), jobs_partition)
        self._form = form
        self._producer: Producer | None = None
        self._failure: KafkaError | None = None
        self.sent = 0
        self.acknowledged = 0

    def say(self, entry: JobEntry) -> None:
        """Write one record about the job and wait until it is accepted."""
        topic, partition = self._jobs_place
        self._produce(
            topic,
            partition,
            job_entry_key(entry.lane, entry.tenant, entry.job_id, entry.kind),
            encode_job(entry),
            {KIND: b"job", CONTENT_TYPE: AVRO, JOB: self._job.key},
            counted=False,
        )
        self.flush()

    def send(self, index: int, line: Line, *, model: str) -> None:
        """Send one item; returns when there is room for it, not when it is accepted.

        Raises:
            StreamerError: an earlier item was refused by the broker.
        """
        place: dict[str, object] = {
            "job_id": self._job.job_id,
            "index": index,
            "tenant": self._job.tenant,
        }
        request = request_of(line, model=model, place=place, form=self._form)
        json = self._form == "json"
        self._produce(
            self._names.requests(self._job.lane),
            self._partition(index),
            self._job.key,
            request_json(request) if json else encode_request(request),
            {KIND: b"request", CONTENT_TYPE: JSON if json else AVRO, JOB: self._job.key},
            counted=True,
        )

    def flush(self) -> None:
        """Wait until everything is accepted.

        Raises:
            StreamerError: something was refused or did not arrive in time.
        """
        if self._producer is not None:
            left = self._producer.flush(FLUSH_S)
            self._check()
            if left:
                raise translate(KafkaError(KafkaError._TIMED_OUT), self._where)

    def close(self) -> None:
        """Let go of the connection; what is under way gets a moment to arrive."""
        if self._producer is not None:
            self._producer.flush(5.0)
            self._producer = None

    def _partition(self, index: int) -> int:
        return ((murmur2(self._job.key) & 0x7FFFFFFF) + index // BLOCK_ITEMS) % self._partitions

    def _produce(
        self,
        topic: str,
        partition: int,
        key: bytes,
        value: bytes,
        headers: dict[str, bytes],
        *,
        counted: bool,
    ) -> None:
        if self._producer is None:
            self._producer = make_producer(self._properties, linger_ms=20)
        report = self._item_report if counted else self._report
        while True:
            self._check()
            try:
                self._producer.produce(
                    topic, value, key, partition, on_delivery=report, headers=[*headers.items()]
                )
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise translate(error, self._where) from None
            else:
                self.sent += counted
                self._producer.poll(0)
                return

    def _report(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = error

    def _item_report(self, error: KafkaError | None, message: Message) -> None:
        self._report(error, message)
        self.acknowledged += error is None

    def _check(self) -> None:
        if self._failure is not None:
            raise translate(self._failure, self._where)


class Sending:
    """A job being sent, in this thread or in one of its own.

    Args:
        writer: where to.
        lines: the items in order.
        model: for items that name none.
        skip: whether the item with this index was accepted earlier.
        finish: says the total after the last item, or None when it is known already.
    """

    def __init__(
        self,
        writer: JobWriter,
        lines: Iterable[Line],
        *,
        model: str,
        skip: Callable[[int], bool],
        finish: Callable[[int], JobEntry | None],
    ) -> None:
        self._writer = writer
        self._lines = lines
        self._model = model
        self._skip = skip
        self._finish = finish
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.done = False

    @property
    def accepted(self) -> int:
        """Items acknowledged in this run."""
        return self._writer.acknowledged

    def run(self) -> None:
        """Send everything; returns when all is accepted."""
        try:
            count = 0
            for index, line in enumerate(self._lines):
                if self._stop.is_set():
                    return
                if not self._skip(index):
                    self._writer.send(index, line, model=self._model)
                count = index + 1
            self._writer.flush()
            last = self._finish(count)
            if last is not None:
                self._writer.say(last)
            self.done = True
        finally:
            self._writer.close()

    def start(self) -> None:
        """Send in a thread of its own; ``check`` raises what stopped it."""
        self._thread = threading.Thread(target=self._run_quietly, name="send", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what stopped the sending thread, if anything did."""
        if self._failure is not None:
            raise StreamerError(f"sending stopped: {self._failure}") from self._failure

    def stop(self, wait_s: float = 10.0) -> None:
        """Stop after the current item; what was produced gets ``wait_s`` seconds to arrive."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(wait_s)

    def wait(self, wait_s: float | None = None) -> bool:
        """Wait until everything is accepted; whether it is."""
        if self._thread is not None:
            self._thread.join(wait_s)
        self.check()
        return self.done

    def _run_quietly(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._failure = error


def now_ms() -> int:
    """Unix time in ms, for deadlines and ``created_at_ms``."""
    return time.time_ns() // 1_000_000
