"""From the bytes of a request record to a request: the only door for what users write.

JSON or Avro is told by the header ``content-type``, else by the first byte: 0 is Avro, an opening
brace is JSON. Both pass the same checks. What comes of a record:

    no value, too many bytes, no known form                  dead letter  corrupt_record
    Avro of an unknown schema, wrong first byte              dead letter  unknown_schema
    Avro that does not fit its schema, bytes left over       dead letter  corrupt_record
    JSON no parser can read, or nested beyond ~1,000 levels  dead letter  invalid_json
    JSON that is no object                                   dead letter  invalid_type
    job_id or its tenant of the wrong type or characters     dead letter  invalid_type
    job_id without index                                     dead letter  missing_field
    index of the wrong type (also true, 1.0, "1")            dead letter  invalid_type
    index negative or beyond 64 bits                         dead letter  index_out_of_range
    all below this line is answered, in its job or by a reply:
    bytes or lone surrogates that are no UTF-8               errored      invalid_utf8
    NaN, Infinity, 1e400                                     errored      non_finite_number
    index without job_id, no model, no input                 errored      missing_field
    a text of nothing or only white space, an empty list     errored      empty_input
    wrong type or choice, unknown parameter, over a limit    errored      invalid_type
    ``invalid`` set by the submitter                         errored      the submitter's code
    NUL and other control characters, escaped or raw         answered
    the same key twice                                       answered     the last one counts
    a field of an unknown name                               answered     ignored
    custom_id missing or empty                               answered     index as text, or ""

Integers beyond 64 bits are read as floating point, so they have the wrong type wherever an integer
is wanted. Whether a model, a lane or a deadline can be served is decided later, in route.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from streamer.errors import Undecodable
from streamer.event import wire_request
from streamer.event.avro import ID_HEADER
from streamer.event.file_schemas import codec
from streamer.event.headers import CONTENT_TYPE
from streamer.event.records import InferenceRequest
from streamer.event.request_fields import IntakeLimits, request_of
from streamer.event.request_input import canonical_json

__all__ = ["IntakeLimits", "canonical_json", "read_request"]

_DEFAULT = IntakeLimits()
_SPACES = b" \t\r\n"
_AVRO_TYPES = (b"avro/binary", b"application/avro", b"application/vnd.apache.avro+binary")
_JSON_TYPES = (b"application/json", b"application/x-ndjson", b"text/json")


def read_request(
    value: bytes | None,
    headers: Mapping[str, bytes] | None = None,
    limits: IntakeLimits = _DEFAULT,
) -> InferenceRequest:
    """The request in a record.

    Args:
        value: the record's value.
        headers: its headers; only the content type and the schema id are looked at.
        limits: bounds on size and counts.

    Returns:
        The request; with ``invalid`` set when it is to be answered errored.

    Raises:
        Undecodable: nobody can say where an answer belongs: a dead letter.
    """
    headers = headers or {}
    if not value:
        raise Undecodable("corrupt_record", "the record has no value; send an object")
    if len(value) > limits.max_record_bytes:
        raise Undecodable(
            "corrupt_record",
            f"the record has {len(value)} bytes, the limit is {limits.max_record_bytes}",
        )
    form = _form_of(value, headers)
    if form == "json":
        values, problem = _parse_json(value)
    else:
        values, problem = _parse_avro(value, headers, limits)
    request = request_of(values, form=form, limits=limits, problem=problem)
    if request.invalid is not None and not request.input_canonical:
        # A digest of the whole record tells a repeated broken line from another one.
        return replace(request, input_canonical=value)
    return request


def _form_of(value: bytes, headers: Mapping[str, bytes]) -> str:
    said = headers.get(CONTENT_TYPE, b"").split(b";")[0].strip().lower()
    if said in _AVRO_TYPES or ID_HEADER in headers:
        return "avro"
    if said in _JSON_TYPES or value.lstrip(_SPACES)[:1] in (b"{", b"["):
        return "json"
    return "avro"


def _parse_avro(
    value: bytes, headers: Mapping[str, bytes], limits: IntakeLimits
) -> tuple[dict[str, Any], tuple[str, str] | None]:
    reader = codec("inference_request")
    problem = None
    try:
        datum = reader.decode(value, headers, max_bytes=limits.max_record_bytes)
    except Undecodable as error:
        if error.code != "invalid_utf8":
            raise
        problem = ("invalid_utf8", "a text of the record is not valid UTF-8: encode it again")
        datum = reader.decode(
            value, headers, max_bytes=limits.max_record_bytes, broken_text="replace"
        )
    values, later = wire_request.values_of(datum)
    return values, problem or later


def _parse_json(value: bytes) -> tuple[dict[str, Any], tuple[str, str] | None]:
    problem = None
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError:
        parsed, problem = _parse_leniently(value)
    if not isinstance(parsed, dict):
        raise Undecodable("invalid_type", "the JSON is no object; send {...}")
    return parsed, problem


def _parse_leniently(value: bytes) -> tuple[Any, tuple[str, str] | None]:
    """What a broken object says about its place, and what is broken about it.

    Nothing is, when only raw control characters in texts stopped the strict parser.
    """
    found: list[str] = []

    def number(literal: str) -> float:
        parsed = float(literal)
        if not math.isfinite(parsed):
            found.append("non_finite_number")
        return parsed

    def whole(literal: str) -> int | float:
        # Twenty digits hold every 64-bit integer; longer ones cost time that grows squared.
        return int(literal) if len(literal) <= 20 else number(literal)

    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        found.append("invalid_utf8")
    try:
        parsed = json.loads(
            value.decode("utf-8", errors="replace"),
            parse_constant=number,
            parse_float=number,
            parse_int=whole,
            strict=False,
        )
        if not found:
            json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        found.append("invalid_utf8")
    except (ValueError, RecursionError):
        raise Undecodable("invalid_json", "the record is no JSON object") from None
    return parsed, (found[0], _REMEDIES[found[0]]) if found else None


_REMEDIES: Mapping[str, str] = {
    "invalid_utf8": "a text of the record is not valid UTF-8: encode it again",
    "non_finite_number": "NaN and Infinity are no JSON numbers: send a finite number or null",
}
