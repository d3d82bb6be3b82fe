"""What route asks of a tokenizer, and how a text is cut to a limit.

Cutting happens here and not inside the tokenizer library: its truncation is a setting of a shared
object, and a thread that changes it changes the answers of all others. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

TokenIds: TypeAlias = NDArray[np.uint16] | NDArray[np.uint32]
RIGHT = "right"
LEFT = "left"


class TextRequest(NamedTuple):
    """One text (or pair) to be tokenized.

    Attributes:
        truncate: cut to the limit instead of reporting the full length.
        direction: the side that is cut: ``right`` or ``left``.
    """

    text: str
    pair: str | None = None
    truncate: bool = False
    direction: str = RIGHT


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of one text, special tokens included.

    Attributes:
        ids: uint16 [tokens] (uint32 for large vocabularies); empty when the text is too long.
        tokens: tokens of the uncut text; when it was cut, at least that many.
        pair_at: position where the second segment begins, 0 = single text.
        truncated: whether something was cut off.
    """

    ids: TokenIds
    tokens: int
    pair_at: int = 0
    truncated: bool = False


class Tokenizer(Protocol):
    """One model's tokenizer; used from one thread.

    Attributes:
        hash: travels with the ids, so that no other tokenizer's model takes them.
        max_length: tokens of a text, special tokens included.
        vocabulary: ids a caller sends must lie below it.
    """

    @property
    def hash(self) -> str:
        """See the class."""
        ...

    @property
    def max_length(self) -> int:
        """See the class."""
        ...

    @property
    def vocabulary(self) -> int:
        """See the class."""
        ...

    def encode(self, texts: Sequence[TextRequest]) -> list[Encoded]:
        """Ids of every text, in order. A text over the limit comes back cut or without ids."""
        ...

    def adopt(self, ids: Sequence[int], *, truncate: bool, direction: str) -> Encoded:
        """Ids that the caller made, checked by nobody yet: cut like a text."""
        ...


def ids_array(ids: Sequence[int], vocabulary: int) -> TokenIds:
    """The ids as an array, two bytes an id when they suffice for the vocabulary."""
    if 0 < vocabulary <= 65_536:
        return np.array(ids, dtype=np.uint16)
    return np.array(ids, dtype=np.uint32)


def pair_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """How much of each side of a pair stays when ``room`` tokens are left: longest first.

    Source: ``truncate_encodings`` of the tokenizers library, strategy LongestFirst.
    """
    if first + second <= room:
        return first, second
    short, long = min(first, second), max(first, second)
    long = short if short > room else max(short, room - short)
    if short + long > room:
        short = room // 2
        long = short + room % 2
    return (short, long) if first <= second else (long, short)


def cut(ids: Sequence[int], keep: int, direction: str) -> Sequence[int]:
    """The ``keep`` tokens that stay: the first ones, or the last ones when cut on the left."""
    if len(ids) <= keep:
        return ids
    return ids[len(ids) - keep :] if direction == LEFT else ids[:keep]
