"""Single requests and their answers: correlation, time limits, one reader thread.

Each client reads one partition of ``replies`` (``reply_to`` in its requests) from the end it had
before the first request left, so no answer can be missed; several clients may share a partition and
ignore each other's answers. Requests carry names of our own making, because a caller's
``custom_id`` need not be unique.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from streamer.client.errors import WaitTimeout
from streamer.client.jsonl import Line
from streamer.client.kafka_read import (
    Properties,
    TopicReader,
    make_consumer,
    stops_reading,
    translate,
)
from streamer.client.kafka_submit import make_producer, request_of
from streamer.errors import StreamerError, Undecodable
from streamer.event.headers import AVRO, CONTENT_TYPE, KIND
from streamer.event.kafka_record import record_of
from streamer.event.lane import Record
from streamer.event.records import OutputRun
from streamer.event.result_item import ResultItem, items_of, parse_output_line
from streamer.event.topics import TopicNames
from streamer.event.wire import decode_output, encode_request
from streamer.kafka_errors import error_of

_POLL_S = 0.05


class FastLane:
    """Requests without a job in one lane.

    Args:
        properties: client properties with ``bootstrap.servers``.
        reader: for partition counts and watermarks.
        names: topic names.
        lane: ``fast`` or ``bulk``.
        tenant: whose requests.
        partition_seed: which partition of ``replies`` to read, modulo their count.
    """

    def __init__(
        self,
        properties: Properties,
        reader: TopicReader,
        names: TopicNames,
        *,
        lane: str,
        tenant: str,
        partition_seed: int | None = None,
    ) -> None:
        self._properties = properties
        self._reader = reader
        self._names = names
        self._lane = lane
        self._tenant = tenant
        self._seed = secrets.randbits(31) if partition_seed is None else partition_seed
        self._run = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._open: dict[str, tuple[str, Future[ResultItem]]] = {}
        self._sent = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._producer: Producer | None = None
        self._partitions = 0
        self._reply_to = 0
        self._failure: StreamerError | None = None

    def send(
        self,
        fields: Mapping[str, object],
        *,
        model: str,
        custom_id: str = "",
        timeout_ms: int | None = None,
    ) -> Future[ResultItem]:
        """Send one request; the future ends with its answer, errored ones included.

        Args:
            fields: ``input`` and, if wanted, ``task``, ``params``, ``metadata``.
            model: slug of the model.
            custom_id: the caller's name, put back into the answer.
            timeout_ms: the service answers ``expired`` when it cannot make this.
        """
        producer = self._started()
        with self._lock:
            self._sent += 1
            name = f"{self._run}-{self._sent}"
            future: Future[ResultItem] = Future()
            self._open[name] = (custom_id or name, future)
        place: dict[str, object] = {"reply_to": self._reply_to, "tenant": self._tenant}
        if timeout_ms is not None:
            place["timeout_ms"] = timeout_ms
        line = Line(number=0, custom_id=name, fields=fields)
        try:
            value = encode_request(request_of(line, model=model, place=place))
            producer.produce(
                self._names.requests(self._lane),
                value,
                name.encode(),
                self._sent % self._partitions,
                on_delivery=lambda error, _: self._delivered(name, error),
                headers={KIND: b"request", CONTENT_TYPE: AVRO},
            )
        except (KafkaException, BufferError, StreamerError) as error:
            self._forget(name)
            if isinstance(error, KafkaException):
                if error_of(error).fatal():
                    self._failure = translate(error, self._names.requests(self._lane))
                raise translate(error, self._names.requests(self._lane)) from None
            raise
        producer.poll(0)
        return future

    def wait(self, futures: list[Future[ResultItem]], timeout_s: float) -> list[ResultItem]:
        """The answers of all futures, in their order.

        Raises:
            WaitTimeout: some did not come within ``timeout_s`` seconds in all.
        """
        until = time.monotonic() + timeout_s
        answers = []
        for future in futures:
            try:
                answers.append(future.result(max(0.0, until - time.monotonic())))
            except FutureTimeout:
                missing = sum(not f.done() for f in futures)
                self._forget_futures(futures)
                raise WaitTimeout(
                    f"{missing} of {len(futures)} answers did not come within {timeout_s:g} s: "
                    "look at `streamer doctor` and the lag of the lane"
                ) from None
        return answers

    @property
    def failed(self) -> bool:
        """Whether its connections are beyond repair; a new one is to be made."""
        return self._failure is not None

    def close(self) -> None:
        """Stop reading; answers still awaited end with an error."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)
            self._thread = None
        if self._producer is not None:
            self._producer.flush(2.0)
            self._producer = None
        self._fail(StreamerError("the client was closed"))

    def _started(self) -> Producer:
        if self._failure is not None:
            raise StreamerError(f"reading answers stopped: {self._failure}")
        with self._lock:
            if self._producer is None:
                self._partitions = self._reader.partition_count(self._names.requests(self._lane))
                topic = self._names.replies(self._lane)
                self._reply_to = self._seed % self._reader.partition_count(topic)
                end = self._reader.watermarks((topic, self._reply_to))[1]
                consumer = make_consumer(self._properties)
                consumer.assign([TopicPartition(topic, self._reply_to, end)])
                self._stop.clear()
                self._producer = make_producer(self._properties, linger_ms=0)
                self._thread = threading.Thread(
                    target=self._read, args=(consumer, self._producer), name="replies", daemon=True
                )
                self._thread.start()
            return self._producer

    def _read(self, consumer: Consumer, producer: Producer) -> None:
        try:
            while not self._stop.is_set():
                message = consumer.poll(_POLL_S)
                producer.poll(0)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    self._answer(record_of(message))
                elif stops_reading(error):
                    raise translate(error, self._names.replies(self._lane))
        except StreamerError as error:
            self._failure = error
            self._fail(error)
        finally:
            consumer.close()

    def _answer(self, record: Record) -> None:
        key = (record.key or b"").decode("utf-8", "replace")
        with self._lock:
            found = self._open.pop(key, None)
        if found is None:
            return
        custom_id, future = found
        try:
            item = _item_of(record)
        except (Undecodable, ValueError, KeyError) as error:
            future.set_exception(StreamerError(f"the answer cannot be read: {error}"))
            return
        if not future.cancelled():
            future.set_result(replace(item, custom_id=custom_id))

    def _delivered(self, name: str, error: KafkaError | None) -> None:
        if error is None:
            return
        with self._lock:
            found = self._open.pop(name, None)
        if found is not None:
            found[1].set_exception(translate(error, self._names.requests(self._lane)))

    def _forget(self, name: str) -> None:
        with self._lock:
            self._open.pop(name, None)

    def _forget_futures(self, futures: list[Future[ResultItem]]) -> None:
        gone = set(map(id, futures))
        with self._lock:
            for name in [n for n, (_, future) in self._open.items() if id(future) in gone]:
                del self._open[name]

    def _fail(self, error: StreamerError) -> None:
        with self._lock:
            waiting, self._open = list(self._open.values()), {}
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)


def _item_of(record: Record) -> ResultItem:
    value = record.value or b""
    found = parse_output_line(value) if value[:1] == b"{" else decode_output(value)
    if isinstance(found, OutputRun):
        (found,) = items_of(found)
    if isinstance(found, ResultItem):
        return found
    raise Undecodable("corrupt_record", "a completion where an answer is due")
