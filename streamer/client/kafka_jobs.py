"""What the topics already know of a job: descriptor, state, and the indexes that were accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamer.client.kafka_read import Place, TopicReader
from streamer.errors import Undecodable
from streamer.event.headers import JOB
from streamer.event.intake import read_request
from streamer.event.records import JobEntry, JobState
from streamer.event.topics import TopicNames, job_entry_key, job_key, partition_of
from streamer.event.wire import decode_job, decode_job_state

# Clocks of several brokers differ; what is read twice is dropped by index.
TIME_MARGIN_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobName:
    """A job's full name; ids are single-use within a lane and tenant."""

    lane: str
    job_id: str
    tenant: str = "default"

    @property
    def key(self) -> bytes:
        """Record key and partition key of everything about the job."""
        return job_key(self.lane, self.tenant, self.job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKnown:
    """What ``jobs`` says about a job.

    Attributes:
        entries: by kind: ``descriptor``, ``seen``, ``total``, ``cancel``.
        since_ms: append time of the oldest of them, less a margin; 0 when there is none.
    """

    entries: Mapping[str, JobEntry]
    since_ms: int

    @property
    def descriptor(self) -> JobEntry | None:
        """What the submitter said at first."""
        return self.entries.get("descriptor")

    @property
    def total(self) -> int:
        """Items of the job; -1 while nobody said."""
        for kind in ("descriptor", "total", "seen"):
            entry = self.entries.get(kind)
            if entry is not None and entry.total >= 0:
                return entry.total
        return -1


class IndexSet:
    """Indexes of a job, a bit each; a job of ten million items takes 1.4 MB."""

    _BLOCK = 8_192

    def __init__(self) -> None:
        self._blocks: dict[int, bytearray] = {}

    def add(self, index: int) -> None:
        """Put ``index`` in."""
        block, at = divmod(index, self._BLOCK)
        bits = self._blocks.setdefault(block, bytearray(self._BLOCK // 8))
        bits[at >> 3] |= 1 << (at & 7)

    def __contains__(self, index: int) -> bool:
        block, at = divmod(index, self._BLOCK)
        bits = self._blocks.get(block)
        return bits is not None and bool(bits[at >> 3] >> (at & 7) & 1)


class JobBoard:
    """Questions about one lane's jobs, answered from the topics.

    Args:
        reader: how to read.
        names: topic names.
    """

    def __init__(self, reader: TopicReader, names: TopicNames) -> None:
        self._reader = reader
        self._names = names

    def place(self, topic: str, job: JobName) -> Place:
        """The partition of ``topic`` that carries the job."""
        return topic, partition_of(job.key, self._reader.partition_count(topic))

    def known(self, job: JobName) -> JobKnown:
        """Read what is said about the job; the topic is compacted, so this is short."""
        place = self.place(self._names.jobs(job.lane), job)
        kinds = ("descriptor", "seen", "total", "cancel")
        wanted = {job_entry_key(job.lane, job.tenant, job.job_id, kind): kind for kind in kinds}
        entries: dict[str, JobEntry] = {}
        times: dict[str, int] = {}
        low, high = self._reader.watermarks(place)
        for record in self._reader.read({place: low}, {place: high}):
            kind = wanted.get(record.key or b"")
            if kind is None:
                continue
            if record.value is None:
                entries.pop(kind, None)
                times.pop(kind, None)
                continue
            entries[kind] = decode_job(record.value)
            times[kind] = record.timestamp_ms
        since = max(0, min(times.values()) - TIME_MARGIN_MS) if times else 0
        return JobKnown(entries=entries, since_ms=since)

    def start_of(self, place: Place, since_ms: int) -> int:
        """Where to begin reading ``place`` for something that began at ``since_ms``."""
        low = self._reader.watermarks(place)[0]
        return low if since_ms <= 0 else max(low, self._reader.offset_at(place, since_ms))

    def accepted(self, job: JobName, since_ms: int) -> IndexSet:
        """The indexes of the job that are committed to ``requests``.

        Reads what was appended to the topic since the job began.
        """
        topic = self._names.requests(job.lane)
        places = [(topic, p) for p in range(self._reader.partition_count(topic))]
        starts = {place: self.start_of(place, since_ms) for place in places}
        found = IndexSet()
        for record in self._reader.read(starts):
            if record.headers.get(JOB) != job.key:
                continue
            try:
                request = read_request(record.value, record.headers)
            except Undecodable:
                continue
            if request.index is not None:
                found.add(request.index)
        return found


class StateFollower:
    """The newest state of one job; each call reads on from where the last one ended.

    Args:
        reader: how to read.
        place: the partition of ``job-state`` that carries the job.
        start: offset to begin at.
        job: whose state.
    """

    def __init__(self, reader: TopicReader, place: Place, start: int, job: JobName) -> None:
        self._reader = reader
        self._place = place
        self._next = start
        self._job = job
        self._state: JobState | None = None

    def newest(self) -> JobState | None:
        """The state as committed by now; None before the first row was released."""
        low, high = self._reader.watermarks(self._place)
        for record in self._reader.read({self._place: max(low, self._next)}, {self._place: high}):
            if record.key == self._job.key and record.value is not None:
                self._state = decode_job_state(record.value)
        self._next = max(self._next, high)
        return self._state
