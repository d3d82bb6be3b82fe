"""Whether the texts, pairs or token ids of a request can be tokenized at all. Pure."""

from __future__ import annotations

from streamer.errors import ItemRejected
from streamer.event.records import InferenceRequest, InputRow
from streamer.route.models import AdmissionLimits, ServedModel
from streamer.route.params import Params
from streamer.route.tokenizer import TextRequest


def checked_rows(
    request: InferenceRequest, model: ServedModel, params: Params, limits: AdmissionLimits
) -> tuple[tuple[TextRequest | tuple[int, ...], ...], bool]:
    """What to tokenize, and whether characters were cut off.

    Raises:
        ItemRejected: empty, too long, of the wrong kind for the model; the message names the row.
    """
    if not request.rows:
        raise ItemRejected("empty_input", "input is empty: send at least one text")
    if len(request.rows) > limits.list_rows_max:
        raise ItemRejected(
            "invalid_type",
            f"input is a list of {len(request.rows)} texts; at most "
            f"{limits.list_rows_max} go into one request: split it",
        )
    rows: list[TextRequest | tuple[int, ...]] = []
    clipped = False
    for at, row in enumerate(request.rows):
        where = f"input[{at}]" if request.is_list else "input"
        if row.ids is not None:
            rows.append(_checked_ids(row.ids, model, where))
            continue
        text, cut = _checked_text(row, model, params, where, limits.text_chars_max)
        rows.append(text)
        clipped |= cut
    return tuple(rows), clipped


def _checked_text(
    row: InputRow, model: ServedModel, params: Params, where: str, chars_max: int
) -> tuple[TextRequest, bool]:
    if not row.text:
        raise ItemRejected("empty_input", f"{where} is an empty text")
    if row.pair is not None and model.defaults.task == "embed":
        raise ItemRejected("invalid_type", f"{where} is a pair, but {model.slug} takes texts")
    if row.pair is None and model.defaults.task == "score":
        raise ItemRejected("invalid_type", f"{where} is one text, but {model.slug} takes pairs")
    text, cut = _within_chars(params.prompt + row.text, params, where, chars_max)
    if row.pair is None:
        return TextRequest(text, None, params.truncate, params.direction), cut
    pair, cut_pair = _within_chars(row.pair, params, where, chars_max)
    return TextRequest(text, pair, params.truncate, params.direction), cut or cut_pair


def _within_chars(text: str, params: Params, where: str, chars_max: int) -> tuple[str, bool]:
    most = chars_max
    if len(text) > most:
        if not params.truncate:
            raise ItemRejected(
                "input_too_long",
                f"{where} has {len(text)} characters and at most {most} are looked at: "
                "shorten it or set params.truncate",
            )
        text = text[-most:] if params.direction == "left" else text[:most]
        return _checked_unicode(text, where), True
    return _checked_unicode(text, where), False


def too_long(model: ServedModel, tokens: int, where: str) -> ItemRejected:
    """The refusal of a text with more tokens than the model reads."""
    return ItemRejected(
        "input_too_long",
        f"{where} has {tokens} tokens and {model.slug} reads at most "
        f"{model.tokenizer.max_length}: shorten it or set params.truncate",
    )


def _checked_ids(ids: tuple[int, ...], model: ServedModel, where: str) -> tuple[int, ...]:
    if not ids:
        raise ItemRejected("empty_input", f"{where} has no token ids")
    top = model.tokenizer.vocabulary
    if min(ids) < 0 or max(ids) >= top:
        raise ItemRejected(
            "invalid_type", f"{where} has token ids outside of {model.slug}'s 0 to {top - 1}"
        )
    return ids


def _checked_unicode(text: str, where: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ItemRejected("invalid_utf8", f"{where} has a lone surrogate") from None
    return text
