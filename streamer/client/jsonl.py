"""Reading request lines: OpenAI Batch lines and plain ``{"custom_id", "input", ...}`` lines.

Pure: bytes of one line in, one :class:`Line` out. A line that cannot be used never stops a file: it
becomes a line with ``invalid`` set, takes its place in the order, and the service answers it with
an error at that place. Blank lines take no place. Line numbers count from 1, blank lines included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import orjson

from streamer.event.request_fields import MAX_CUSTOM_ID
from streamer.event.request_input import MAX_ROWS
from streamer.event.request_params import PARAMS

BOM = b"\xef\xbb\xbf"
LINE_BYTES_MAX = 4_000_000

_PLAIN = frozenset({"input", "model", "task", "params", "metadata", "deadline_at_ms", "timeout_ms"})
_CUSTOM_ID = re.compile(rb'"custom_id"\s*:\s*("(?:[^"\\\x00-\x1f]|\\.){0,1024}")')
_SEARCH_BYTES = 65_536
_TASK_OF_URL = {
    "/v1/embeddings": "embed",
    "/v1/score": "score",
    "/v1/rerank": "score",
    "/v1/classify": "classify",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a request file.

    Attributes:
        number: its line number, from 1.
        custom_id: the caller's name; ``line-N`` when the line has no readable one.
        fields: the fields of the request record (``input``, ``params``, ``model``, ...).
        invalid: (code, message) when the line cannot be used; the message names the line.
        named: whether ``custom_id`` was read from the line.
    """

    number: int
    custom_id: str
    fields: Mapping[str, object] = field(default_factory=dict)
    invalid: tuple[str, str] | None = None
    named: bool = True


