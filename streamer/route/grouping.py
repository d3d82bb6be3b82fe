"""Sorts the items of a cut by length and packs neighbours into work records. Pure.

Order is by index and made whole again by the aggregator, so sorting here is free; it is what keeps
padding low, because a record's texts have nearly one length. Invariant *bound*: every record keeps
to items, tokens, bytes and predicted answer bytes, or holds a single item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from streamer.route.entry import GroupKey, WorkItem


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Bounds of a work record.

    Attributes:
        items: at most.
        tokens: padded (longest text × texts), so that a record is at most one micro-batch.
        size_bytes: of the record.
        answer_bytes: of its predicted answer.
    """

    items: int = 64
    tokens: int = 2_048
    size_bytes: int = 262_144
    answer_bytes: int = 524_288


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The items of one work record, shortest first.

    Attributes:
        bucket: length class of all its items.
        tokens: real tokens.
        padded_tokens: longest text × texts.
        texts: texts of all items.
    """

    key: GroupKey
    bucket: int
    items: tuple[WorkItem, ...]
    tokens: int
    padded_tokens: int
    texts: int


def grouped(
    items: Iterable[WorkItem], limits: GroupLimits, bucket_of: Callable[[WorkItem], int]
) -> list[Group]:
    """Partition the items into groups; each item is in exactly one.

    Args:
        items: of any number of jobs and models.
        limits: bounds of a group; one larger item stands alone.
        bucket_of: length class of an item.
    """
    by_key: dict[GroupKey, list[WorkItem]] = {}
    for item in items:
        by_key.setdefault(item.key, []).append(item)
    groups: list[Group] = []
    for key, members in by_key.items():
        if key.job_id is None:
            groups += [_group(key, bucket_of(item), [item]) for item in members]
            continue
        # The index breaks ties, so that equal input gives equal records whatever the order.
        members.sort(key=lambda item: (item.longest, item.place.index, item.place.origin_offset))
        groups += _packed(key, members, limits, bucket_of)
    return groups


def _packed(
    key: GroupKey,
    members: list[WorkItem],
    limits: GroupLimits,
    bucket_of: Callable[[WorkItem], int],
) -> list[Group]:
    groups: list[Group] = []
    held: list[WorkItem] = []
    held_bucket = texts = size = answer = 0
    for item in members:
        bucket = bucket_of(item)
        full = held and (
            bucket != held_bucket
            or len(held) >= limits.items
            or item.longest * (texts + len(item.lengths)) > limits.tokens
            or size + item.size_bytes > limits.size_bytes
            or answer + item.answer_bytes > limits.answer_bytes
        )
        if full:
            groups.append(_group(key, held_bucket, held))
            held, texts, size, answer = [], 0, 0, 0
        held.append(item)
        held_bucket = bucket
        texts += len(item.lengths)
        size += item.size_bytes
        answer += item.answer_bytes
    if held:
        groups.append(_group(key, held_bucket, held))
    return groups


def _group(key: GroupKey, bucket: int, items: list[WorkItem]) -> Group:
    texts = sum(len(item.lengths) for item in items)
    return Group(
        key=key,
        bucket=bucket,
        items=tuple(items),
        tokens=sum(item.tokens for item in items),
        padded_tokens=max(item.longest for item in items) * texts,
        texts=texts,
    )
