from __future__ import annotations

import json

import pytest

from streamer.errors import ItemRejected
from streamer.route.params import ParamDefaults, effective_params

EMBED = ParamDefaults(task="embed", dimension=384, prompts={"query": "query: "})


def test_defaults_of_the_model_complete_what_the_caller_set() -> None:
    params = effective_params({"truncate": True}, EMBED)

    assert json.loads(params.canonical) == {
        "encoding_format": "float", "normalize": True, "truncate": True,
        "truncation_direction": "right",
    }  # fmt: skip
    assert params.truncate
    assert params.answer_bytes == 384 * 4


def test_a_default_spelt_out_is_the_same_wish() -> None:
    said = effective_params({"normalize": True, "encoding_format": "float"}, EMBED)
    unsaid = effective_params({"truncation_direction": None}, EMBED)

    assert (said.canonical, said.key) == (unsaid.canonical, unsaid.key)


def test_a_different_wish_has_a_different_key() -> None:
    wishes: list[dict[str, object]] = [
        {}, {"normalize": False}, {"dimensions": 8}, {"encoding_format": "f16"},
        {"truncate": True}, {"truncation_direction": "left"}, {"prompt_name": "query"},
    ]  # fmt: skip

    assert len({effective_params(wish, EMBED).key for wish in wishes}) == len(wishes)


@pytest.mark.parametrize(
    ("encoding", "size"), [("float", 400), ("base64", 400), ("f16", 200), ("int8", 100),
                           ("binary", 13)]
)  # fmt: skip
def test_answer_bytes_follow_dimensions_and_encoding(encoding: str, size: int) -> None:
    params = effective_params({"dimensions": 100, "encoding_format": encoding}, EMBED)

    assert params.answer_bytes == size


@pytest.mark.parametrize(
    ("asked", "code", "says"),
    [
        ({"trunacte": True}, "invalid_type", "known: truncate"),
        ({"raw_scores": True}, "invalid_type", "no parameter 'raw_scores' for embed"),
        ({"truncate": 1}, "invalid_type", "true or false"),
        ({"truncation_direction": "up"}, "invalid_type", "right, left"),
        ({"encoding_format": "f64"}, "invalid_type", "float, base64"),
        ({"encoding_format": ["float"]}, "invalid_type", "float, base64"),
        ({"dimensions": 0}, "invalid_type", "above 0"),
        ({"dimensions": True}, "invalid_type", "above 0"),
        ({"dimensions": 2.5}, "invalid_type", "above 0"),
        ({"dimensions": float("nan")}, "non_finite_number", "finite"),
        ({"dimensions": 385}, "invalid_type", "is 385, but the model's embeddings have 384"),
        ({"prompt_name": "passage"}, "invalid_type", "the model knows: query"),
        ({"prompt_name": 3}, "invalid_type", "a string"),
    ],
)
def test_a_wrong_parameter_is_refused_with_what_is_possible(
    asked: dict[str, object], code: str, says: str
) -> None:
    with pytest.raises(ItemRejected, match=says) as caught:
        effective_params(asked, EMBED)

    assert caught.value.code == code


def test_a_default_prompt_is_put_before_every_text() -> None:
    model = ParamDefaults(task="embed", prompts={"q": "query: "}, default_prompt_name="q")

    assert effective_params({}, model).prompt == "query: "
    assert effective_params({"prompt_name": None}, model).prompt == "query: "


def test_scores_take_no_embedding_parameters() -> None:
    with pytest.raises(ItemRejected, match="for score"):
        effective_params({"dimensions": 3}, ParamDefaults(task="score"))
    assert json.loads(effective_params({}, ParamDefaults(task="score")).canonical) == {
        "raw_scores": False, "truncate": False, "truncation_direction": "right",
    }  # fmt: skip
