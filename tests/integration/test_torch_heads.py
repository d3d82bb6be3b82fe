"""Classification and pair scores: tiny random models, saved here, against plain transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamer.errors import ConfigurationError
from streamer.event.file_models import ModelFiles
from streamer.infer.engine import BatchColumns, Full
from streamer.infer.thread_blocking import BlockingEngine
from tests.support.batches import a_batch

pytestmark = pytest.mark.engine

TINY: dict[str, Any] = {
    "vocab_size": 200, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 66,
}  # fmt: skip
TEXTS = [[5, 6, 7, 8, 9, 10, 11], [12, 13, 14], [15, 16, 17, 18, 19], [20, 21]]
PAIR_AT = [4, 2, 3, 1]
# Segments are told apart by token types, which only families with two of them look at.
FAMILIES = ("bert", "roberta", "distilbert")


def save_tiny(folder: Path, family: str, *, labels: int, **more: object) -> Any:
    import torch
    import transformers

    names = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert"}
    own = {"distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}}
    fields = TINY | own.get(family, {}) | {"num_labels": labels} | more
    config = getattr(transformers, f"{names[family]}Config")(**fields)
    torch.manual_seed(11)
    kind = getattr(transformers, f"{names[family]}ForSequenceClassification")
    model = kind(config).eval()
    # Fresh heads answer nearly the same for any input; larger weights tell inputs apart.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    model.save_pretrained(folder)
    return model


def files_of(folder: Path, task: str) -> ModelFiles:
    return ModelFiles(
        slug="tiny", task=task, folder=folder, revision="r", tokenizer_hash="t", max_length=64
    )


def answer(files: ModelFiles, columns: BatchColumns) -> tuple[np.ndarray, BlockingEngine]:
    from streamer.infer.torch_engine import TorchModel, TorchOptions

    options = TorchOptions(dtype="fp32", device="cpu", instances=1, measure=False)
    engine = BlockingEngine(TorchModel(files, options))
    engine.load()
    try:
        ticket = engine.submit(engine.prepare(columns))
        assert not isinstance(ticket, Full)
        (outcome,) = engine.poll(30.0)
        assert outcome.failure is None
        return outcome.rows, engine
    finally:
        engine.close()


def plain_logits(model: Any, texts: list[list[int]], pair_at: list[int] | None = None) -> Any:
    """One text at a time, no padding: what any batch must agree with."""
    import torch

    rows = []
    for at, text in enumerate(texts):
        inputs = {"input_ids": torch.tensor([text])}
        if pair_at is not None and model.config.model_type == "bert":
            begin = pair_at[at]
            inputs["token_type_ids"] = torch.tensor([[0] * begin + [1] * (len(text) - begin)])
        with torch.inference_mode():
            rows.append(model(**inputs).logits[0])
    return torch.stack(rows)


@pytest.mark.parametrize("family", FAMILIES)
def test_classification_equals_plain_transformers(tmp_path: Path, family: str) -> None:
    names = {0: "good", 1: "bad", 2: "neither"}
    model = save_tiny(tmp_path, family, labels=3, id2label=names)
    logits = plain_logits(model, TEXTS)

    rows, engine = answer(files_of(tmp_path, "classify"), a_batch(TEXTS, task="classify"))

    assert engine.spec.labels == ("good", "bad", "neither")
    assert np.abs(rows - logits.softmax(-1).numpy()).max() <= 1e-5
    assert np.abs(rows.sum(1) - 1).max() <= 1e-5
    assert np.ptp(rows, axis=0).max() > 1e-3, "the model answers the same for every text"


def test_raw_scores_are_the_logits(tmp_path: Path) -> None:
    model = save_tiny(tmp_path, "bert", labels=3)

    rows, _ = answer(
        files_of(tmp_path, "classify"),
        a_batch(TEXTS, task="classify", params='{"raw_scores":true}'),
    )

    assert np.abs(rows - plain_logits(model, TEXTS).numpy()).max() <= 1e-5


def test_several_labels_at_once_get_a_sigmoid_each(tmp_path: Path) -> None:
    model = save_tiny(tmp_path, "bert", labels=3, problem_type="multi_label_classification")

    rows, _ = answer(files_of(tmp_path, "classify"), a_batch(TEXTS, task="classify"))

    assert np.abs(rows - plain_logits(model, TEXTS).sigmoid().numpy()).max() <= 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_pair_scores_equal_plain_transformers(tmp_path: Path, family: str) -> None:
    model = save_tiny(tmp_path, family, labels=1)
    logits = plain_logits(model, TEXTS, PAIR_AT)[:, 0]

    rows, engine = answer(
        files_of(tmp_path, "score"), a_batch(TEXTS, task="score", pair_at=PAIR_AT)
    )

    assert engine.spec.row_shape == ()
    assert np.abs(rows - logits.sigmoid().numpy()).max() <= 1e-5


def test_the_second_segment_of_a_pair_changes_the_score(tmp_path: Path) -> None:
    save_tiny(tmp_path, "bert", labels=1)
    files = files_of(tmp_path, "score")

    one, _ = answer(files, a_batch(TEXTS, task="score", pair_at=PAIR_AT))
    other, _ = answer(files, a_batch(TEXTS, task="score", pair_at=[5, 1, 1, 1]))

    assert np.abs(one - other)[:3].min() > 1e-6
    assert one[3] == other[3]


def test_a_score_model_that_names_no_activation_answers_raw(tmp_path: Path) -> None:
    model = save_tiny(tmp_path, "bert", labels=1)
    config = json.loads((tmp_path / "config.json").read_text())
    named = {"activation_fn": "torch.nn.modules.linear.Identity"}
    (tmp_path / "config.json").write_text(json.dumps(config | {"sentence_transformers": named}))

    rows, _ = answer(files_of(tmp_path, "score"), a_batch(TEXTS, task="score", pair_at=PAIR_AT))

    assert np.abs(rows - plain_logits(model, TEXTS, PAIR_AT)[:, 0].numpy()).max() <= 1e-5


def test_a_model_of_several_labels_is_no_scoring_model(tmp_path: Path) -> None:
    save_tiny(tmp_path, "bert", labels=3)

    with pytest.raises(ConfigurationError, match="use task classify"):
        answer(files_of(tmp_path, "score"), a_batch(TEXTS, task="score"))


def test_weights_made_up_at_load_time_are_refused(tmp_path: Path) -> None:
    import transformers

    model = transformers.BertModel(transformers.BertConfig(**TINY))
    model.save_pretrained(tmp_path)

    with pytest.raises(ConfigurationError, match="lacks weights"):
        answer(files_of(tmp_path, "classify"), a_batch(TEXTS, task="classify"))
