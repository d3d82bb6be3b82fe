"""Builders of engine input."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamer.infer.engine import BatchColumns


def a_batch(
    texts: Sequence[Sequence[int]],
    *,
    task: str = "embed",
    params: str = "{}",
    pair_at: Sequence[int] | None = None,
    texts_per_item: Sequence[int] | None = None,
) -> BatchColumns:
    """Columns of texts given as token ids."""
    return BatchColumns(
        task=task,
        params_key="p",
        params=params,
        lengths=np.array([len(text) for text in texts], np.int32),
        token_ids=np.array([token for text in texts for token in text], np.uint32),
        pair_at=None if pair_at is None else np.array(pair_at, np.int32),
        texts_per_item=np.array(
            [1] * len(texts) if texts_per_item is None else texts_per_item, np.int32
        ),
    )
