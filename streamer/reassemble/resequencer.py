"""The rows of one results partition: which wait, which are repeats, which may leave.

Every decision is per row. A row is known by (job, index); the first in the log wins.

    index     < next     released before: its origin at or below the highest released one of its
                         requests partition: counted; above: dead letter ``repeated_index``
              = waiting  same origin or same input digest: counted; else ``repeated_index``
              >= total   dead letter ``index_out_of_range``
    job ended            like a released index, with ``job_closed``
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields

from streamer.event.records import DeadLetter, ResultRecord
from streamer.event.topics import job_key
from streamer.reassemble.closed import ClosedMarks
from streamer.reassemble.held import Held
from streamer.reassemble.job import Job
from streamer.reassemble.mark import LowMark
from streamer.reassemble.waiting import ROW_BITS, ROW_MASK

STAGE = "aggregate"
_MESSAGES = {
    "index_out_of_range": "the index is not within the total of the job",
    "repeated_index": "another request of the job came first under this index",
    "job_closed": "the job had ended before this request was answered",
    "corrupt_record": "the record lies in a partition that its job does not belong to",
}
JOB_COUNTS = frozenset({"completed", "expired", "cancelled", "conflicts", "bad_entries"})


@dataclass(slots=True)
class Tally:
    """What happened to rows and (``JOB_COUNTS``) to jobs, for metrics; only ever grows."""

    released: int = 0
    filled: int = 0
    repeated: int = 0
    late: int = 0
    carried: int = 0
    letters: int = 0
    completed: int = 0
    expired: int = 0
    cancelled: int = 0
    conflicts: int = 0
    bad_entries: int = 0

    def as_dict(self) -> dict[str, int]:
        """Name -> count."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


