"""From a parsed object to a request: every type checked, the first problem kept.

What cannot be placed, in a job or outside one, raises :class:`Undecodable`. What can be placed
always becomes a request; its ``invalid`` says what is wrong and what to do. The table stands in
``intake``. Messages name fields and limits and never repeat a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from streamer.errors import ItemRejected, Undecodable
from streamer.event.codes import ERROR_CODES, TASKS
from streamer.event.records import InferenceRequest, InputRow
from streamer.event.request_input import MAX_ROWS, canonical_input, rows_of
from streamer.event.request_params import checked_params
from streamer.event.topics import JOB_ID

MAX_INT64: Final = (1 << 63) - 1
MAX_CUSTOM_ID: Final = 256
MAX_NAME: Final = 256
MAX_MESSAGE: Final = 1_000
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeLimits:
    """Bounds on what a request may be.

    Attributes:
        max_record_bytes: a larger record is not looked into.
        max_rows: texts of one item.
        max_metadata_bytes: JSON text of the metadata; room for 16 pairs of 64 + 512 characters.
    """

    max_record_bytes: int = 4_194_304
    max_rows: int = MAX_ROWS
    max_metadata_bytes: int = 10_240


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Who is to be answered: all that must be right before anything else is looked at."""

    tenant: str
    job_id: str | None
    index: int | None


@dataclass(slots=True)
class _Fields:
    """The fields of one request; keeps the first problem it meets."""

    values: Mapping[str, Any]
    problem: tuple[str, str] | None = None

    def refuse(self, code: str, message: str) -> None:
        if self.problem is None:
            self.problem = (code, message)

    def integer(self, name: str, low: int, high: int = MAX_INT64) -> int | None:
        value = self.values.get(name)
        if value is None:
            return None
        if type(value) is not int or not low <= value <= high:
            self.refuse("invalid_type", f"{name} must be a whole number from {low} to {high}")
            return None
        return value

    def text(self, name: str, length: int = MAX_NAME) -> str | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > length:
            self.refuse("invalid_type", f"{name} must be a text of at most {length} characters")
            return None
        return clean(value)


def clean(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be written as UTF-8."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def request_of(
    values: Mapping[str, Any],
    *,
    form: str,
    limits: IntakeLimits,
    problem: tuple[str, str] | None = None,
) -> InferenceRequest:
    """The request of a parsed object.

    Args:
        values: the object.
        form: ``json`` or ``avro``: how it came.
        limits: bounds.
        problem: (code, message) already known from parsing.

    Raises:
        Undecodable: the object speaks of a job but not as far as (job, index).
    """
    place = _place_of(values)
    fields = _Fields(values, problem)
    custom_id = _custom_id(fields, place)
    sent_invalid = _sent_invalid(fields)
    rows, is_list, canonical = _rows(fields, limits, needed=sent_invalid is None)
    deadline_at_ms, timeout_ms = _deadlines(fields)
    request = InferenceRequest(
        custom_id=custom_id,
        model=_model(fields, needed=sent_invalid is None),
        rows=rows,
        is_list=is_list,
        job_id=place.job_id,
        index=place.index,
        total=fields.integer("total", 0),
        task=_task(fields),
        params=_params(fields),
        deadline_at_ms=deadline_at_ms,
        timeout_ms=timeout_ms,
        tenant=place.tenant,
        reply_to=fields.integer("reply_to", 0, (1 << 31) - 1),
        lane=fields.text("lane"),
        metadata=_metadata(fields, limits),
        created_at_ms=fields.integer("created_at_ms", -MAX_INT64) or 0,
        form=form,
        input_canonical=canonical,
    )
    invalid = sent_invalid or fields.problem
    return request if invalid is None else replace(request, invalid=invalid)


