"""Flat token ids <-> padded rectangles, without a loop over texts. Pure numpy.

lengths [2, 3]  ids [a b c d e]   <->   a b .      mask 1 1 0
                                        c d e           1 1 1
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def starts(lengths: NDArray[np.int32]) -> NDArray[np.int64]:
    """Where each text begins in the flat ids: int64 [texts + 1], the last one is their sum."""
    edges = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=edges[1:])
    return edges


def mask_of(lengths: NDArray[np.int32], width: int | None = None) -> NDArray[np.bool_]:
    """True on real tokens, bool [texts, width]; ``width`` defaults to the longest text."""
    if width is None:
        width = int(lengths.max(initial=0))
    filled: NDArray[np.bool_] = np.arange(width) < lengths[:, None]
    return filled


def pad(
    token_ids: NDArray[np.generic], mask: NDArray[np.bool_], pad_id: int = 0
) -> NDArray[np.int64]:
    """Flat ids to int64 [texts, width] with ``pad_id`` on the right."""
    padded = np.full(mask.shape, pad_id, np.int64)
    padded[mask] = token_ids
    return padded


def unpad(padded: NDArray[np.generic], mask: NDArray[np.bool_]) -> NDArray[np.generic]:
    """The exact inverse of :func:`pad`."""
    return padded[mask]


def segments(mask: NDArray[np.bool_], pair_at: NDArray[np.int32] | None) -> NDArray[np.int64]:
    """Token types int64 [texts, width]: 1 from the second segment of a pair on, else 0."""
    types = np.zeros(mask.shape, np.int64)
    if pair_at is not None:
        begins = np.where(pair_at > 0, pair_at, mask.shape[1])
        types[(np.arange(mask.shape[1]) >= begins[:, None]) & mask] = 1
    return types


def gather(
    token_ids: NDArray[np.generic], lengths: NDArray[np.int32], texts: NDArray[np.int64]
) -> NDArray[np.generic]:
    """The flat ids of some texts, in the order asked for.

    Args:
        token_ids: [sum of lengths].
        lengths: int32 [texts].
        texts: int64 [k], positions of the wanted texts.
    """
    wanted = lengths[texts].astype(np.int64)
    edges = starts(lengths)
    # Position inside the result minus where its text begins there, plus where it begins here.
    offsets = np.repeat(edges[texts] - (np.cumsum(wanted) - wanted), wanted)
    return token_ids[offsets + np.arange(int(wanted.sum()))]


def rectangles(lengths: NDArray[np.int32], tokens_max: int) -> Sequence[NDArray[np.int64]]:
    """Cut texts into rectangles of at most ``tokens_max`` padded tokens, shortest texts first.

    A text longer than that stands alone. One rectangle keeps the given order.

    Returns:
        Positions of the texts of each rectangle; together each text once.
    """
    count = len(lengths)
    if count == 0:
        return []
    if count * int(lengths.max()) <= tokens_max or count == 1:
        return [np.arange(count, dtype=np.int64)]
    order = np.argsort(lengths, kind="stable")
    pieces = []
    begin = 0
    for at in range(1, count + 1):
        if at == count or (at - begin + 1) * int(lengths[order[at]]) > tokens_max:
            pieces.append(order[begin:at].astype(np.int64))
            begin = at
    return pieces
