"""The forms an input may take, as rows and back.

    "text"                               one text, one answer
    {"text": t, "text_pair": u}          one pair, one answer
    [1, 2, 3]                            token ids of one text, one answer
    ["a", "b"], [{"text": t}, ...]       a list of at most 256, answered by a list
    [[1, 2], [3]]                        a list of token ids, answered by a list

Texts and token ids do not mix in one list. ``["a", "b"]`` is a list of two texts, never a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from streamer.errors import ItemRejected
from streamer.event.records import InputRow

MAX_ROWS: Final = 256
MAX_TOKEN_ID: Final = (1 << 32) - 1
_FORMS = "input: send a text, {text, text_pair}, token ids, or a list of one of these"


def canonical_json(value: object) -> str:
    """The one text of a JSON value: keys sorted, no spaces; equal values give equal text."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def rows_of(value: object, *, max_rows: int = MAX_ROWS) -> tuple[tuple[InputRow, ...], bool]:
    """The rows of an input, and whether it is a list.

    Raises:
        ItemRejected: ``missing_field``, ``empty_input`` or ``invalid_type``.
    """
    if isinstance(value, (str, dict)):
        return (_text_row(value),), False
    if value is None:
        raise ItemRejected("missing_field", "input is missing: send a text")
    if not isinstance(value, list):
        raise ItemRejected("invalid_type", _FORMS)
    if not value:
        raise ItemRejected("empty_input", "input is an empty list: send at least one text")
    if isinstance(value[0], int):
        return (_ids_row(value),), False
    if len(value) > max_rows:
        raise ItemRejected(
            "invalid_type",
            f"input: {len(value)} texts in one item, {max_rows} are possible; send several items",
        )
    if isinstance(value[0], list):
        return tuple(_ids_row(row) for row in value), True
    return tuple(_text_row(row) for row in value), True


def input_value(rows: Sequence[InputRow], *, is_list: bool) -> object:
    """The JSON value of an input; the inverse of :func:`rows_of` up to equal spellings."""
    values = [_row_value(row) for row in rows]
    return values if is_list or len(values) != 1 else values[0]


def canonical_input(rows: Sequence[InputRow], *, is_list: bool) -> bytes:
    """Bytes that name the input, the same for JSON and Avro, for the input digest."""
    return canonical_json(input_value(rows, is_list=is_list)).encode()


def _row_value(row: InputRow) -> object:
    if row.ids is not None:
        return list(row.ids)
    if row.pair is None:
        return row.text
    return {"text": row.text, "text_pair": row.pair}


def _text_row(value: Any) -> InputRow:
    if isinstance(value, str):
        return InputRow(text=_filled(value))
    if not isinstance(value, dict):
        raise ItemRejected("invalid_type", _FORMS)
    unknown = value.keys() - {"text", "text_pair"}
    if unknown:
        raise ItemRejected("invalid_type", "input: an object has only text and text_pair")
    text, pair = value.get("text"), value.get("text_pair")
    if text is None:
        raise ItemRejected("missing_field", "input.text is missing")
    if not isinstance(text, str) or not isinstance(pair, (str, type(None))):
        raise ItemRejected("invalid_type", "input.text and input.text_pair must be texts")
    return InputRow(text=_filled(text), pair=None if pair is None else _filled(pair))


def _filled(text: str) -> str:
    """The text, unless nothing but white space is in it: there is no answer to nothing."""
    if not text or text.isspace():
        raise ItemRejected("empty_input", "input is empty: send a text that is not only spaces")
    return text


def _ids_row(value: Any) -> InputRow:
    if not isinstance(value, list):
        raise ItemRejected("invalid_type", _FORMS)
    if not value:
        raise ItemRejected("empty_input", "input: a list of token ids is empty")
    # bool is an int to Python and never a token id.
    if not all(type(token) is int and 0 <= token <= MAX_TOKEN_ID for token in value):
        raise ItemRejected("invalid_type", "input: token ids are whole numbers, 0 or more")
    return InputRow(ids=tuple(value))
