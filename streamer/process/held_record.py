"""One work record while its items are on their way: pure.

A record is held from its delivery until all its items have ended; batches take some of its items
and bring their rows back in any order. Parts of several records become the flat columns of a batch
here, and news of a batch find their way back to the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.emit.answer_rows import Answers, text_bounds
from streamer.emit.offset_metadata import OffsetMetadata
from streamer.event import codes
from streamer.event.lane import TopicPartition
from streamer.event.records import WorkRecord
from streamer.infer.collate import gather
from streamer.infer.engine import BatchColumns
from streamer.infer.launch import News

T = TypeVar("T", bound=np.generic)


@dataclass(slots=True, eq=False)
class Held:
    """A delivered record under the epoch of its partition.

    Attributes:
        left: items that have not ended.
        attempts: how often the record's partition was begun here before without progress.
    """

    answers: Answers
    at: TopicPartition
    offset: int
    epoch: int
    left: int
    attempts: int = 0

    @property
    def work(self) -> WorkRecord:
        """The record itself."""
        return self.answers.work

    def end_without_answer(
        self,
        rows: Sequence[int] | NDArray[np.integer[Any]],
        code: str,
        message: str,
        *,
        retryable: bool = False,
    ) -> None:
        """These items end errored (or expired, by the code)."""
        for row in rows:
            self.answers.fail(int(row), code, message, retryable=retryable)
        self.left -= len(rows)

    def answer(self, items: NDArray[np.int32], rows: NDArray[np.float32]) -> None:
        """These items end succeeded.

        Args:
            items: int32 [k], positions in the record, ascending.
            rows: float32 [texts of those items, ...].
        """
        answers = self.answers
        if answers.values is None:
            answers.values = np.empty((len(self.work.lengths), *rows.shape[1:]), np.float32)
        answers.values[_texts_of(self.work, items)] = rows
        answers.status[items] = codes.SUCCEEDED
        self.left -= len(items)

    def note_batch(self, batch_id: str, items: int, padded_tokens: int) -> None:
        """Put a batch that carried some of the items into the receipt."""
        receipt = self.answers.receipt
        self.answers.receipt = replace(
            receipt,
            batch_ids=(*receipt.batch_ids, batch_id),
            batch_size=max(receipt.batch_size, items),
            padded_tokens=receipt.padded_tokens + padded_tokens,
        )


@dataclass(slots=True)
class Owned:
    """A partition that is ours.

    Attributes:
        metadata: attempts at the offset where it began.
        sealed: these are committed, launches may begin.
        held: records that have not finished, by offset.
    """

    metadata: OffsetMetadata
    sealed: bool = False
    held: dict[int, Held] = field(default_factory=dict)

    @property
    def items(self) -> int:
        """Items of the records that have not finished."""
        return sum(len(held.work.items) for held in self.held.values())


class Member(NamedTuple):
    """Items of a record (positions, ascending) that stand in a batch."""

    held: Held
    items: NDArray[np.int32]


def batch_columns(members: Sequence[Member]) -> BatchColumns:
    """The flat columns of a batch, member after member; all share task and params."""
    first = members[0].held.work
    works = [(member.held.work, member.items) for member in members]
    texts = [_texts_of(work, items) for work, items in works]
    with_pairs = any(work.pair_at is not None for work, _ in works)
    ids = [
        work.token_ids if isinstance(part, slice) else gather(work.token_ids, work.lengths, part)
        for (work, _), part in zip(works, texts, strict=True)
    ]
    return BatchColumns(
        task=first.task,
        params_key=first.params_key,
        params=first.params,
        lengths=_joined([work.lengths[p] for (work, _), p in zip(works, texts, strict=True)]),
        token_ids=_joined(ids),  # type: ignore[arg-type]
        pair_at=_joined([_pairs(work)[p] for (work, _), p in zip(works, texts, strict=True)])
        if with_pairs
        else None,
        texts_per_item=_joined([work.items.rows[items] for work, items in works]),
    )


@dataclass(frozen=True, slots=True)
class MemberNews:
    """What a piece of news says about one member: positions in its record."""

    held: Held
    done: NDArray[np.int32]
    rows: NDArray[np.float32]
    failed: tuple[tuple[int, str, str, bool], ...]
    expired: tuple[int, ...]


def news_by_member(news: News, members: Sequence[Member]) -> Iterator[MemberNews]:
    """Take a piece of news apart, record by record; members without any news are left out."""
    row_edges = text_bounds(news.launch.columns.texts_per_item[news.done])
    begin = 0
    for member in members:
        end = begin + len(member.items)
        lo, hi = np.searchsorted(news.done, (begin, end))
        failed = tuple(
            (int(member.items[f.item - begin]), f.code, f.message, f.culprit)
            for f in news.failed
            if begin <= f.item < end
        )
        expired = tuple(int(member.items[p - begin]) for p in news.expired if begin <= p < end)
        if hi > lo or failed or expired:
            done = member.items[news.done[lo:hi] - begin]
            rows = news.rows[row_edges[lo] : row_edges[hi]]
            yield MemberNews(member.held, done, rows, failed, expired)
        begin = end


def _texts_of(work: WorkRecord, items: NDArray[np.int32]) -> NDArray[np.int64] | slice:
    """Positions of the texts of some items; a slice when they are all of the record's."""
    if len(items) == len(work.items):
        return slice(None)
    if len(work.lengths) == len(work.items):
        return items.astype(np.int64)
    bounds = text_bounds(work.items.rows)
    counts = work.items.rows[items]
    shift = np.repeat(bounds[items] - (np.cumsum(counts) - counts), counts)
    texts: NDArray[np.int64] = shift + np.arange(int(counts.sum()))
    return texts


def _pairs(work: WorkRecord) -> NDArray[np.int32]:
    return np.zeros(len(work.lengths), np.int32) if work.pair_at is None else work.pair_at


def _joined(parts: list[NDArray[T]]) -> NDArray[T]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
