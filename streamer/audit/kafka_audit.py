"""Reads the topics of a lane for an audit; decides nothing.

Committed offsets are read first: what they passed is committed by then, so the topics read
afterwards must show what came of it. Everything is read_committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from streamer.audit.ledger import JobLedger
from streamer.audit.range_ledger import RangeLedger
from streamer.audit.trail import LetterSeen, Place, Trail, WorkSeen
from streamer.audit.verdict import Verdict
from streamer.client.kafka_jobs import TIME_MARGIN_MS, JobBoard, JobName
from streamer.client.kafka_read import Properties, TopicReader
from streamer.errors import Undecodable
from streamer.event.headers import CARRIED, JOB, ORIGIN, origin_from
from streamer.event.intake import read_request
from streamer.event.lane import Record
from streamer.event.records import Completion, InferenceRequest, OutputRun
from streamer.event.result_item import ResultItem, items_of, parse_output_line
from streamer.event.topics import TopicNames
from streamer.event.wire import (
    decode_dead_letter,
    decode_job_state,
    decode_output,
    decode_result,
    decode_work,
)


class LaneAudit:
    """Audits of one lane.

    Args:
        properties: client properties with ``bootstrap.servers``.
        names: topic names.
        lane: fast or bulk.
        group_prefix: before the names of the consumer groups.
    """

    def __init__(
        self, properties: Properties, names: TopicNames, lane: str, *, group_prefix: str
    ) -> None:
        self._reader = TopicReader(properties)
        self._names = names
        self._lane = lane
        self._group_prefix = group_prefix
        self._board = JobBoard(self._reader, names)

    def close(self) -> None:
        """Let go of the connections."""
        self._reader.close()

    def job(self, name: JobName) -> Verdict:
        """Prove one job."""
        trail = self._trail()
        rows = self._outputs(name)
        since_ms = self._since(name, rows)
        self._fill(trail, since_ms, name)
        ledger = JobLedger(name.job_id, trail)
        starts = self._starts(self._names.requests(self._lane), since_ms)
        for origin, request in self._requests(starts, None, name):
            ledger.add_request(origin, request)
        for output in rows:
            if isinstance(output, Completion):
                ledger.add_completion(output)
            elif isinstance(output, OutputRun):
                items = items_of(output)
                for item in items[:-1]:
                    ledger.add_row(item)
                ledger.add_row(items[-1], output.digest)
            else:
                ledger.add_row(output)
        return ledger.close(state=self._state(name))

    def range(
        self, starts: Mapping[int, int] | None = None, ends: Mapping[int, int] | None = None
    ) -> Verdict:
        """Prove that each single request in a range of offsets has one answer.

        Args:
            starts: first offset by requests partition; default: all that is in the log.
            ends: one past the last offset; default: the high watermarks of now.
        """
        trail = self._trail()
        topic = self._names.requests(self._lane)
        count = self._reader.partition_count(topic)
        marks = {p: self._reader.watermarks((topic, p)) for p in range(count)}
        first = {p: max(marks[p][0], (starts or {}).get(p, 0)) for p in marks}
        last = {p: min(marks[p][1], (ends or {}).get(p, marks[p][1])) for p in marks}
        since_ms = self._time_of({(topic, p): first[p] for p in marks if first[p] < last[p]})
        self._fill(trail, since_ms, None)
        subject = f"{topic} " + " ".join(f"{p}:{first[p]}-{last[p]}" for p in marks)
        ledger = RangeLedger(subject, trail, last)
        for origin, request in self._requests(
            {(topic, p): first[p] for p in marks}, {(topic, p): last[p] for p in marks}, None
        ):
            ledger.add_request(origin, request)
        for record in self._reader.read(self._starts(self._names.replies(self._lane), since_ms)):
            output = _decode(record)
            if isinstance(output, OutputRun):
                for item in items_of(output):
                    ledger.add_reply(item)
            elif isinstance(output, ResultItem):
                ledger.add_reply(output)
        return ledger.close()

    def _trail(self) -> Trail:
        """A trail that knows the committed offsets, read before anything else."""
        topic = self._names.requests(self._lane)
        requests = [(topic, p) for p in range(self._reader.partition_count(topic))]
        works = [
            (t, p) for t in self._work_topics() for p in range(self._reader.partition_count(t))
        ]
        route = self._reader.committed(f"{self._group_prefix}route-{self._lane}", requests)
        work = self._reader.committed(f"{self._group_prefix}work-{self._lane}", works)
        return Trail({p: offset for (_, p), offset in route.items()}, work)

    def _work_topics(self) -> list[str]:
        ours = re.compile(re.escape(self._names.prefix) + r"work\.[a-z0-9-]{1,40}\." + self._lane)
        return sorted(topic for topic in self._reader.topics() if ours.fullmatch(topic))

    def _starts(self, topic: str, since_ms: int) -> dict[Place, int]:
        places = [(topic, p) for p in range(self._reader.partition_count(topic))]
        return {place: self._board.start_of(place, since_ms) for place in places}

    def _outputs(self, name: JobName) -> list[OutputRun | ResultItem | Completion]:
        """All that stands in the output topic under the job's key, in log order."""
        known = self._board.known(name)
        place = self._board.place(self._names.outputs(self._lane), name)
        start = self._board.start_of(place, known.since_ms)
        records = self._reader.read({place: start})
        return [_decode(record) for record in records if record.key == name.key]

    def _since(self, name: JobName, rows: list[OutputRun | ResultItem | Completion]) -> int:
        """When the job began, so that not all of every topic is read; 0 when nobody knows."""
        known = self._board.known(name)
        if known.since_ms:
            return known.since_ms
        times = [
            int(at)
            for output in rows
            if isinstance(output, OutputRun)
            for at in output.items.accepted_at_ms.tolist()
        ]
        if not times or min(times) <= 0 or any(isinstance(row, ResultItem) for row in rows):
            return 0
        return max(0, min(times) - TIME_MARGIN_MS)

    def _time_of(self, starts: Mapping[Place, int]) -> int:
        """The append time of the earliest first record of the places; 0 when there is none."""
        ends = {place: start + 1 for place, start in starts.items()}
        times = [record.timestamp_ms for record in self._reader.read(starts, ends)]
        if len(times) < len(starts):  # a first offset may hold a marker
            return 0
        return max(0, min(times) - TIME_MARGIN_MS) if times else 0

    def _fill(self, trail: Trail, since_ms: int, name: JobName | None) -> None:
        """Work, results and letters since then: of the job, or of no job when ``name`` is None."""
        for topic in self._work_topics():
            for record in self._reader.read(self._starts(topic, since_ms)):
                if _is_of(record, name):
                    _add_work(trail, record)
        if name is not None:
            place = self._board.place(self._names.results(self._lane), name)
            start = self._board.start_of(place, since_ms)
            for record in self._reader.read({place: start}):
                if record.key == name.key and CARRIED not in record.headers:
                    items = decode_result(record.value).items
                    for origin in zip(
                        items.origin_partition.tolist(), items.origin_offset.tolist(), strict=True
                    ):
                        trail.add_result(origin)
        requests = self._names.requests(self._lane)
        for record in self._reader.read(
            self._starts(self._names.dead_letters(self._lane), since_ms)
        ):
            letter = decode_dead_letter(record.value)
            mine = name is None or letter.key == name.key or letter.job_id in (None, name.job_id)
            if mine:
                seen = LetterSeen(
                    topic=letter.topic, partition=letter.partition, offset=letter.offset,
                    stage=letter.stage, code=letter.code, job_id=letter.job_id,
                    index=letter.index,
                )  # fmt: skip
                trail.add_letter(seen, requests)

    def _requests(
        self,
        starts: Mapping[Place, int],
        ends: Mapping[Place, int] | None,
        name: JobName | None,
    ) -> Iterator[tuple[tuple[int, int], InferenceRequest]]:
        """Requests of the job, or those without a job, by origin."""
        for record in self._reader.read(starts, ends):
            if not _is_of(record, name):
                continue
            try:
                request = read_request(record.value, record.headers)
            except Undecodable:
                continue
            wanted = (None,) if name is None else (name.job_id, name.tenant)
            if (request.job_id, request.tenant)[: len(wanted)] == wanted:
                yield _origin(record), request

    def _state(self, name: JobName) -> str:
        """The state of the job in ``job-state``."""
        place = self._board.place(self._names.job_state(self._lane), name)
        low, high = self._reader.watermarks(place)
        state = ""
        for record in self._reader.read({place: low}, {place: high}):
            if record.key == name.key:
                found = None if record.value is None else decode_job_state(record.value)
                state = "" if found is None else found.closed or "open"
        return state


def _origin(record: Record) -> tuple[int, int]:
    """Where the item first came in; a redriven record names it in a header."""
    if ORIGIN not in record.headers:
        return record.partition, record.offset
    _, partition, offset = origin_from(record.headers, (record.topic, 0, 0))
    return partition, offset


def _is_of(record: Record, name: JobName | None) -> bool:
    """Whether the record may be the job's, by its header; without one it must be looked into."""
    job = record.headers.get(JOB)
    return job is None or (name is not None and job == name.key)


def _add_work(trail: Trail, record: Record) -> None:
    work = decode_work(record.value)
    items = work.items
    for row, origin in enumerate(
        zip(items.origin_partition.tolist(), items.origin_offset.tolist(), strict=True)
    ):
        trail.add_work(
            origin,
            WorkSeen(
                record.topic, record.partition, record.offset, items.digest_of(row), work.task,
                work.params,
            ),
        )  # fmt: skip


def _decode(record: Record) -> OutputRun | ResultItem | Completion:
    value = record.value or b""
    return parse_output_line(value) if value[:1] == b"{" else decode_output(value)