class Resequencer:
    """Waiting rows and jobs of one results partition.

    Args:
        lane: fast or bulk.
        low: the partition's mark.
        tally: counts are added here.

    Attributes:
        bytes: of the records that hold something.
        count: rows waiting.
    """

    __slots__ = ("_held", "_lane", "bytes", "closed", "count", "jobs", "letters", "low", "tally")

    def __init__(self, *, lane: str, low: LowMark, tally: Tally) -> None:
        self._lane = lane
        self._held: dict[int, Held] = {}
        self.low = low
        self.tally = tally
        self.bytes = 0
        self.count = 0
        self.jobs: dict[bytes, Job] = {}
        self.closed = ClosedMarks()
        self.letters: deque[tuple[int, DeadLetter]] = deque()  # with the results offset

    def open(self, tenant: str, job_id: str) -> Job:
        """The open job of that name, made when it is new; must not be a closed one."""
        key = job_key(self._lane, tenant, job_id)
        job = self.jobs.get(key)
        if job is None:
            job = self.jobs[key] = Job(key=key, tenant=tenant, job_id=job_id)
        return job

    def accept(self, offset: int, record: ResultRecord, *, size: int, carried: bool) -> Job | None:
        """Take the rows of the record at ``offset``.

        Args:
            offset: its place in the log; higher than every one before.
            record: its job id is set.
            size: bytes of its value.
            carried: whether it is a verbatim copy of a waiting record; such are no repeats.

        Returns:
            The open job of the rows, None when it has ended.
        """
        assert record.job_id is not None
        key = job_key(record.lane, record.tenant, record.job_id)
        held = Held(record, size)
        if key in self.closed:
            self._after_the_end(key, offset, held, carried=carried)
            return None
        job = self.open(record.tenant, record.job_id)
        job.last_offset = offset
        if job.head is None:
            job.head = held.head
        if job.results_from < 0:
            job.results_from = offset
        base = offset << ROW_BITS
        low, high = job.next_index, job.total
        put = job.waiting.put
        kept = 0
        odd: list[tuple[int, str]] = []
        for row, index in enumerate(record.items.index.tolist()):
            if index < low or (0 <= high <= index):
                why = self._outside(job, held, row, index, carried=carried)
            else:
                before = put(index, base | row)
                if before < 0:
                    kept += 1
                    continue
                first = held if before >> ROW_BITS == offset else self._held[before >> ROW_BITS]
                why = self._repeat(first, before & ROW_MASK, held, row, carried=carried)
            if why:
                odd.append((row, why))
        self._keep(offset, held, kept, odd)
        return job

    def _outside(self, job: Job, held: Held, row: int, index: int, *, carried: bool) -> str:
        if carried:
            self.tally.carried += 1
            return ""
        if index < 0:
            return "index_out_of_range"
        items = held.record.items
        partition, origin = int(items.origin_partition[row]), int(items.origin_offset[row])
        if index < job.next_index and job.is_repeat_of_released(partition=partition, offset=origin):
            self.tally.late += 1
            return ""
        if job.is_closing:
            return "job_closed"
        return "repeated_index" if index < job.next_index else "index_out_of_range"

    def _repeat(self, first: Held, first_row: int, held: Held, row: int, *, carried: bool) -> str:
        if carried:
            self.tally.carried += 1
            return ""
        ours, theirs = held.record.items, first.record.items
        same_origin = (
            ours.origin_offset[row] == theirs.origin_offset[first_row]
            and ours.origin_partition[row] == theirs.origin_partition[first_row]
        )
        if same_origin or ours.digest_of(row) == theirs.digest_of(first_row):
            self.tally.repeated += 1
            return ""
        return "repeated_index"

    def _after_the_end(self, key: bytes, offset: int, held: Held, *, carried: bool) -> None:
        self.closed.saw_result(key, offset)
        items = held.record.items
        odd: list[tuple[int, str]] = []
        for row in range(len(items)):
            if carried:
                self.tally.carried += 1
            elif self.closed.is_repeat_of_released(
                key, partition=int(items.origin_partition[row]),
                offset=int(items.origin_offset[row]),
            ):  # fmt: skip
                self.tally.late += 1
            else:
                odd.append((row, "job_closed"))
        self._keep(offset, held, 0, odd)

    def _keep(self, offset: int, held: Held, kept: int, odd: list[tuple[int, str]]) -> None:
        if not kept and not odd:
            return
        self.low.hold(offset, kept + len(odd))
        self._held[offset] = held
        self.bytes += held.size
        self.count += kept
        for row, why in odd:
            self._letter(offset, held, row, why)

    def _letter(self, offset: int, held: Held, row: int, code: str) -> None:
        record, items = held.record, held.record.items
        self.tally.letters += 1
        self.letters.append(
            (
                offset,
                DeadLetter(
                    topic=record.origin_topic,
                    partition=int(items.origin_partition[row]),
                    offset=int(items.origin_offset[row]),
                    stage=STAGE,
                    code=code,
                    message=_MESSAGES[code],
                    tenant=record.tenant,
                    job_id=record.job_id,
                    index=int(items.index[row]),
                    custom_id=items.custom_id[row],
                    timestamp_ms=int(items.accepted_at_ms[row]),
                ),
            )
        )

    def refuse(self, offset: int, record: ResultRecord, *, size: int) -> None:
        """Take a record that lies in a partition its job does not belong to: dead letters."""
        held = Held(record, size)
        self._keep(offset, held, 0, [(row, "corrupt_record") for row in range(len(record.items))])

    def refuse_bytes(self, offset: int, letter: DeadLetter) -> None:
        """Take a record that could not be decoded: one dead letter."""
        self.low.hold(offset, 1)
        self.tally.letters += 1
        self.letters.append((offset, letter))

    def cut_to_total(self, job: Job) -> None:
        """The total became known: waiting rows at and above it turn into dead letters."""
        for _, place in job.waiting.pop_from(job.total):
            self.count -= 1
            offset, row = place >> ROW_BITS, place & ROW_MASK
            self._letter(offset, self._held[offset], row, "index_out_of_range")

    def take_run(self, job: Job, count_max: int) -> Iterator[tuple[Held, int]]:
        """Take the rows that are next in order, up to the first hole; they hold nothing more."""
        for place in job.waiting.pop_run(job.next_index, count_max):
            offset = place >> ROW_BITS
            yield self._held[offset], place & ROW_MASK
            self.count -= 1
            self.let_go(offset)

    def let_go(self, offset: int) -> None:
        """One row or dead letter of the record at ``offset`` is part of an emission."""
        if self.low.let_go(offset):
            held = self._held.pop(offset, None)
            if held is not None:
                self.bytes -= held.size
