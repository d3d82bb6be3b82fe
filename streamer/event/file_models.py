"""What a model is, read from its files: revision, tokenizer, limits, pooling, prompts.

Route, work and run-batch all resolve a model here, so that they agree on revision, tokenizer hash
and token limit. Weights are never opened (only hashed) and a package that carries them is found
but never imported, since its ``__init__`` may pull in the whole of torch. Only safetensors weights
count: formats that unpickle and configurations that bring their own code are refused.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamer.errors import ConfigurationError

FAKE_REVISION = "fake-1"
FAKE_TOKENIZER = "fake"
FAKE_MAX_LENGTH = 512
FAKE_VOCABULARY = 65_536
_FALLBACK_MAX_LENGTH = 512
_PACKAGE = "package:"
# Position ids of these families begin at pad_token_id + 1, so that many positions are not usable.
_OFFSET_POSITIONS = frozenset(
    {
        "roberta",
        "xlm-roberta",
        "xlm-roberta-xl",
        "camembert",
        "mpnet",
        "longformer",
        "data2vec-text",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A resolved model.

    Attributes:
        folder: where the files lie; None for a fake model.
        revision: the one of the settings, else 12 hex digits over configuration and weights.
        tokenizer_hash: 12 hex digits over ``tokenizer.json``.
        max_length: tokens of a text, special tokens included; the strictest limit of all files.
        vocabulary: number of token ids; ids a caller sends must lie below it.
        dimension: values of an embedding; 0 when the configuration does not say.
        pooling: ``mean``, ``cls`` or "" when the files do not say.
        normalize: whether the files ask for unit-length embeddings.
        labels: names of the classes in order; None for embeddings.
        prompts: text put before the input, by prompt name.
        weights: the safetensors files, in order.
    """

    slug: str
    task: str
    folder: Path | None
    revision: str
    tokenizer_hash: str
    max_length: int
    fake: bool = False
    vocabulary: int = 0
    dimension: int = 0
    pooling: str = ""
    normalize: bool = False
    labels: tuple[str, ...] | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    weights: tuple[Path, ...] = ()


def resolve_model(
    slug: str,
    *,
    path: str,
    engine: str = "torch",
    task: str = "embed",
    revision: str = "",
    max_length: int = 0,
    pooling: str = "",
    fake_dimension: int = 0,
) -> ModelFiles:
    """Find and check the files of a model.

    Args:
        slug: name of the model in topics and settings, for messages.
        path: a folder, or ``package:NAME[/FOLDER]`` for a folder inside an installed package.
        engine: ``fake`` models have no files.
        task: what the model answers; only the labels depend on it.
        revision: shown in receipts; empty = hash of the files.
        max_length: token limit wished for; 0 = the model's own. The smaller one holds.
        pooling: overrides what the files say when not empty.
        fake_dimension: values of an embedding of a fake model.

    Raises:
        ConfigurationError: something is missing or refused; the message says how to mend it.
    """
    if engine == "fake":
        return ModelFiles(
            slug=slug, task=task, folder=None, revision=revision or FAKE_REVISION,
            tokenizer_hash=FAKE_TOKENIZER, max_length=max_length or FAKE_MAX_LENGTH, fake=True,
            vocabulary=FAKE_VOCABULARY, dimension=fake_dimension, pooling="mean",
        )  # fmt: skip
    return _from_folder(
        slug, _folder(slug, path), task=task, revision=revision, max_length=max_length,
        pooling=pooling,
    )  # fmt: skip


def _from_folder(
    slug: str, folder: Path, *, task: str, revision: str, max_length: int, pooling: str
) -> ModelFiles:
    config = _object(slug, folder / "config.json")
    _refuse_code(slug, folder, config)
    weights = _weights(slug, folder)
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.is_file():
        raise ConfigurationError(
            f"models.{slug}: {folder} has no tokenizer.json; save the model with its fast "
            "tokenizer (AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER))"
        )
    sentence = _object(slug, folder / "config_sentence_transformers.json", optional=True)
    prompts = sentence.get("prompts") or {}
    return ModelFiles(
        slug=slug,
        task=task,
        folder=folder,
        revision=revision or _hash([folder / "config.json", *_extras(folder), *weights]),
        tokenizer_hash=_hash([tokenizer]),
        max_length=_max_length(slug, folder, config, max_length),
        vocabulary=int(config.get("vocab_size") or 0),
        dimension=int(config.get("hidden_size") or config.get("dim") or 0),
        pooling=pooling or _pooling(slug, folder),
        normalize=_normalizes(folder),
        labels=_labels(config) if task in ("classify", "score") else None,
        prompts={str(name): str(text) for name, text in prompts.items()},
        default_prompt_name=sentence.get("default_prompt_name"),
        weights=tuple(weights),
    )


