"""Open a local model folder with transformers: safetensors only, no remote code, no network.

Importing transformers costs seconds, so it happens here, on first use, and without the optional
parts that no served model needs.
"""

from __future__ import annotations

import inspect
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamer.errors import ConfigurationError

if TYPE_CHECKING:
    import torch

_SIGMOID = "torch.nn.modules.activation.Sigmoid"
_IDENTITY = "torch.nn.modules.linear.Identity"
# Their tokenizers never tell segments apart, so their models were not trained to, whatever the
# configuration says.
_WITHOUT_TYPES = frozenset(
    {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A transformers module in fp32 on the CPU, and how its inputs and answers look.

    Attributes:
        pad_id: fills the right side; some families count positions by it.
        takes_types: whether token types are an input.
        activation: of the scores: ``softmax``, ``sigmoid`` or ``none``; "" for embeddings.
    """

    module: torch.nn.Module
    task: str
    pad_id: int
    takes_types: bool
    activation: str
    labels: tuple[str, ...] | None
    hidden: int
    vocabulary: int


def quiet_import(*, threads: int) -> None:
    """Import torch and transformers for local, one-thread-per-instance use.

    Args:
        threads: torch threads of one forward pass; an instance is one thread on a CPU, because
            several small teams of threads beside other work run many times slower than alone.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))
    import torch

    torch.set_num_threads(threads)
    import transformers.utils
    from transformers.utils import import_utils

    # Assisted generation would pull in scikit-learn and scipy where they happen to be installed:
    # four seconds for a function that is never called here.
    def absent() -> bool:
        return False

    import_utils.is_sklearn_available = absent
    transformers.utils.is_sklearn_available = absent  # type: ignore[attr-defined]
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def load_module(folder: Path, *, task: str, labels: tuple[str, ...] | None = None) -> LoadedModel:
    """The model of a folder for a task.

    Args:
        folder: with config.json and safetensors weights.
        task: ``embed``, ``classify`` or ``score``.
        labels: names of the classes when the caller knows better than the configuration.

    Raises:
        ConfigurationError: no safetensors weights, wrong kind of model, missing weights.
    """
    if not any(folder.glob("*.safetensors")):
        raise ConfigurationError(
            f"{folder} holds no *.safetensors file; other weight formats can run code when they "
            "are opened and are refused. Save the model with save_pretrained(FOLDER)."
        )
    from transformers import AutoModel, AutoModelForSequenceClassification

    kind = AutoModel if task == "embed" else AutoModelForSequenceClassification
    try:
        module, report = kind.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, trust_remote_code=False,
            output_loading_info=True, dtype="float32",
        )  # fmt: skip
    except (OSError, ValueError, KeyError) as error:
        raise ConfigurationError(f"{folder} cannot be loaded for {task}: {error}") from None
    _refuse_missing(folder, task, report)
    module.eval().requires_grad_(False)
    config = module.config
    if task == "score" and config.num_labels != 1:
        raise ConfigurationError(
            f"{folder} has {config.num_labels} labels, a scoring model has one; use task classify"
        )
    takes_types = (
        config.model_type not in _WITHOUT_TYPES
        and getattr(config, "type_vocab_size", 0) > 1
        and "token_type_ids" in inspect.signature(module.forward).parameters
    )
    return LoadedModel(
        module=module,
        task=task,
        pad_id=config.pad_token_id or 0,
        takes_types=takes_types,
        activation=_activation(folder, task, config),
        labels=(labels or _labels(config)) if task == "classify" else None,
        hidden=config.hidden_size,
        vocabulary=config.vocab_size,
    )


def _refuse_missing(folder: Path, task: str, report: dict[str, Any]) -> None:
    """A model whose answer depends on weights made up at load time is no model."""
    # An absent pooler does not touch the token states that embeddings are made from.
    missing = [
        name
        for name in sorted(report.get("missing_keys", ()))
        if not (task == "embed" and "pooler" in name)
    ]
    if missing:
        raise ConfigurationError(
            f"{folder} lacks weights for task {task}: {', '.join(missing[:4])}"
            + (" …" if len(missing) > 4 else "")
        )


def _labels(config: Any) -> tuple[str, ...]:
    return tuple(str(config.id2label[at]) for at in range(config.num_labels))


def _activation(folder: Path, task: str, config: Any) -> str:
    """What turns logits into scores: as the model's files say, else by convention."""
    if task == "embed":
        return ""
    if task == "classify":
        multi = config.problem_type == "multi_label_classification"
        return "sigmoid" if multi or config.num_labels == 1 else "softmax"
    raw = json.loads((folder / "config.json").read_bytes())
    named = (raw.get("sentence_transformers") or {}).get("activation_fn") or raw.get(
        "sbert_ce_default_activation_function"
    )
    own = folder / "config_sentence_transformers.json"
    if not named and own.is_file():
        named = json.loads(own.read_bytes()).get("activation_fn")
    known = {None: "sigmoid", "": "sigmoid", _SIGMOID: "sigmoid", _IDENTITY: "none"}
    if named not in known:
        raise ConfigurationError(f"{folder}: the score function {named!r} is not supported")
    return known[named]
