from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from streamer.errors import ConfigurationError
from streamer.event.file_models import ModelFiles, resolve_model


def a_folder(root: Path, *, config: dict[str, Any] | None = None, **files: Any) -> Path:
    folder = root / "model"
    folder.mkdir()
    base = {"model_type": "bert", "vocab_size": 9, "hidden_size": 4, "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps({**base, **(config or {})}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    for name, content in files.items():
        place = folder / name.replace("__", "/").replace("_json", ".json")
        place.parent.mkdir(exist_ok=True)
        place.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def resolved(folder: Path, **changes: Any) -> ModelFiles:
    return resolve_model("m", **{"path": str(folder), **changes})


def test_the_strictest_limit_holds(tmp_path: Path) -> None:
    folder = a_folder(
        tmp_path,
        tokenizer_config_json={"model_max_length": 300},
        sentence_bert_config_json={"max_seq_length": 256},
    )

    assert resolved(folder).max_length == 256
    assert resolved(folder, max_length=1_000).max_length == 256
    assert resolved(folder, max_length=64).max_length == 64


def test_positions_that_begin_after_padding_are_not_all_usable(tmp_path: Path) -> None:
    config = {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}
    folder = a_folder(
        tmp_path, config=config, tokenizer_config_json={"model_max_length": int(1e30)}
    )

    assert resolved(folder).max_length == 512


def test_hashes_follow_their_files(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    before = resolved(folder)
    (folder / "model.safetensors").write_bytes(b"other weights")
    weights = resolved(folder)
    (folder / "tokenizer.json").write_text('{"a": 1}')
    tokenizer = resolved(folder)

    assert len(before.revision) == len(before.tokenizer_hash) == 12
    assert weights.revision != before.revision
    assert weights.tokenizer_hash == before.tokenizer_hash
    assert (tokenizer.revision, tokenizer.tokenizer_hash) != (
        weights.revision, weights.tokenizer_hash,
    )  # fmt: skip
    assert tokenizer.tokenizer_hash != weights.tokenizer_hash
    assert resolved(folder, revision="v7").revision == "v7"


def test_pooling_normalizing_prompts_and_labels_are_read(tmp_path: Path) -> None:
    folder = a_folder(
        tmp_path,
        config={"id2label": {"1": "bad", "0": "good"}},
        modules_json=[{"type": "sentence_transformers.models.Normalize"}],
        config_sentence_transformers_json={"prompts": {"q": "query: "}, "default_prompt_name": "q"},
        **{"1_Pooling__config_json": {"pooling_mode_cls_token": True}},
    )

    files = resolved(folder, task="classify")

    assert (files.pooling, files.normalize) == ("cls", True)
    assert (dict(files.prompts), files.default_prompt_name) == ({"q": "query: "}, "q")
    assert files.labels == ("good", "bad")
    assert resolved(folder).labels is None


@pytest.mark.parametrize(
    ("remove", "add", "says"),
    [
        ("model.safetensors", "pytorch_model.bin", "can run code"),
        ("model.safetensors", "model.pt", "can run code"),
        ("model.safetensors", None, "no \\*.safetensors"),
        ("tokenizer.json", None, "no tokenizer.json"),
        ("config.json", None, "config.json is missing"),
    ],
)
def test_missing_and_unsafe_files_are_refused(
    tmp_path: Path, remove: str, add: str | None, says: str
) -> None:
    folder = a_folder(tmp_path)
    (folder / remove).unlink()
    if add:
        (folder / add).write_bytes(b"x")

    with pytest.raises(ConfigurationError, match=says):
        resolved(folder)


def test_code_of_the_models_own_is_refused(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, config={"auto_map": {"AutoModel": "evil.Model"}})

    with pytest.raises(ConfigurationError, match="auto_map"):
        resolved(folder)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    folder = a_folder(tmp_path, model_safetensors_index_json=index)
    (folder / "model_safetensors_index.json").rename(folder / "model.safetensors.index.json")

    with pytest.raises(ConfigurationError, match=r"lacks model-2\.safetensors"):
        resolved(folder)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/no/such/folder", "no folder"),
        ("", "no folder"),
        ("package:no_such_package_here", "not installed"),
        ("package:json/nothing", "no folder 'nothing'"),
        ("package:json/../..", "is not package:NAME"),
        ("package:os.path", "is not package:NAME"),
    ],
)
def test_a_wrong_path_says_what_is_wrong(path: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        resolve_model("m", path=path)


def test_a_package_is_found_without_being_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "carrier").mkdir()
    (tmp_path / "carrier" / "__init__.py").write_text("raise RuntimeError('imported')")
    a_folder(tmp_path / "carrier")
    monkeypatch.syspath_prepend(str(tmp_path))

    files = resolve_model("m", path="package:carrier/model")

    assert files.folder == tmp_path / "carrier" / "model"
    assert "carrier" not in sys.modules


def test_a_fake_model_needs_no_files() -> None:
    files = resolve_model("m", path="", engine="fake", fake_dimension=3)

    assert (files.revision, files.tokenizer_hash, files.max_length) == ("fake-1", "fake", 512)
    assert (files.fake, files.dimension, files.folder) == (True, 3, None)
