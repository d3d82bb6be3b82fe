"""What route knows of a served model, and the bounds of one request. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from streamer.route.params import ParamDefaults, Params
from streamer.route.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model that route knows.

    Attributes:
        slug: its name in requests and topics.
        revision: stands in work records; a worker of another revision says so.
        defaults: what parameters mean when unset.
        answer_bytes: predicted bytes of one text's answer when it is not an embedding.
    """

    slug: str
    revision: str
    tokenizer: Tokenizer
    defaults: ParamDefaults
    answer_bytes: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """Bounds of one request.

    Attributes:
        text_chars_max: a longer text is refused, or cut to this before tokenizing.
        list_rows_max: texts of a list input.
        result_bytes_max: predicted answer bytes of one item.
        replies: partitions of the replies topic.
    """

    text_chars_max: int = 200_000
    list_rows_max: int = 256
    result_bytes_max: int = 524_288
    replies: int = 1


def answer_bytes(model: ServedModel, params: Params) -> int:
    """Predicted bytes of one text's answer; 0 = unknown."""
    return params.answer_bytes if model.defaults.task == "embed" else model.answer_bytes