def _place_of(values: Mapping[str, Any]) -> _Place:
    """(tenant, job, index), or the reason why nobody can say where the answer belongs."""
    job_id, index, tenant = values.get("job_id"), values.get("index"), values.get("tenant")
    if tenant is None or tenant == "":
        tenant = "default"
    tenant_is_fine = isinstance(tenant, str) and JOB_ID.match(tenant) is not None
    if job_id is None:
        return _Place(tenant=tenant if tenant_is_fine else "default", job_id=None, index=None)
    charset = "1 to 64 of A-Z a-z 0-9 . _ -"
    if not isinstance(job_id, str) or not JOB_ID.match(job_id):
        raise Undecodable("invalid_type", f"job_id must be {charset}")
    if not tenant_is_fine:
        raise Undecodable("invalid_type", f"tenant must be {charset}")
    refusal = None
    if index is None:
        refusal = ("missing_field", "a record with job_id needs an index")
    elif type(index) is not int:
        refusal = ("invalid_type", "index must be a whole number")
    elif not 0 <= index <= MAX_INT64:
        refusal = ("index_out_of_range", f"index must lie within 0 and {MAX_INT64}")
    if refusal is not None:
        raise Undecodable(*refusal, tenant=tenant, job_id=job_id)
    return _Place(tenant=tenant, job_id=job_id, index=index)


def _custom_id(fields: _Fields, place: _Place) -> str:
    if place.job_id is None:
        if fields.values.get("index") is not None:
            fields.refuse("missing_field", "index is given without job_id: name the job")
        tenant = fields.values.get("tenant")
        if tenant not in (None, "", place.tenant):
            fields.refuse("invalid_type", "tenant must be 1 to 64 of A-Z a-z 0-9 . _ -")
    value = fields.values.get("custom_id")
    if isinstance(value, str) and value:
        if len(value) > MAX_CUSTOM_ID:
            fields.refuse(
                "invalid_type", f"custom_id has {len(value)} characters, at most {MAX_CUSTOM_ID}"
            )
        return clean(value[:MAX_CUSTOM_ID])
    if value not in (None, ""):
        fields.refuse("invalid_type", "custom_id must be a text")
    return "" if place.index is None else str(place.index)


def _model(fields: _Fields, *, needed: bool) -> str:
    model = fields.text("model") or ""
    if not model and needed:
        fields.refuse("missing_field", "model is missing: name a model")
    return model


def _task(fields: _Fields) -> str | None:
    task = fields.text("task")
    if task is None or task in TASKS:
        return task
    fields.refuse("invalid_type", f"task must be one of {', '.join(TASKS)}")
    return None


def _sent_invalid(fields: _Fields) -> tuple[str, str] | None:
    """What a submitter found wrong with its own line."""
    value = fields.values.get("invalid")
    if value is None:
        return None
    code = value.get("code") if isinstance(value, dict) else None
    message = value.get("message", "") if isinstance(value, dict) else None
    if not isinstance(code, str) or code not in ERROR_CODES or not isinstance(message, str):
        fields.refuse("invalid_type", "invalid must hold an error code and a message")
        return None
    return code, clean(message[:MAX_MESSAGE])


def _rows(
    fields: _Fields, limits: IntakeLimits, *, needed: bool
) -> tuple[tuple[InputRow, ...], bool, bytes]:
    value = fields.values.get("input")
    if value is None and not needed:
        return (), False, b""
    try:
        rows, is_list = rows_of(value, max_rows=limits.max_rows)
        return rows, is_list, canonical_input(rows, is_list=is_list)
    except ItemRejected as error:
        fields.refuse(error.code, error.message)
    except TypeError:
        # A lone surrogate has no UTF-8 form; the strict parser would have refused it.
        fields.refuse("invalid_utf8", "input is not valid UTF-8: it holds a lone surrogate")
    return (), False, b""


def _params(fields: _Fields) -> dict[str, object]:
    params, wrong = checked_params(fields.values.get("params"))
    if wrong:
        fields.refuse("invalid_type", wrong)
    return params


def _deadlines(fields: _Fields) -> tuple[int | None, int | None]:
    at = fields.integer("deadline_at_ms", -MAX_INT64)
    timeout = fields.integer("timeout_ms", 1)
    if at is not None and timeout is not None:
        fields.refuse("invalid_type", "give deadline_at_ms or timeout_ms, not both")
    return at, timeout


def _metadata(fields: _Fields, limits: IntakeLimits) -> str | None:
    value = fields.values.get("metadata")
    if value is None:
        return None
    try:
        text = orjson.dumps(value)
    except TypeError:
        fields.refuse("invalid_type", "metadata must be plain JSON of at most 250 levels")
        return None
    if len(text) > limits.max_metadata_bytes:
        fields.refuse(
            "invalid_type",
            f"metadata has {len(text)} bytes as JSON, at most {limits.max_metadata_bytes}",
        )
        return None
    return text.decode()
