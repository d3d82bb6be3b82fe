"""Effective parameters: what the caller set, completed by the model's defaults, as canonical JSON.

The canonical text is the batch key of work and part of the input digest, so the same wish must
always give the same bytes: sorted keys, no spaces, unset optional ones left out. Pure.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamer.errors import ItemRejected
from streamer.event.codes import ENCODINGS

_PARAMS_OF = {
    "embed": ("truncate", "truncation_direction", "normalize", "dimensions", "encoding_format",
              "prompt_name"),
    "classify": ("truncate", "truncation_direction", "raw_scores", "prompt_name"),
    "score": ("truncate", "truncation_direction", "raw_scores", "prompt_name"),
}  # fmt: skip
_FLAGS = frozenset({"truncate", "normalize", "raw_scores"})
_CHOICES = {"truncation_direction": ("right", "left"), "encoding_format": ENCODINGS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamDefaults:
    """What a model does when the caller says nothing.

    Attributes:
        dimension: values of its embedding; 0 = unknown.
        prompts: text put before the input, by prompt name.
        default_prompt_name: used when none is named; None = no prompt.
    """

    task: str
    normalize: bool = True
    dimension: int = 0
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Effective parameters of an item; equal wishes share one object.

    Attributes:
        canonical: JSON text.
        key: 16 hex digits over it.
        prompt: text put before each text of the item, "" = none.
        answer_bytes: predicted bytes of one text's answer in its encoding; 0 = unknown.
    """

    canonical: str
    key: str
    truncate: bool
    direction: str
    encoding: str
    prompt: str
    answer_bytes: int


def effective_params(asked: Mapping[str, object], defaults: ParamDefaults) -> Params:
    """Complete and check parameters.

    Raises:
        ItemRejected: one is unknown for the task, of the wrong type or out of bounds.
    """
    known = _PARAMS_OF[defaults.task]
    for name, value in asked.items():
        if name not in known:
            raise ItemRejected(
                "invalid_type",
                f"there is no parameter {_shown(name)} for {defaults.task}; known: "
                f"{', '.join(known)}",
            )
        if value is not None:
            _check(name, value)
    full: dict[str, object] = {"truncate": False, "truncation_direction": "right"}
    if defaults.task == "embed":
        full |= {"normalize": defaults.normalize, "encoding_format": "float"}
    else:
        full |= {"raw_scores": False}
    if defaults.default_prompt_name:
        full["prompt_name"] = defaults.default_prompt_name
    full |= {name: value for name, value in asked.items() if value is not None}
    _check_dimensions(full.get("dimensions"), defaults.dimension)
    canonical = canonical_json(full)
    encoding = str(full.get("encoding_format", "float"))
    return Params(
        canonical=canonical,
        key=hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest(),
        truncate=bool(full["truncate"]),
        direction=str(full["truncation_direction"]),
        encoding=encoding,
        prompt=_prompt(full.get("prompt_name"), defaults.prompts),
        answer_bytes=_answer_bytes(full.get("dimensions") or defaults.dimension, encoding),
    )


def canonical_json(content: Mapping[str, object]) -> str:
    """One text for one meaning."""
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str
    )


def _shown(name: object) -> str:
    return repr(str(name)[:40])


def _check(name: str, value: object) -> None:
    if name in _FLAGS and not isinstance(value, bool):
        raise ItemRejected("invalid_type", f"params.{name} must be true or false")
    choices = _CHOICES.get(name)
    if choices is not None and value not in choices:
        raise ItemRejected("invalid_type", f"params.{name} must be one of {', '.join(choices)}")
    if name == "prompt_name" and not isinstance(value, str):
        raise ItemRejected("invalid_type", "params.prompt_name must be a string")
    if name == "dimensions":
        if isinstance(value, float) and not math.isfinite(value):
            raise ItemRejected("non_finite_number", "params.dimensions is not a finite number")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ItemRejected("invalid_type", "params.dimensions must be a whole number above 0")


def _check_dimensions(asked: object, dimension: int) -> None:
    if isinstance(asked, int) and dimension and asked > dimension:
        raise ItemRejected(
            "invalid_type",
            f"params.dimensions is {asked}, but the model's embeddings have {dimension} values",
        )


def _prompt(name: object, prompts: Mapping[str, str]) -> str:
    if name is None:
        return ""
    if name not in prompts:
        known = ", ".join(sorted(prompts)) or "none"
        raise ItemRejected(
            "invalid_type", f"there is no prompt {_shown(name)}; the model knows: {known}"
        )
    return prompts[str(name)]


def _answer_bytes(values: object, encoding: str) -> int:
    count = values if isinstance(values, int) else 0
    if encoding == "binary":
        return -(-count // 8)
    return count * {"float": 4, "base64": 4, "f16": 2, "int8": 1}[encoding]
