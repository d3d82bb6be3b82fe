"""The life of one job as a table, and what is remembered of it while it is open.

    open ──full──────────► completed
     │ └─due──► expiring ──full──► expired          due:    deadline passed and log read up
     └─cancel─► cancelling ─full──► cancelled       cancel: asked for and log read up

``full`` means that every index below the total is released. While a job is expiring or cancelling
its holes are filled with rows of that state, so it becomes full in bounded steps. Nothing here
knows Kafka or a clock.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from streamer.event.codes import JOB_CANCELLED, JOB_COMPLETED, JOB_EXPIRED
from streamer.event.digest import START
from streamer.event.records import JobEntry
from streamer.reassemble.held import RunHead
from streamer.reassemble.waiting import WaitingRows

REASON_DEADLINE: Final = "deadline"
REASON_CANCEL: Final = "cancel"


class Life(Enum):
    """Where a job stands."""

    OPEN = "open"
    EXPIRING = "expiring"
    CANCELLING = "cancelling"
    COMPLETED = JOB_COMPLETED
    EXPIRED = JOB_EXPIRED
    CANCELLED = JOB_CANCELLED


class Event(Enum):
    """What can happen to a job."""

    FULL = "full"
    DUE = "due"
    CANCEL = "cancel"


class IllegalTransition(AssertionError):
    """An event that cannot happen in this state: our own mistake."""


LIFE: Final[dict[tuple[Life, Event], Life]] = {
    (Life.OPEN, Event.FULL): Life.COMPLETED,
    (Life.OPEN, Event.DUE): Life.EXPIRING,
    (Life.OPEN, Event.CANCEL): Life.CANCELLING,
    (Life.EXPIRING, Event.FULL): Life.EXPIRED,
    (Life.EXPIRING, Event.DUE): Life.EXPIRING,
    (Life.EXPIRING, Event.CANCEL): Life.EXPIRING,
    (Life.CANCELLING, Event.FULL): Life.CANCELLED,
    (Life.CANCELLING, Event.DUE): Life.CANCELLING,
    (Life.CANCELLING, Event.CANCEL): Life.CANCELLING,
}
ENDED: Final = frozenset({Life.COMPLETED, Life.EXPIRED, Life.CANCELLED})
CLOSING_REASON: Final = {Life.EXPIRING: REASON_DEADLINE, Life.CANCELLING: REASON_CANCEL}
CLOSING_OF_REASON: Final = {reason: life for life, reason in CLOSING_REASON.items()}


def step(life: Life, event: Event) -> Life:
    """The state after ``event``.

    Raises:
        IllegalTransition: the pair is not in the table.
    """
    try:
        return LIFE[life, event]
    except KeyError:
        raise IllegalTransition(f"{event.value} of a job that is {life.value}") from None


# Bits of ``Job.entries``: which keys of the job stand in ``jobs`` and want a tombstone.
ENTRY_KINDS: Final = ("descriptor", "seen", "total", "cancel")
ENTRY_BITS: Final = {kind: 1 << bit for bit, kind in enumerate(ENTRY_KINDS)}


class Job:
    """What is known of an open job.

    Attributes:
        next_index: first index not released.
        total: -1 while unknown.
        deadline_at_ms: earliest deadline anybody named, 0 while unknown.
        opened_at_ms: earliest append time of anything about the job; the default deadline
            counts from it. 0 while unknown.
        counts: released rows by status.
        released_origin: requests partition -> highest released origin offset.
        last_offset: highest results offset that held a row of this job, -1 without any.
        form, encoding: of the first released row.
        head: of the first row that was heard of, for rows that have no result.
        entries: bits of ``ENTRY_BITS``.
        unwritten: whether job_state lacks something.
    """

    __slots__ = (
        "asked_to_cancel", "counts", "deadline_at_ms", "deadline_named", "deadline_queued",
        "descriptor_form", "digest", "encoding", "entries", "form", "head", "job_id", "key",
        "last_offset", "life", "model", "next_index", "opened_at_ms", "released_origin",
        "results_from", "said_form", "tenant", "total", "total_conflict", "unwritten", "waiting",
    )  # fmt: skip

    def __init__(self, *, key: bytes, tenant: str, job_id: str) -> None:
        self.key = key
        self.tenant = tenant
        self.job_id = job_id
        self.life = Life.OPEN
        self.next_index = 0
        self.total = -1
        self.total_conflict = False
        self.deadline_at_ms = 0
        self.deadline_named = False  # by the descriptor, which silences ``seen``
        self.deadline_queued = 0
        self.opened_at_ms = 0
        self.counts = [0, 0, 0, 0]
        self.digest = START
        self.released_origin: dict[int, int] = {}
        self.results_from = -1
        self.last_offset = -1
        self.entries = 0
        self.asked_to_cancel = False
        self.model = ""
        self.form = ""
        self.descriptor_form = ""
        self.said_form = ""  # by route, of an item that may have no result yet
        self.encoding = ""
        self.head: RunHead | None = None
        self.unwritten = False
        self.waiting = WaitingRows()

    @property
    def is_full(self) -> bool:
        """Whether every index below the total is released."""
        return self.total >= 0 and self.next_index >= self.total

    @property
    def is_closing(self) -> bool:
        """Whether its holes are being filled."""
        return self.life is Life.EXPIRING or self.life is Life.CANCELLING

    def saw(self, at_ms: int) -> None:
        """Note the append time of something about this job; nonsense times are ignored."""
        if at_ms > 0 and (self.opened_at_ms == 0 or at_ms < self.opened_at_ms):
            self.opened_at_ms = at_ms

    def learn(self, entry: JobEntry) -> bool:
        """Take over what an entry of ``jobs`` says.

        The first total and the earliest deadline win. A deadline in the descriptor silences
        those that route derived from items.

        Returns:
            Whether the total became known by this entry.
        """
        self.entries |= ENTRY_BITS.get(entry.kind, 0)
        self.model = self.model or entry.model
        if entry.kind == "descriptor":
            self.descriptor_form = self.descriptor_form or entry.form
        else:
            self.said_form = self.said_form or entry.form
        if entry.kind == "cancel":
            self.asked_to_cancel = True
        self._learn_deadline(entry)
        return self._learn_total(entry.total)

    def _learn_deadline(self, entry: JobEntry) -> None:
        named = entry.kind == "descriptor"
        if entry.deadline_at_ms <= 0 or (self.deadline_named and not named):
            return
        self.deadline_named = self.deadline_named or named
        if self.deadline_at_ms == 0 or entry.deadline_at_ms < self.deadline_at_ms:
            self.deadline_at_ms = entry.deadline_at_ms
            self.unwritten = True

    def _learn_total(self, total: int) -> bool:
        if total < 0 or total == self.total:
            return False
        if self.total >= 0 or total < self.next_index:
            # Already fixed, or fewer than what is released: the first word stands.
            if not self.total_conflict:
                self.total_conflict = True
                self.unwritten = True
            return False
        self.total = total
        self.unwritten = True
        return True

    def is_repeat_of_released(self, *, partition: int, offset: int) -> bool:
        """Whether a row of that origin may have been released (so dropping it loses nothing)."""
        return offset <= self.released_origin.get(partition, -1)
