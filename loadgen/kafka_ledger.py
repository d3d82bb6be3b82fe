"""Reads output topics for the ledger, twice: as users see them and with what was aborted.

Uses the Kafka client directly, so that a fault in the project's own reader cannot hide a fault of
the service.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from loadgen.ledger import STATUSES, Ledger, Report, Seen
from streamer.event.records import Completion, OutputRun
from streamer.event.wire import decode_output

_DTYPES = {"f32": "<f4", "f16": "<f2", "i8": "i1", "u1": "u1"}


@dataclass(slots=True, kw_only=True)
class TopicView:
    """What one isolation level shows of a topic.

    Attributes:
        rows: in log order per partition.
        completions: (job id, state) of completion records.
        places: (partition, offset) of all records.
    """

    rows: list[Seen] = field(default_factory=list)
    completions: list[tuple[str, str]] = field(default_factory=list)
    places: set[tuple[int, int]] = field(default_factory=set)


def read_topic(
    client: Mapping[str, Any],
    topic: str,
    *,
    committed: bool = True,
    timeout_s: float = 60.0,
    each: Callable[[Message], None] | None = None,
) -> TopicView:
    """Everything in a topic up to its high watermarks of now.

    Args:
        client: client properties with ``bootstrap.servers``.
        topic: an ``outputs`` or ``replies`` topic (others: pass ``each`` and read the places).
        committed: read_committed, else read_uncommitted.
        timeout_s: for all of it; then TimeoutError.
        each: called with every record instead of reading rows.
    """
    consumer = Consumer(
        {
            **client,
            "group.id": "ledger",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    raw = Consumer({**client, "group.id": "ledger", "isolation.level": "read_uncommitted"})
    view = TopicView()
    try:
        listed = raw.list_topics(topic, timeout=10).topics[topic].partitions
        marks = {p: raw.get_watermark_offsets(TopicPartition(topic, p), timeout=10) for p in listed}
        left = {p: high for p, (low, high) in marks.items() if high > low}
        consumer.assign([TopicPartition(topic, p, marks[p][0]) for p in left])
        end_at = time.monotonic() + timeout_s
        while left:
            if time.monotonic() > end_at:
                raise TimeoutError(f"{topic}: partitions {sorted(left)} not read to their end")
            for message in consumer.consume(1000, 0.1):
                _take(view, message, left, each)
            for at in consumer.position([TopicPartition(topic, p) for p in left]) if left else ():
                if at.offset >= left[at.partition]:
                    del left[at.partition]
    finally:
        consumer.close()
        raw.close()
    return view


def _take(
    view: TopicView,
    message: Message,
    left: dict[int, int],
    each: Callable[[Message], None] | None,
) -> None:
    error = message.error()
    partition, offset = int(message.partition() or 0), int(message.offset() or 0)
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        if offset >= left.get(partition, 0):
            left.pop(partition, None)
        return
    view.places.add((partition, offset))
    if each is not None:
        each(message)
    else:
        _add_rows(view, message)


def _add_rows(view: TopicView, message: Message) -> None:
    value = message.value() or b""
    value = value.encode() if isinstance(value, str) else value
    if value[:1] == b"{":
        fields = orjson.loads(value)
        if "custom_id" in fields:
            view.rows.append(_json_row(fields))
        else:
            view.completions.append((fields["job_id"], fields["status"]))
        return
    output = decode_output(value)
    if isinstance(output, Completion):
        view.completions.append((output.job_id, output.status))
    else:
        view.rows.extend(_run_rows(output))


def _json_row(fields: Mapping[str, Any]) -> Seen:
    vector = (fields.get("output") or {}).get("embedding")
    return Seen(
        job_id=fields.get("job_id"),
        index=fields.get("index"),
        custom_id=fields["custom_id"],
        status=fields["status"],
        vector=np.asarray(vector, dtype=np.float32) if isinstance(vector, list) else None,
        error_code=(fields.get("error") or {}).get("code", ""),
    )


def _run_rows(run: OutputRun) -> list[Seen]:
    codes = {error.row: error.code for error in run.errors}
    rows, texts_before = [], 0
    for row in range(len(run.items.custom_id)):
        status = STATUSES[int(run.status[row])]
        vector = None
        if status == "succeeded" and run.outputs is not None:
            texts = int(run.items.rows[row])
            values = np.frombuffer(run.outputs.data, _DTYPES[run.outputs.dtype])
            width = int(np.prod(run.outputs.row_shape, dtype=np.int64)) or 1
            flat = values[texts_before * width : (texts_before + texts) * width]
            vector = flat.astype(np.float32).reshape(
                run.outputs.row_shape if texts == 1 else (texts, *run.outputs.row_shape)
            )
            texts_before += texts
        rows.append(
            Seen(
                job_id=run.job_id,
                index=int(run.items.index[row]) if run.job_id is not None else None,
                custom_id=run.items.custom_id[row],
                status=status,
                vector=vector,
                error_code=codes.get(row, ""),
            )
        )
    return rows


def count_aborted(client: Mapping[str, Any], topic: str) -> int:
    """Records of a topic that only read_uncommitted shows: what aborted transactions wrote."""

    def nothing(_: Message) -> None:
        return

    committed = read_topic(client, topic, each=nothing).places
    return len(read_topic(client, topic, committed=False, each=nothing).places - committed)


def check_jobs(ledger: Ledger, client: Mapping[str, Any], outputs: str) -> dict[str, Report]:
    """Judge every job of the ledger by what read_committed shows of its output topic."""
    view = read_topic(client, outputs)
    rows: dict[str, list[Seen]] = {}
    for row in view.rows:
        rows.setdefault(row.job_id or "", []).append(row)
    ends = [job for job, _ in view.completions]
    return {job: ledger.check_job(job, rows.get(job, ()), ends.count(job)) for job in ledger.jobs}
