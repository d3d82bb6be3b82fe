"""A formed micro-batch on its way to a device, and the news that come back.

The core makes launches and reads news; the executor carries them across threads and never looks at
the members. Positions count the items of the batch; every position comes back in exactly one piece
of news, as done, failed or expired.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.infer.collate import gather, starts
from streamer.infer.engine import BatchColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One batch for one model.

    Attributes:
        batch_id: stands in the receipts.
        deadline_at_ms: int64 [items], Unix ms, 0 = none.
        members: the core's note of which items these are.
        reason: why the batch was closed.
        tokens, padded_tokens: real and padded; the difference is waste.
        oldest_wait_ns: how long its oldest item waited.
        predicted_ms: device time the cost model expects.
    """

    lane: str
    model: str
    batch_id: str
    columns: BatchColumns
    deadline_at_ms: NDArray[np.int64]
    members: object
    reason: str = ""
    tokens: int = 0
    padded_tokens: int = 0
    oldest_wait_ns: int = 0
    predicted_ms: float = 0.0

    def __len__(self) -> int:
        return self.columns.items


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Position ``item`` has no answer.

    Attributes:
        culprit: the item itself made the model fail: dead letter besides the errored result.
    """

    item: int
    code: str
    message: str
    culprit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What became of some positions of a launch.

    Attributes:
        done: int [k], answered positions, ascending.
        rows: float32 [texts of those items, ...], in that order.
        expired: positions that were not run because their deadline had passed.
        final: nothing more follows for this launch.
        tokens, squares, device_ms: of the run, for the cost model; 0 when nothing ran.
        tokens_max: after running out of memory the largest size still to try; 0 = no news.
    """

    launch: Launch
    done: NDArray[np.int64]
    rows: NDArray[np.float32]
    failed: tuple[Failed, ...] = ()
    expired: tuple[int, ...] = ()
    final: bool = True
    tokens: int = 0
    squares: float = 0.0
    device_ms: float = 0.0
    tokens_max: int = 0


def late(deadline_at_ms: NDArray[np.int64], wall_ms: int) -> NDArray[np.bool_]:
    """Which items have passed their deadline; 0 is no deadline."""
    passed: NDArray[np.bool_] = (deadline_at_ms > 0) & (deadline_at_ms <= wall_ms)
    return passed


def take_items(columns: BatchColumns, picked: NDArray[np.int64]) -> BatchColumns:
    """The columns of the items at the picked positions, in that order."""
    if len(picked) == columns.items and (np.diff(picked) == 1).all():
        return columns
    first = starts(columns.texts_per_item)
    counts = columns.texts_per_item[picked]
    shift = np.repeat(first[picked] - (np.cumsum(counts) - counts), counts)
    texts = shift + np.arange(int(counts.sum()))
    return BatchColumns(
        task=columns.task,
        params_key=columns.params_key,
        params=columns.params,
        lengths=columns.lengths[texts],
        token_ids=gather(columns.token_ids, columns.lengths, texts),  # type: ignore[arg-type]
        pair_at=None if columns.pair_at is None else columns.pair_at[texts],
        texts_per_item=counts,
    )
