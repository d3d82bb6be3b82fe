"""The tokenizer of a model, straight from its ``tokenizer.json``.

Neither padding nor truncation of the library is used (both are settings of the shared object):
texts are encoded without special tokens, cut here, and framed by the template that the tokenizer's
own post-processor showed at start. One object a thread.

A very long text that may be cut is not tokenized whole: as many characters as surely hold the
wanted tokens are taken from the kept side, ending between words, and more if that was too few.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer as Library

from streamer.errors import ConfigurationError
from streamer.route.tokenizer import (
    LEFT,
    Encoded,
    TextRequest,
    TokenIds,
    cut,
    ids_array,
    pair_lengths,
)

# English takes 4 to 5 characters a token; with 8 nearly every text needs one look.
_CHARS_PER_TOKEN = 8
# A look must yield this many tokens more than wanted when it had to end inside a word.
_MARGIN_TOKENS = 256
_BOUNDARY_CHARS = 200


class _Frame(NamedTuple):
    """Special tokens around and between the segments."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)


class HfTokenizer:
    """See :class:`streamer.route.tokenizer.Tokenizer`.

    Args:
        library: an object of the tokenizers library that nobody else uses.
        tokenizer_hash: names it in work records.
        max_length: tokens of a text, special tokens included.
        vocabulary: of the model; 0 = ask the tokenizer.
    """

    def __init__(
        self, library: Library, *, tokenizer_hash: str, max_length: int, vocabulary: int = 0
    ) -> None:
        library.no_truncation()
        library.no_padding()
        self._library = library
        self._single = _frame_single(library)
        self._pair = _frame_pair(library)
        self.hash = tokenizer_hash
        self.max_length = max_length
        self.vocabulary = vocabulary or library.get_vocab_size()

    @classmethod
    def from_folder(
        cls, folder: Path, *, tokenizer_hash: str, max_length: int, vocabulary: int = 0
    ) -> HfTokenizer:
        """Read ``tokenizer.json`` of a model folder.

        Raises:
            ConfigurationError: the file is not one of the tokenizers library.
        """
        file = folder / "tokenizer.json"
        try:
            library = Library.from_file(str(file))
        except Exception as error:  # the library raises nothing narrower
            raise ConfigurationError(f"{file} is not a tokenizer: {error}") from None
        return cls(
            library, tokenizer_hash=tokenizer_hash, max_length=max_length, vocabulary=vocabulary
        )

    def encode(self, texts: Sequence[TextRequest]) -> list[Encoded]:
        """See :class:`streamer.route.tokenizer.Tokenizer`."""
        looks = [_Look(text, self._wanted(item), item) for item in texts for text in _sides(item)]
        open_looks = looks
        while open_looks:
            heads = [look.head() for look in open_looks]
            encodings = self._library.encode_batch_fast(heads, add_special_tokens=False)
            for look, encoding in zip(open_looks, encodings, strict=True):
                look.ids = encoding.ids
            open_looks = [look for look in open_looks if not look.suffices()]
        side = iter(looks)
        return [self._framed(item, [*islice(side, 1 + (item.pair is not None))]) for item in texts]

    def adopt(self, ids: Sequence[int], *, truncate: bool, direction: str) -> Encoded:
        """See :class:`streamer.route.tokenizer.Tokenizer`; outer special tokens stay."""
        frame, count = self._single, len(ids)
        if count <= self.max_length:
            return Encoded(self._array(ids), count)
        if not truncate:
            return Encoded(self._array(()), count)
        before = frame.before if tuple(ids[: len(frame.before)]) == frame.before else ()
        after = (
            frame.after if frame.after and tuple(ids[-len(frame.after) :]) == frame.after else ()
        )
        inner = ids[len(before) : count - len(after)]
        kept = cut(inner, self.max_length - len(before) - len(after), direction)
        return Encoded(self._array([*before, *kept, *after]), count, truncated=True)

    def _array(self, ids: Sequence[int]) -> TokenIds:
        return ids_array(ids, self.vocabulary)

    def _wanted(self, item: TextRequest) -> int | None:
        return self.max_length if item.truncate else None

    def _framed(self, item: TextRequest, sides: list[_Look]) -> Encoded:
        frame = self._single if item.pair is None else self._pair
        first = sides[0].ids
        second: Sequence[int] = sides[1].ids if item.pair is not None else ()
        tokens = len(first) + len(second) + frame.size
        uncut = not any(look.is_partial for look in sides)
        truncated = tokens > self.max_length or not uncut
        if truncated:
            if not item.truncate:
                return Encoded(self._array(()), tokens)
            room = max(0, self.max_length - frame.size)
            keep = (
                pair_lengths(len(first), len(second), room) if item.pair is not None else (room, 0)
            )
            first = cut(first, keep[0], item.direction)
            second = cut(second, keep[1], item.direction)
        ids = self._array([*frame.before, *first, *frame.between, *second, *frame.after])
        pair_at = 0 if item.pair is None else len(frame.before) + len(first) + len(frame.between)
        return Encoded(ids, tokens, pair_at, truncated)


