"""Reading the ordered output of one job from its partition of ``outputs``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from confluent_kafka import Consumer, TopicPartition

from streamer.client.errors import OutputsBroken, OutputsGone
from streamer.client.kafka_jobs import JobName
from streamer.client.kafka_read import Place, Properties, make_consumer, stops_reading, translate
from streamer.event.json_form import output_lines
from streamer.event.kafka_record import record_of
from streamer.event.lane import Record
from streamer.event.records import Completion, OutputRun
from streamer.event.result_item import ResultItem, items_of, parse_output_line
from streamer.event.wire import decode_output

T = TypeVar("T")
Rows = Iterable[tuple[int, T]]


class JobReader:
    """Rows of one job from an index on, each once, in order.

    Args:
        properties: client properties with ``bootstrap.servers``.
        place: the partition of ``outputs`` that carries the job.
        offset: where to begin reading; at or before the job's first row.
        job: which job.
        start: first index wanted.
        start_trimmed: whether rows below ``offset`` may have existed and were deleted.
    """

    def __init__(
        self,
        properties: Properties,
        place: Place,
        offset: int,
        job: JobName,
        *,
        start: int = 0,
        start_trimmed: bool = False,
    ) -> None:
        self._properties = properties
        self._place = place
        self._offset = offset
        self._job = job
        self._trimmed = start_trimmed
        self._consumer: Consumer | None = None
        self.next_index = start
        self.completion: Completion | None = None

    def poll(self, wait_s: float) -> list[ResultItem]:
        """Rows that became final, waiting at most ``wait_s`` seconds for the first.

        Sets ``completion`` when the job's last record was read.

        Raises:
            OutputsGone: the first wanted row was deleted by retention.
            OutputsBroken: a row is missing.
        """
        return self._poll(wait_s, _items_of_run, _item_of_json)

    def poll_lines(self, wait_s: float) -> list[bytes]:
        """As ``poll``, each row as one JSON object without a line end."""
        return self._poll(wait_s, _lines_of_run, _line_of_json)

    def close(self) -> None:
        """Let go of the connection."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _poll(
        self,
        wait_s: float,
        of_run: Callable[[OutputRun], Rows[T]],
        of_json: Callable[[bytes, ResultItem], Rows[T]],
    ) -> list[T]:
        if self.completion is not None:
            return []
        consumer = self._started()
        messages = consumer.consume(1, wait_s)
        if messages:
            messages += consumer.consume(500, 0)
        rows: list[T] = []
        for message in messages:
            error = message.error()
            if error is not None:
                if stops_reading(error):
                    raise translate(error, f"{self._place[0]}[{self._place[1]}]")
                continue
            record = record_of(message)
            if record.key != self._job.key or self.completion is not None:
                continue
            output = _decode(record)
            if isinstance(output, Completion):
                self._close_with(output)
            elif isinstance(output, OutputRun):
                rows.extend(self._accept(of_run(output)))
            else:
                rows.extend(self._accept(of_json(record.value or b"", output)))
        return rows

    def _started(self) -> Consumer:
        if self._consumer is None:
            self._consumer = make_consumer(self._properties)
            self._consumer.assign([TopicPartition(*self._place, self._offset)])
        return self._consumer

    def _accept(self, rows: Rows[T]) -> Iterable[T]:
        for index, row in rows:
            if index < self.next_index:
                continue
            if index > self.next_index:
                where = f"job {self._job.job_id}: row {self.next_index} is missing before {index}"
                if self._trimmed:
                    raise OutputsGone(f"{where}: deleted by the retention of {self._place[0]}")
                raise OutputsBroken(f"{where}: run `streamer audit {self._job.job_id}`")
            self.next_index = index + 1
            yield row

    def _close_with(self, completion: Completion) -> None:
        self.completion = completion
        if completion.status == "completed" and self.next_index < completion.total:
            raise OutputsBroken(
                f"job {self._job.job_id} is closed with {completion.total} rows, but row "
                f"{self.next_index} is missing: run `streamer audit {self._job.job_id}`"
            )


def _decode(record: Record) -> OutputRun | ResultItem | Completion:
    value = record.value or b""
    return parse_output_line(value) if value[:1] == b"{" else decode_output(value)


def _items_of_run(run: OutputRun) -> Rows[ResultItem]:
    return [(item.index or 0, item) for item in items_of(run)]


def _item_of_json(_: bytes, item: ResultItem) -> Rows[ResultItem]:
    return [(item.index or 0, item)]


def _lines_of_run(run: OutputRun) -> Rows[bytes]:
    return list(zip(run.items.index.tolist(), output_lines(run), strict=True))


def _line_of_json(line: bytes, item: ResultItem) -> Rows[bytes]:
    return [(item.index or 0, line)]
