"""The tokenizer of a model against the tokenizers library itself, on a tiny vocabulary."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from streamer.route.hf_tokenizer import HfTokenizer
from streamer.route.tokenizer import TextRequest, pair_lengths

VOCABULARY = {word: at for at, word in enumerate(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##a", "##b", "ab", "##ab", "."]
)}  # fmt: skip
MAX = 8


def library() -> Library:
    made = Library(WordPiece(VOCABULARY, unk_token="[UNK]"))
    made.normalizer = BertNormalizer(lowercase=True)
    made.pre_tokenizer = BertPreTokenizer()
    made.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )  # fmt: skip
    # As many published files have it: settings that must not reach our texts.
    made.enable_truncation(5)
    made.enable_padding(length=5)
    return made


def ours(max_length: int = MAX) -> HfTokenizer:
    return HfTokenizer(library(), tokenizer_hash="h", max_length=max_length)


def theirs(text: str, pair: str | None, direction: str) -> tuple[list[int], int]:
    reference = library()
    reference.no_padding()
    reference.enable_truncation(MAX, strategy="longest_first", direction=direction)
    encoding = reference.encode(text, pair)
    return encoding.ids, encoding.type_ids.index(1) if 1 in encoding.type_ids else 0


TEXTS = st.text(alphabet="ab .\t\n\u00e9\u5b57\0", max_size=60)
DIRECTIONS = st.sampled_from(["right", "left"])


@settings(deadline=None)
@given(TEXTS, st.none() | TEXTS, DIRECTIONS)
def test_cut_texts_and_pairs_equal_those_of_the_library(
    text: str, pair: str | None, direction: str
) -> None:
    (encoded,) = ours().encode([TextRequest(text, pair, truncate=True, direction=direction)])

    ids, pair_at = theirs(text, pair, direction)
    assert encoded.ids.tolist() == ids
    assert encoded.pair_at == pair_at


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a ", "b", "ab ", "ba. ", "  ", "\u5b57", "\n"]), min_size=60,
                max_size=400), DIRECTIONS)  # fmt: skip
def test_a_look_at_part_of_a_long_text_finds_the_same_tokens(
    pieces: list[str], direction: str
) -> None:
    text = "".join(pieces)

    (encoded,) = ours().encode([TextRequest(text, None, truncate=True, direction=direction)])

    assert encoded.ids.tolist() == theirs(text, None, direction)[0]
    whole = len(library_ids(text)) + 2
    assert encoded.truncated == (whole > MAX)
    assert encoded.tokens <= whole


def library_ids(text: str) -> list[int]:
    plain = library()
    plain.no_truncation()
    plain.no_padding()
    return plain.encode(text, add_special_tokens=False).ids


def test_without_truncate_a_long_text_comes_back_with_its_length_only() -> None:
    short, long = ours().encode([TextRequest("a b"), TextRequest("a " * 20)])

    assert (short.ids.tolist(), short.tokens, short.truncated) == ([2, 4, 5, 3], 4, False)
    assert (len(long.ids), long.tokens, long.truncated) == (0, 22, False)


def test_a_text_of_exactly_the_limit_is_not_cut() -> None:
    (exact,) = ours().encode([TextRequest("a " * (MAX - 2), None, truncate=True)])

    assert (len(exact.ids), exact.truncated) == (MAX, False)


@pytest.mark.parametrize(
    ("first", "second", "room", "kept"),
    [(3, 4, 7, (3, 4)), (2, 9, 6, (2, 4)), (9, 2, 6, (4, 2)), (9, 9, 6, (3, 3)), (9, 9, 7, (3, 4)),
     (9, 8, 7, (4, 3)), (0, 9, 4, (0, 4))],
)  # fmt: skip
def test_the_longer_side_of_a_pair_gives_way_first(
    first: int, second: int, room: int, kept: tuple[int, int]
) -> None:
    assert pair_lengths(first, second, room) == kept


def test_ids_of_the_caller_keep_their_outer_special_tokens() -> None:
    ids = [2, *[4, 5] * 5, 3]
    right = ours().adopt(ids, truncate=True, direction="right")
    left = ours().adopt(ids[1:-1], truncate=True, direction="left")
    refused = ours().adopt(ids, truncate=False, direction="right")

    assert right.ids.tolist() == [2, 4, 5, 4, 5, 4, 5, 3]
    assert right.truncated
    assert left.ids.tolist() == [4, 5] * 4
    assert (len(refused.ids), refused.tokens) == (0, 12)


def test_case_a12_threads_with_different_limits_never_get_each_others_cut() -> None:
    wrong: list[int] = []

    def work(limit: int) -> None:
        mine = HfTokenizer(library(), tokenizer_hash="h", max_length=limit)
        for _ in range(200):
            for encoded in mine.encode([TextRequest("a " * 50, None, truncate=True)] * 4):
                if len(encoded.ids) != limit:
                    wrong.append(len(encoded.ids))  # noqa: PERF401

    threads = [threading.Thread(target=work, args=(limit,)) for limit in (4, 9, 17, 33)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert wrong == []
