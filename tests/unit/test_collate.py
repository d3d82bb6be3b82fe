from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamer.infer.collate import gather, mask_of, pad, rectangles, segments, starts, unpad

lengths_of = st.lists(st.integers(1, 20), min_size=1, max_size=30).map(
    lambda values: np.array(values, np.int32)
)


@given(lengths=lengths_of, pad_id=st.integers(0, 5))
def test_unpad_gives_back_exactly_what_pad_was_given(lengths: np.ndarray, pad_id: int) -> None:
    ids = np.arange(lengths.sum(), dtype=np.uint16)
    mask = mask_of(lengths)

    padded = pad(ids, mask, pad_id)

    assert padded.shape == (len(lengths), lengths.max())
    assert (unpad(padded, mask) == ids).all()
    assert (padded[~mask] == pad_id).all()


@given(lengths=lengths_of, data=st.data())
def test_gather_takes_whole_texts_in_the_order_asked_for(
    lengths: np.ndarray, data: st.DataObject
) -> None:
    ids = np.arange(lengths.sum(), dtype=np.uint32)
    picked = data.draw(st.permutations(range(len(lengths))))
    edges = starts(lengths)

    taken = gather(ids, lengths, np.array(picked, np.int64))

    expected = [ids[edges[text] : edges[text + 1]] for text in picked]
    assert (taken == np.concatenate(expected)).all()


@given(lengths=lengths_of, tokens_max=st.integers(1, 100))
def test_rectangles_hold_each_text_once_and_keep_to_the_bound(
    lengths: np.ndarray, tokens_max: int
) -> None:
    pieces = rectangles(lengths, tokens_max)

    assert sorted(np.concatenate(pieces).tolist()) == list(range(len(lengths)))
    for piece in pieces:
        assert len(piece) == 1 or len(piece) * lengths[piece].max() <= tokens_max


def test_the_second_segment_begins_at_pair_at_and_ends_with_the_text() -> None:
    mask = mask_of(np.array([5, 3], np.int32))

    types = segments(mask, np.array([3, 0], np.int32))

    assert types.tolist() == [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]