def _folder(slug: str, path: str) -> Path:
    if not path.startswith(_PACKAGE):
        folder = Path(path).expanduser()
        if not path or not folder.is_dir():
            raise ConfigurationError(f"models.{slug}.path: there is no folder {path!r}")
        return folder
    name, _, inside = path.removeprefix(_PACKAGE).partition("/")
    if not name.isidentifier() or ".." in Path(inside).parts or inside.startswith("/"):
        raise ConfigurationError(
            f"models.{slug}.path: {path!r} is not package:NAME or package:NAME/FOLDER"
        )
    # A top-level name is located without running the package.
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(
            f"models.{slug}.path: the Python package {name!r} is not installed; install it or "
            "set the path to a model folder"
        )
    for root in spec.submodule_search_locations:
        if (Path(root) / inside).is_dir():
            return Path(root) / inside
    raise ConfigurationError(f"models.{slug}.path: the package {name!r} has no folder {inside!r}")


def _object(slug: str, file: Path, *, optional: bool = False) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        if optional:
            return {}
        raise ConfigurationError(f"models.{slug}: {file} is missing") from None
    except (OSError, ValueError):
        raise ConfigurationError(f"models.{slug}: {file} is not readable JSON") from None
    if not isinstance(content, dict):
        raise ConfigurationError(f"models.{slug}: {file} is not a JSON object")
    return content


def _refuse_code(slug: str, folder: Path, config: Mapping[str, Any]) -> None:
    tokenizer_config = _object(slug, folder / "tokenizer_config.json", optional=True)
    for name, content in (("config.json", config), ("tokenizer_config.json", tokenizer_config)):
        if "auto_map" in content:
            raise ConfigurationError(
                f"models.{slug}: {folder / name} asks to run code of its own (auto_map); "
                "only architectures that ship with transformers are loaded"
            )


def _weights(slug: str, folder: Path) -> list[Path]:
    weights = sorted(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        named = sorted(set(_object(slug, index).get("weight_map", {}).values()))
        weights = [folder / name for name in named]
        missing = [file.name for file in weights if not file.is_file()]
        if missing:
            raise ConfigurationError(f"models.{slug}: {folder} lacks {', '.join(missing[:3])}")
    if weights:
        return weights
    pickled = sorted([*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")])
    if pickled:
        raise ConfigurationError(
            f"models.{slug}: {folder} holds only {pickled[0].name}, a format that can run code "
            "when it is loaded; convert it (model.save_pretrained(FOLDER) writes safetensors)"
        )
    raise ConfigurationError(f"models.{slug}: {folder} has no *.safetensors weights")


def _extras(folder: Path) -> list[Path]:
    """Small files besides config.json that change what the model answers."""
    names = ("modules.json", "1_Pooling/config.json", "config_sentence_transformers.json")
    return [folder / name for name in names if (folder / name).is_file()]


def _hash(files: list[Path]) -> str:
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()[:12]


def _max_length(slug: str, folder: Path, config: Mapping[str, Any], wished: int) -> int:
    sentence = _object(slug, folder / "sentence_bert_config.json", optional=True)
    tokenizer = _object(slug, folder / "tokenizer_config.json", optional=True)
    positions = config.get("max_position_embeddings") or config.get("n_positions")
    if positions and config.get("model_type") in _OFFSET_POSITIONS:
        positions = int(positions) - int(config.get("pad_token_id") or 0) - 1
    known = [sentence.get("max_seq_length"), tokenizer.get("model_max_length"), positions, wished]
    # Tokenizers without a limit carry 10^30; the other files then decide.
    limits = [int(limit) for limit in known if limit and 0 < limit < 1_000_000_000]
    return min(limits) if limits else _FALLBACK_MAX_LENGTH


def _pooling(slug: str, folder: Path) -> str:
    modes = _object(slug, folder / "1_Pooling" / "config.json", optional=True)
    asked = {key.removeprefix("pooling_mode_") for key, on in modes.items()
             if key.startswith("pooling_mode_") and on is True}  # fmt: skip
    if isinstance(modes.get("pooling_mode"), str):
        asked = {modes["pooling_mode"]}
    known = {"mean_tokens": "mean", "mean": "mean", "cls_token": "cls", "cls": "cls"}
    if not asked:
        return ""
    if len(asked) > 1 or not asked <= known.keys():
        raise ConfigurationError(
            f"models.{slug}: {folder / '1_Pooling'} asks for pooling {', '.join(sorted(asked))}; "
            "only mean and cls are served (models.<slug>.pooling overrides it)"
        )
    return known[asked.pop()]


def _normalizes(folder: Path) -> bool:
    try:
        modules = json.loads((folder / "modules.json").read_bytes())
        return any(str(module.get("type", "")).endswith("Normalize") for module in modules)
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def _labels(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    named = config.get("id2label")
    if isinstance(named, dict) and named:
        return tuple(str(named[key]) for key in sorted(named, key=int))
    count = config.get("num_labels")
    return tuple(f"LABEL_{i}" for i in range(int(count))) if count else None
