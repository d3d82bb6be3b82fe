"""Cut sorted items into batches at the least predicted cost: exact, by dynamic programming.

Sorting comes before cutting, and the cut follows the cost: sorting inside a batch that is already
cut gains nothing. On real lengths the exact cut costs 6–20 % less than filling greedily, most when
the window is small. Source: TurboTransformers (arXiv 2010.05680), section on batch scheduling.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.batch.cost import CostModel
from streamer.batch.limits import BatchLimits


def split(
    longest: NDArray[np.int64],
    texts: NDArray[np.int64],
    item_bytes: NDArray[np.int64],
    limits: BatchLimits,
    cost: CostModel,
) -> list[tuple[int, int]]:
    """Cut items that are sorted by length, ascending.

    Args:
        longest: int64 [n], tokens of the longest text of each item, ascending.
        texts: int64 [n], texts of each item.
        item_bytes: int64 [n].
        limits: bounds of a batch; an item over a bound stands alone.
        cost: of a batch of ``texts × longest`` padded tokens.

    Returns:
        Half-open ranges that cover 0..n in order.
    """
    count = len(longest)
    fixed, per_text = _weights(longest, limits, cost)
    text_edges = _edges(texts)
    first = _first_allowed(longest, text_edges, _edges(item_bytes), limits, cost)
    if first[-1] == 0 and per_text[-1] * text_edges[-1] - (per_text * texts).sum() <= fixed:
        return [(0, count)]  # all padding together costs less than one more batch would
    best = np.zeros(count + 1)
    cut = np.zeros(count + 1, np.int64)
    for end in range(1, count + 1):
        begin = int(first[end - 1])
        weight = per_text[end - 1]
        totals = best[begin:end] - weight * text_edges[begin:end]
        at = int(totals.argmin())
        cut[end] = begin + at
        best[end] = totals[at] + weight * text_edges[end] + fixed
    ranges = []
    end = count
    while end:
        ranges.append((int(cut[end]), end))
        end = int(cut[end])
    return ranges[::-1]


def _edges(values: NDArray[np.int64]) -> NDArray[np.int64]:
    edges = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=edges[1:])
    return edges


def _ms_per_text(longest: NDArray[np.int64], cost: CostModel) -> NDArray[np.float64]:
    """Predicted ms of one text padded to each length, without a batch's fixed part."""
    squares = np.square(longest.astype(np.float64))
    priced: NDArray[np.float64] = longest * (cost.token_us / 1e3) + squares * (cost.square_ns / 1e6)
    return priced


def _weights(
    longest: NDArray[np.int64], limits: BatchLimits, cost: CostModel
) -> tuple[float, NDArray[np.float64]]:
    """Cost of a batch and of one text in a batch padded to each length, in ms."""
    per_text = _ms_per_text(longest, cost)
    if not per_text.any():
        # An engine that states no cost: the shape of a real one, relative.
        per_text = longest.astype(np.float64)
        return limits.tokens_max / 16, per_text
    # Without any fixed part every item would run alone; 1/64 of a full batch is less than any
    # device needs to be started.
    floor = limits.tokens_max * cost.token_us / 1e3 / 64
    return max(cost.fixed_ms, floor), per_text


def _first_allowed(
    longest: NDArray[np.int64],
    text_edges: NDArray[np.int64],
    byte_edges: NDArray[np.int64],
    limits: BatchLimits,
    cost: CostModel,
) -> NDArray[np.int64]:
    """For each item that ends a batch, the first item that may stand in it: int64 [n]."""
    count = len(longest)
    texts_max = (limits.tokens_max // longest).astype(np.int64)
    if limits.predicted_ms_max != float("inf"):
        per_text = _ms_per_text(longest, cost)
        left_ms = max(0.0, limits.predicted_ms_max - cost.fixed_ms)
        by_time = np.where(per_text > 0, left_ms / np.maximum(per_text, 1e-12), 1e12)
        texts_max = np.minimum(texts_max, np.minimum(by_time, 1e12).astype(np.int64))
    ends = np.arange(count)
    by_texts = np.searchsorted(text_edges, text_edges[1:] - texts_max, side="left")
    by_bytes = np.searchsorted(byte_edges, byte_edges[1:] - limits.bytes_max, side="left")
    by_items = ends + 1 - limits.items_max
    first = np.maximum(np.maximum(by_texts, by_bytes), np.maximum(by_items, 0))
    allowed: NDArray[np.int64] = np.minimum(first, ends)
    return allowed