class _Look:
    """One side of a text and how much of it was tokenized so far."""

    __slots__ = ("_chars", "_ends_in_word", "_item", "_text", "_wanted", "ids", "is_partial")

    def __init__(self, text: str, wanted: int | None, item: TextRequest) -> None:
        self._text = text
        self._wanted = wanted
        self._item = item
        self._chars = len(text) if wanted is None else wanted * _CHARS_PER_TOKEN
        self._ends_in_word = False
        self.is_partial = False
        self.ids: Sequence[int] = ()

    def head(self) -> str:
        """The characters to tokenize: all, or the kept side up to a space between words."""
        text = self._text
        self.is_partial = len(text) > self._chars
        if not self.is_partial:
            return text
        if self._item.direction == LEFT:
            at = _boundary(text, len(text) - self._chars, step=1)
            self._ends_in_word = at is None
            return text[len(text) - self._chars if at is None else at :]
        at = _boundary(text, self._chars, step=-1)
        self._ends_in_word = at is None
        return text[: self._chars if at is None else at]

    def suffices(self) -> bool:
        """Whether the wanted tokens are certain; if not, the next look takes four times more."""
        if not self.is_partial or self._wanted is None:
            return True
        margin = _MARGIN_TOKENS if self._ends_in_word else 1
        if len(self.ids) >= self._wanted + margin:
            return True
        self._chars *= 4
        return False


def _boundary(text: str, start: int, *, step: int) -> int | None:
    """The nearest position from ``start`` that has a word before it and a space after it."""
    for at in range(start, start + step * _BOUNDARY_CHARS, step):
        if not 0 < at < len(text):
            return None
        if text[at] == " " and not text[at - 1].isspace():
            return at
    return None


def _sides(item: TextRequest) -> tuple[str, ...]:
    return (item.text,) if item.pair is None else (item.text, item.pair)


def _frame_single(library: Library) -> _Frame:
    probe = library.encode("a")
    inner = [at for at, special in enumerate(probe.special_tokens_mask) if not special]
    if not inner:
        raise ConfigurationError("the tokenizer makes no token of the letter a")
    return _Frame(tuple(probe.ids[: inner[0]]), (), tuple(probe.ids[inner[-1] + 1 :]))


def _frame_pair(library: Library) -> _Frame:
    probe = library.encode("a", "a")
    first = [at for at, side in enumerate(probe.sequence_ids) if side == 0]
    second = [at for at, side in enumerate(probe.sequence_ids) if side == 1]
    return _Frame(
        tuple(probe.ids[: first[0]]),
        tuple(probe.ids[first[-1] + 1 : second[0]]),
        tuple(probe.ids[second[-1] + 1 :]),
    )
