"""What route has already told aggregate about each job (``#seen`` records). Pure, bounded.

A job is announced with its first items, and again when an item brings a total not yet told or an
earlier deadline. Notes count only when their transaction is committed: a draft collects them.

A forgotten job (the least recently used go first) is merely announced once more. So is one that
was announced long ago: its id may have been used again after its closed mark was gone.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from streamer.event.records import JobEntry
from streamer.route.entry import JobNote

Job = tuple[str, str]
_TOTALS_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteLimits:
    """How much is remembered.

    Attributes:
        jobs: notes kept.
        again_ms: a job announced longer ago is announced again.
    """

    jobs: int = 16_384
    again_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class _Told:
    totals: tuple[int, ...]
    deadline_at_ms: int
    at_ms: int

    def misses(self, note: JobNote) -> bool:
        """Whether the note says more than was told."""
        new_total = (
            note.total >= 0 and note.total not in self.totals and len(self.totals) < _TOTALS_MAX
        )
        earlier = note.deadline_at_ms > 0 and (
            self.deadline_at_ms == 0 or note.deadline_at_ms < self.deadline_at_ms
        )
        return new_total or earlier


class JobNotes:
    """Jobs announced by committed transactions.

    Args:
        lane: stands in the records.
        limits: how much is remembered.
    """

    def __init__(self, *, lane: str, limits: NoteLimits) -> None:
        self.lane = lane
        self._limits = limits
        self._told: OrderedDict[Job, _Told] = OrderedDict()

    def __len__(self) -> int:
        return len(self._told)

    def told(self, job: Job, now_ms: int) -> _Told | None:
        """What was told of a job, unless it is too long ago."""
        found = self._told.get(job)
        if found is None or now_ms - found.at_ms > self._limits.again_ms:
            return None
        return found

    def draft(self, now_ms: int) -> NoteDraft:
        """Notes of one transaction."""
        return NoteDraft(self, now_ms)

    def keep(self, draft: NoteDraft) -> None:
        """The transaction of this draft is committed."""
        for job, told in draft.changes.items():
            self._told[job] = told
            self._told.move_to_end(job)
        while len(self._told) > self._limits.jobs:
            self._told.popitem(last=False)


class NoteDraft:
    """What one transaction will say about jobs; made by :meth:`JobNotes.draft`."""

    def __init__(self, notes: JobNotes, now_ms: int) -> None:
        self._notes = notes
        self._now_ms = now_ms
        self.changes: dict[Job, _Told] = {}
        self._entries: dict[Job, list[JobEntry]] = {}

    def needs(self, note: JobNote) -> bool:
        """Whether this note must be told in this transaction, with what was added so far."""
        job = (note.tenant, note.job_id)
        told = self.changes.get(job) or self._notes.told(job, self._now_ms)
        return told is None or told.misses(note)

    def add(self, note: JobNote) -> None:
        """Tell it, if it is needed."""
        job = (note.tenant, note.job_id)
        told = self.changes.get(job) or self._notes.told(job, self._now_ms)
        if told is not None and not told.misses(note):
            return
        before = told or _Told((), 0, self._now_ms)
        totals, deadline = before.totals, before.deadline_at_ms
        if note.total >= 0 and note.total not in totals:
            totals = (*totals, note.total)
        if note.deadline_at_ms and (not deadline or note.deadline_at_ms < deadline):
            deadline = note.deadline_at_ms
        self.changes[job] = _Told(totals, deadline, self._now_ms)
        self._write(job, note, totals[-1] if totals else -1, deadline)

    def records(self) -> list[JobEntry]:
        """One entry a job, and one more for each further total."""
        return [entry for entries in self._entries.values() for entry in entries]

    def _write(self, job: Job, note: JobNote, total: int, deadline_at_ms: int) -> None:
        entries = self._entries.setdefault(job, [])
        if entries and entries[-1].total in (-1, total):
            entries[-1] = replace(entries[-1], total=total, deadline_at_ms=deadline_at_ms)
            return
        entries.append(
            JobEntry(
                lane=self._notes.lane, tenant=note.tenant, job_id=note.job_id, kind="seen",
                total=total, deadline_at_ms=deadline_at_ms, model=note.model, form=note.form,
                created_at_ms=note.accepted_at_ms,
            )
        )  # fmt: skip
