"""Tokenizer of the fake models: a word is a token, its id a checksum. Pure.

    "to be  or" -> [crc32("to") mod 2^16, crc32("be") mod 2^16, crc32("or") mod 2^16]

No special tokens; a text without words (spaces, say) is the single token 0.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from streamer.event.file_models import FAKE_MAX_LENGTH, FAKE_TOKENIZER, FAKE_VOCABULARY
from streamer.route.tokenizer import Encoded, TextRequest, cut, pair_lengths


def fake_ids(text: str) -> list[int]:
    """Token ids of a text, uncut."""
    return [zlib.crc32(word.encode("utf-8", "replace")) & 0xFFFF for word in text.split()] or [0]


class FakeTokenizer:
    """See :class:`streamer.route.tokenizer.Tokenizer`."""

    def __init__(self, *, max_length: int = FAKE_MAX_LENGTH) -> None:
        self.hash = FAKE_TOKENIZER
        self.max_length = max_length
        self.vocabulary = FAKE_VOCABULARY

    def encode(self, texts: Sequence[TextRequest]) -> list[Encoded]:
        """See :class:`streamer.route.tokenizer.Tokenizer`."""
        return [self._encode(item) for item in texts]

    def adopt(self, ids: Sequence[int], *, truncate: bool, direction: str) -> Encoded:
        """See :class:`streamer.route.tokenizer.Tokenizer`."""
        if len(ids) > self.max_length and not truncate:
            return Encoded(np.empty(0, dtype=np.uint16), len(ids))
        kept = cut(ids, self.max_length, direction)
        return Encoded(np.array(kept, dtype=np.uint16), len(ids), 0, len(kept) < len(ids))

    def _encode(self, item: TextRequest) -> Encoded:
        first = fake_ids(item.text)
        second = fake_ids(item.pair) if item.pair is not None else []
        tokens = len(first) + len(second)
        truncated = tokens > self.max_length
        if truncated:
            if not item.truncate:
                return Encoded(np.empty(0, dtype=np.uint16), tokens)
            keep = pair_lengths(len(first), len(second), self.max_length)
            first = list(cut(first, keep[0], item.direction))
            second = list(cut(second, keep[1], item.direction))
        pair_at = len(first) if item.pair is not None else 0
        return Encoded(np.array([*first, *second], dtype=np.uint16), tokens, pair_at, truncated)