class _Broken(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def numbered_lines(
    readline: Callable[[int], bytes], limit_bytes: int = LINE_BYTES_MAX
) -> Iterator[tuple[int, bytes | None]]:
    """The lines that hold something, with their numbers, one at a time.

    Args:
        readline: ``readline(n)`` of a binary file: the next line, at most n bytes of it.
        limit_bytes: a longer line is skipped over in pieces and comes out as ``None``.
    """
    number = 0
    while raw := readline(limit_bytes + 1):
        number += 1
        if number == 1 and raw.startswith(BOM):
            raw = raw[len(BOM) :]
        too_long = len(raw) > limit_bytes and not raw.endswith(b"\n")
        while too_long and (rest := readline(limit_bytes + 1)) and not rest.endswith(b"\n"):
            pass
        if too_long:
            yield number, None
        elif not raw.isspace() and raw:
            yield number, raw.rstrip(b"\r\n")


def read_line(number: int, raw: bytes | None) -> Line:
    """Read one line; anything wrong with it ends up in ``invalid``.

    Args:
        number: its line number.
        raw: its bytes without the line end, or None when it was too long to look at.
    """
    custom_id = None
    try:
        if raw is None:
            raise _Broken("input_too_long", f"the line has more than {LINE_BYTES_MAX} bytes")
        row = _parse(raw)
        custom_id = _custom_id(row)
        fields = _batch_fields(row) if "body" in row else _plain_fields(row)
    except _Broken as broken:
        if custom_id is None and raw is not None:
            custom_id = _find_custom_id(raw)
        return Line(
            number=number,
            custom_id=f"line-{number}" if custom_id is None else custom_id,
            invalid=(broken.code, f"line {number}: {broken.message}"),
            named=custom_id is not None,
        )
    return Line(number=number, custom_id=custom_id, fields=fields)


def _parse(raw: bytes) -> Mapping[str, object]:
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise _why_not_json(raw) from None
    if not isinstance(row, dict):
        raise _Broken("invalid_type", 'a line must be a JSON object like {"custom_id", "input"}')
    return row


def _why_not_json(raw: bytes) -> _Broken:
    """Tell wrong bytes, NaN and half surrogates from plain broken JSON."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return _Broken("invalid_utf8", f"byte {error.start} is not UTF-8; save the file as UTF-8")
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except _Broken as broken:
        return broken
    except json.JSONDecodeError as error:
        return _Broken("invalid_json", f"not valid JSON near column {error.pos + 1}")
    except (ValueError, RecursionError):
        return _Broken("invalid_json", "not valid JSON: nested too deep or a number too long")
    return _Broken("invalid_utf8", "holds an escape that is no character (half a surrogate pair)")


def _refuse_constant(word: str) -> object:
    raise _Broken("non_finite_number", f"{word} is not a number JSON knows")


def _custom_id(row: Mapping[str, object]) -> str:
    if "custom_id" not in row:
        raise _Broken("missing_field", "custom_id is missing: give each line a name of its own")
    custom_id = row["custom_id"]
    if not isinstance(custom_id, str) or not custom_id:
        raise _Broken("invalid_type", "custom_id must be a text that is not empty")
    if len(custom_id) > MAX_CUSTOM_ID:
        raise _Broken("invalid_type", f"custom_id has more than {MAX_CUSTOM_ID} characters")
    return custom_id


def _find_custom_id(raw: bytes) -> str | None:
    """The name in a line that is broken elsewhere, so that its error can be matched to it."""
    found = _CUSTOM_ID.search(raw[:_SEARCH_BYTES])
    if found is None:
        return None
    try:
        name = orjson.loads(found.group(1))
    except orjson.JSONDecodeError:
        return None
    return name if isinstance(name, str) and 0 < len(name) <= MAX_CUSTOM_ID else None


def _plain_fields(row: Mapping[str, object]) -> dict[str, object]:
    if "input" not in row:
        raise _Broken("missing_field", "input is missing")
    return _with_params(row, {key: row[key] for key in row if key in _PLAIN})


def _with_params(row: Mapping[str, object], fields: dict[str, object]) -> dict[str, object]:
    """Gather the parameters beside the input; unknown names mean nothing, as on Kafka."""
    params = fields.get("params")
    if params is not None and not isinstance(params, dict):
        raise _Broken("invalid_type", "params must be an object")
    loose = {key: row[key] for key in row if key in PARAMS}
    if loose:
        fields["params"] = {**(params or {}), **loose}
    return fields


def _batch_fields(row: Mapping[str, object]) -> dict[str, object]:
    """The request of an OpenAI Batch line."""
    url, body = row.get("url"), row["body"]
    if row.get("method", "POST") != "POST":
        raise _Broken("invalid_type", "method must be POST")
    if not isinstance(body, dict):
        raise _Broken("invalid_type", "body must be an object")
    if not isinstance(url, str) or url not in _TASK_OF_URL:
        raise _Broken("invalid_type", "url must be one of " + ", ".join(_TASK_OF_URL))
    reader = {"/v1/score": _score_fields, "/v1/rerank": _rerank_fields}.get(url, _input_fields)
    fields = reader(body)
    fields["task"] = _TASK_OF_URL[url]
    for key in ("model", "metadata"):
        if key in body:
            fields[key] = body[key]
    if "metadata" in row:
        fields["metadata"] = row["metadata"]
    return fields


def _input_fields(body: Mapping[str, object]) -> dict[str, object]:
    if "input" not in body:
        raise _Broken("missing_field", "body.input is missing")
    return _with_params(body, {"input": body["input"]})


def _score_fields(body: Mapping[str, object]) -> dict[str, object]:
    left, right = _one_of(body, "text_1", "queries"), _one_of(body, "text_2", "documents")
    lefts = left if isinstance(left, list) else [left]
    rights = right if isinstance(right, list) else [right]
    if len(lefts) == 1:
        lefts = lefts * len(rights)
    if len(lefts) != len(rights):
        raise _Broken("invalid_type", "text_1 and text_2 must be of one length, or text_1 single")
    is_list = isinstance(left, list) or isinstance(right, list)
    return _with_params(body, {"input": _pairs(lefts, rights, is_list)})


def _rerank_fields(body: Mapping[str, object]) -> dict[str, object]:
    query, documents = _one_of(body, "query"), _one_of(body, "documents")
    if not isinstance(documents, list):
        raise _Broken("invalid_type", "documents must be a list")
    top = body.get("top_n")
    if top is not None and (not isinstance(top, int) or top < len(documents)):
        raise _Broken("invalid_type", "top_n below the number of documents is not served")
    body = {key: value for key, value in body.items() if key != "top_n"}
    return _with_params(body, {"input": _pairs([query] * len(documents), documents, True)})


def _one_of(body: Mapping[str, object], *names: str) -> object:
    for name in names:
        if name in body:
            return body[name]
    raise _Broken("missing_field", f"body.{names[0]} is missing")


def _pairs(lefts: list[object], rights: list[object], is_list: bool) -> object:
    if len(lefts) > MAX_ROWS:
        raise _Broken("invalid_type", f"more than {MAX_ROWS} pairs in one request")
    pairs = [{"text": left, "text_pair": right} for left, right in zip(lefts, rights, strict=True)]
    return pairs if is_list else pairs[0]
