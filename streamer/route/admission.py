"""Whether a request may become work, and with what: effective parameters, texts, deadline, digest.

    request -> Admitted                what to tokenize
            -> ItemRejected            errored answer with a typed code and what to do about it
            -> Undecodable             nobody could be answered: dead letter

Invariant *isolate*: a refusal touches its own item only. Pure; the wall clock is an argument.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from streamer.errors import ItemRejected, Undecodable
from streamer.event.digest import input_digest
from streamer.event.records import InferenceRequest
from streamer.event.topics import JOB_ID
from streamer.route.inputs import checked_rows
from streamer.route.models import AdmissionLimits, ServedModel, answer_bytes
from streamer.route.params import Params, canonical_json, effective_params
from streamer.route.tokenizer import TextRequest

_TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
# Far beyond any job, and far below where int64 columns would overflow.
_INDEX_MAX = 1 << 53
_DEADLINE_MAX_MS = 1 << 53
_SHOWN_CHARS = 64
_MEMO_SIZE = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What is left to do with a request: tokenize, group, send.

    Attributes:
        rows: a text to tokenize, or the ids that the caller made.
        clipped: whether characters were cut off before tokenizing.
        deadline_at_ms: absolute; 0 = none.
    """

    model: ServedModel
    params: Params
    rows: tuple[TextRequest | tuple[int, ...], ...]
    clipped: bool
    deadline_at_ms: int
    digest: bytes


class Admission:
    """Decides about the requests of one lane.

    Args:
        lane: named by the ingress topic.
        models: every model that is served, by slug.
        limits: bounds of one request.
    """

    def __init__(
        self, *, lane: str, models: Mapping[str, ServedModel], limits: AdmissionLimits
    ) -> None:
        self._lane = lane
        self._models = models
        self._limits = limits
        self._memo: OrderedDict[object, Params] = OrderedDict()

    def check_identity(self, request: InferenceRequest) -> None:
        """Make sure that an answer to this request would have an address.

        Raises:
            Undecodable: it has a job but no place in it.
        """
        if request.job_id is None:
            return
        if not JOB_ID.match(request.job_id):
            raise Undecodable("invalid_type", "job_id is not 1 to 64 of A-Z a-z 0-9 . _ -")
        if not _TENANT.match(request.tenant):
            raise Undecodable("invalid_type", "tenant is not 1 to 64 of A-Z a-z 0-9 . _ -")
        if request.index is None:
            raise Undecodable("missing_field", "job_id comes without index")
        if not 0 <= request.index < _INDEX_MAX:
            raise Undecodable("index_out_of_range", "index is negative or too large")

    def admit(self, request: InferenceRequest, *, accepted_at_ms: int, now_ms: int) -> Admitted:
        """Turn a request into work.

        Args:
            request: whose identity was checked.
            accepted_at_ms: LogAppendTime of its record; ``timeout_ms`` counts from here.
            now_ms: wall clock.

        Raises:
            ItemRejected: with a code of ``event.codes`` and a message that says what to do.
        """
        if request.invalid is not None:
            raise ItemRejected(*request.invalid)
        self._check_address(request)
        deadline = deadline_of(request, accepted_at_ms)
        if 0 < deadline <= now_ms:
            raise ItemRejected(
                "expired", f"the deadline had passed {now_ms - deadline} ms before it was routed"
            )
        model = self._model_of(request)
        params = self._params_of(request, model)
        rows, clipped = checked_rows(request, model, params, self._limits)
        self._check_answer(len(rows), model, params)
        digest = input_digest(model.defaults.task, request.input_canonical, params.canonical)
        return Admitted(
            model=model, params=params, rows=rows, clipped=clipped, deadline_at_ms=deadline,
            digest=digest,
        )  # fmt: skip

    def _check_address(self, request: InferenceRequest) -> None:
        if request.lane is not None and request.lane != self._lane:
            raise ItemRejected(
                "invalid_type",
                f"lane is {request.lane[:_SHOWN_CHARS]!r}, but the topic belongs to the lane "
                f"{self._lane!r}: send it to the other topic or leave the field out",
            )
        if not _TENANT.match(request.tenant):
            raise ItemRejected("invalid_type", "tenant must be 1 to 64 of A-Z a-z 0-9 . _ -")
        if request.reply_to is not None and not 0 <= request.reply_to < self._limits.replies:
            raise ItemRejected(
                "invalid_type",
                f"reply_to is {request.reply_to}, but replies has the partitions 0 to "
                f"{self._limits.replies - 1}",
            )

    def _model_of(self, request: InferenceRequest) -> ServedModel:
        model = self._models.get(request.model)
        if model is None:
            known = ", ".join(sorted(self._models)[:20]) or "none"
            raise ItemRejected(
                "unknown_model",
                f"there is no model {request.model[:_SHOWN_CHARS]!r}; served here: {known}",
            )
        if request.task is not None and request.task != model.defaults.task:
            raise ItemRejected(
                "invalid_type",
                f"{model.slug} does {model.defaults.task}, not {request.task[:_SHOWN_CHARS]!r}",
            )
        return model

    def _params_of(self, request: InferenceRequest, model: ServedModel) -> Params:
        # Values keep their type in the key: True and 1 are equal to a dict but not the same wish.
        key = (
            model.slug,
            *sorted((name, type(v).__name__, v) for name, v in request.params.items()),
        )
        try:
            found = self._memo.get(key)
        except TypeError:  # a list or an object where a plain value is due
            return effective_params(request.params, model.defaults)
        if found is None:
            found = effective_params(request.params, model.defaults)
            self._memo[key] = found
            if len(self._memo) > _MEMO_SIZE:
                self._memo.popitem(last=False)
        return found

    def _check_answer(self, rows: int, model: ServedModel, params: Params) -> None:
        predicted = rows * answer_bytes(model, params)
        if predicted > self._limits.result_bytes_max:
            raise ItemRejected(
                "result_too_large",
                f"the answer would have about {predicted} bytes and at most "
                f"{self._limits.result_bytes_max} fit: send fewer texts in one request, or ask for "
                "fewer dimensions or a smaller encoding_format",
            )


def deadline_of(request: InferenceRequest, accepted_at_ms: int) -> int:
    """The absolute deadline in Unix ms, the earlier one when two are given; 0 = none.

    A time-out of any length is allowed, so the sum is cut to what a column can hold.
    """
    named = [] if request.deadline_at_ms is None else [max(1, request.deadline_at_ms)]
    if request.timeout_ms is not None:
        named.append(max(1, accepted_at_ms + request.timeout_ms))
    return min(min(named), _DEADLINE_MAX_MS) if named else 0


def refusal_digest(request: InferenceRequest) -> bytes:
    """Input digest of a request whose parameters never became effective."""
    return input_digest(
        request.task or "", request.input_canonical, canonical_json(dict(request.params))
    )
