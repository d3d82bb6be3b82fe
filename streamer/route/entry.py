"""What a delivered request record has become, waiting for its transaction. Pure.

Record --> Entry: at (partition, offset), content = WorkItem | Refusal | DeadLetter
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from streamer.event.lane import TopicPartition
from streamer.event.records import DeadLetter
from streamer.route.tokenizer import TokenIds


class GroupKey(NamedTuple):
    """What all items of a work record share; one without a job is never grouped."""

    model: str
    task: str
    tenant: str
    job_id: str | None
    params: str
    params_key: str
    form: str
    encoding: str
    reply_to: int | None
    origin_topic: str


@dataclass(frozen=True, slots=True)
class ItemPlace:
    """Who an item is: columns that travel to the output unchanged.

    ``index`` is -1 without a job.
    """

    index: int
    custom_id: str
    origin_partition: int
    origin_offset: int
    rows: int
    metadata: str | None
    digest: bytes
    accepted_at_ms: int
    flags: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """A tokenized item; made by :func:`work_item`, which counts once what is asked often.

    Attributes:
        lengths: tokens of each text.
        ids: token ids of each text.
        pair_at: where the second segment of each text begins, 0 = single.
        deadline_at_ms: 0 = none.
        answer_bytes: predicted bytes of the whole answer.
        tokens: of all its texts.
        longest: tokens of its longest text; decides bucket and neighbours.
        size_bytes: what it adds to a work record, roughly: ids, names, fixed columns.
    """

    key: GroupKey
    place: ItemPlace
    lengths: tuple[int, ...]
    ids: tuple[TokenIds, ...]
    pair_at: tuple[int, ...]
    deadline_at_ms: int
    answer_bytes: int
    tokens: int
    longest: int
    size_bytes: int


def work_item(
    *, key: GroupKey, place: ItemPlace, ids: tuple[TokenIds, ...], pair_at: tuple[int, ...],
    deadline_at_ms: int, answer_bytes: int,
) -> WorkItem:  # fmt: skip
    """A tokenized item of at least one text."""
    lengths = tuple(map(len, ids))
    # A character needs at most 4 bytes; 8 bytes a text and 80 an item are the numeric columns.
    names = 4 * (len(place.custom_id) + len(place.metadata or ""))
    return WorkItem(
        key=key, place=place, lengths=lengths, ids=ids, pair_at=pair_at,
        deadline_at_ms=deadline_at_ms, answer_bytes=answer_bytes, tokens=sum(lengths),
        longest=max(lengths),
        size_bytes=sum([one.nbytes for one in ids]) + 8 * len(lengths) + names + 80,
    )  # fmt: skip


class RefusalKey(NamedTuple):
    """What the refused items of a result record share."""

    model: str
    task: str
    tenant: str
    job_id: str | None
    form: str
    encoding: str
    reply_to: int | None
    origin_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An item that is answered without running: code, message, and its final status."""

    key: RefusalKey
    place: ItemPlace
    status: int
    code: str
    message: str
    retryable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNote:
    """What an item says about its job; -1 and 0 where it says nothing."""

    tenant: str
    job_id: str
    total: int
    deadline_at_ms: int
    model: str
    form: str
    accepted_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One delivered record.

    Attributes:
        at, offset: its place in the input.
        arrived_ns: monotonic time of delivery.
        size_bytes: what it holds in memory, roughly.
        note: about its job; None without a job.
        tokens: of its item; 0 when it is refused or dead.
    """

    at: TopicPartition
    offset: int
    arrived_ns: int
    size_bytes: int
    content: WorkItem | Refusal | DeadLetter
    note: JobNote | None = None
    tokens: int = 0
