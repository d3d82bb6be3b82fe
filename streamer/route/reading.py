"""From delivered request records to entries: decode, admit, tokenize all texts at once. Pure.

Every record becomes exactly one entry, whatever is in it (invariant *account*): work, a refusal
that is answered, or a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamer.errors import ItemRejected, Undecodable
from streamer.event import codes
from streamer.event.headers import origin_from
from streamer.event.lane import Headers, Now, Record, TopicPartition
from streamer.event.records import DeadLetter, InferenceRequest
from streamer.route.admission import Admission, Admitted, deadline_of, refusal_digest
from streamer.route.entry import (
    Entry,
    GroupKey,
    ItemPlace,
    JobNote,
    Refusal,
    RefusalKey,
    WorkItem,
    work_item,
)
from streamer.route.inputs import too_long
from streamer.route.models import answer_bytes
from streamer.route.tokenizer import Encoded, TextRequest

# A record of the work topic holds at most 1 MiB; columns and names need the rest.
ITEM_BYTES_MAX = 900_000
_LETTER_BYTES_MAX = 4_194_304
# A dead letter holds the key twice, and its topic has room for the value and little more.
_LETTER_KEY_BYTES_MAX = 4_096
_ENTRY_BYTES = 600
_NAME_CHARS = 64

Origin = tuple[str, int, int]
ReadRequest = Callable[[bytes | None, Headers], InferenceRequest]


@dataclass(frozen=True, slots=True)
class _Draft:
    """An admitted request whose texts are not tokenized yet."""

    record: Record
    request: InferenceRequest
    origin: Origin
    accepted_at_ms: int
    admitted: Admitted


class Reader:
    """Reads the records of one lane.

    Args:
        admission: decides about decoded requests.
        read_request: decodes; raises :class:`Undecodable`.
    """

    def __init__(self, *, admission: Admission, read_request: ReadRequest) -> None:
        self._admission = admission
        self._read_request = read_request

    def entries(self, records: Sequence[Record], now: Now) -> list[Entry]:
        """One entry a record, in order."""
        drafts = [self._draft(record, now) for record in records]
        encoded = _tokenized([draft for draft in drafts if isinstance(draft, _Draft)])
        return [
            _finished(draft, encoded[id(draft)], now) if isinstance(draft, _Draft) else draft
            for draft in drafts
        ]

    def _draft(self, record: Record, now: Now) -> _Draft | Entry:
        accepted = record.timestamp_ms if record.timestamp_ms >= 0 else now.wall_ms
        try:
            origin = origin_from(record.headers, (record.topic, record.partition, record.offset))
            request = self._read_request(record.value, record.headers)
            self._admission.check_identity(request)
        except Undecodable as error:
            return _dead(record, error, now)
        except Exception as error:
            # A record that no check foresaw must not be delivered again for ever.
            return _dead(record, _surprise(error, "reading the record"), now)
        try:
            admitted = self._admission.admit(request, accepted_at_ms=accepted, now_ms=now.wall_ms)
        except ItemRejected as error:
            return _refused(record, request, origin, accepted, error, now)
        except Exception as error:
            return _dead(record, _surprise(error, "admitting the request"), now)
        return _Draft(record, request, origin, accepted, admitted)


def _surprise(error: BaseException, doing: str) -> Undecodable:
    """Only the type is told: foreign messages may repeat the input."""
    return Undecodable("corrupt_record", f"{type(error).__name__} while {doing}")


def _tokenized(drafts: Sequence[_Draft]) -> dict[int, list[Encoded] | ItemRejected]:
    """The encoded rows of every draft, one call of each model's tokenizer for all of them.

    Where that call fails each draft is tokenized alone, so that only the culprit is refused.
    """
    by_model: dict[str, list[_Draft]] = {}
    for draft in drafts:
        by_model.setdefault(draft.admitted.model.slug, []).append(draft)
    encoded: dict[int, list[Encoded] | ItemRejected] = {}
    for members in by_model.values():
        found = _tokenized_together(members)
        if isinstance(found, ItemRejected) and len(members) > 1:
            for one in members:
                alone = _tokenized_together([one])
                encoded[id(one)] = alone if isinstance(alone, ItemRejected) else alone[0]
            continue
        for at, one in enumerate(members):
            encoded[id(one)] = found if isinstance(found, ItemRejected) else found[at]
    return encoded


def _tokenized_together(members: Sequence[_Draft]) -> list[list[Encoded]] | ItemRejected:
    """The rows of drafts of one model, or why the tokenizer failed on them."""
    tokenizer = members[0].admitted.model.tokenizer
    texts = [row for one in members for row in one.admitted.rows if isinstance(row, TextRequest)]
    try:
        done = iter(tokenizer.encode(texts)) if texts else iter(())
        return [
            [
                next(done)
                if isinstance(row, TextRequest)
                else tokenizer.adopt(
                    row, truncate=one.admitted.params.truncate,
                    direction=one.admitted.params.direction,
                )
                for row in one.admitted.rows
            ]
            for one in members
        ]  # fmt: skip
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library is no Exception
        return ItemRejected(
            "model_error", f"{type(error).__name__} in the tokenizer: send another text"
        )


def _finished(draft: _Draft, rows: list[Encoded] | ItemRejected, now: Now) -> Entry:
    record, request, admitted = draft.record, draft.request, draft.admitted
    try:
        if isinstance(rows, ItemRejected):
            raise rows
        item = _work_item(draft, rows)
    except ItemRejected as error:
        return _refused(record, request, draft.origin, draft.accepted_at_ms, error, now)
    return Entry(
        at=TopicPartition(record.topic, record.partition),
        offset=record.offset,
        arrived_ns=now.mono_ns,
        size_bytes=_ENTRY_BYTES + item.size_bytes,
        content=item,
        note=_note(request, admitted.model.slug, draft.accepted_at_ms, now),
        tokens=item.tokens,
    )


def _work_item(draft: _Draft, rows: list[Encoded]) -> WorkItem:
    request, admitted = draft.request, draft.admitted
    model, params = admitted.model, admitted.params
    for at, row in enumerate(rows):
        where = f"input[{at}]" if request.is_list else "input"
        if row.tokens == 0:
            raise ItemRejected("empty_input", f"{where} has no tokens")
        if not len(row.ids):
            raise too_long(model, row.tokens, where)
    truncated = admitted.clipped or any(row.truncated for row in rows)
    item = work_item(
        key=GroupKey(
            model.slug, model.defaults.task, request.tenant, request.job_id, params.canonical,
            params.key, request.form, params.encoding, request.reply_to, draft.origin[0],
        ),
        place=_place(
            request, draft.origin, draft.accepted_at_ms, admitted.digest,
            codes.FLAG_TRUNCATED if truncated else 0,
        ),
        ids=tuple(row.ids for row in rows),
        pair_at=tuple(row.pair_at for row in rows),
        deadline_at_ms=admitted.deadline_at_ms,
        answer_bytes=len(rows) * answer_bytes(model, params),
    )  # fmt: skip
    if item.size_bytes > ITEM_BYTES_MAX:
        raise ItemRejected(
            "input_too_long",
            f"the tokens of the input need {item.size_bytes} bytes and at most {ITEM_BYTES_MAX} "
            "go into one request: split it",
        )
    return item


def _place(
    request: InferenceRequest, origin: Origin, accepted_at_ms: int, digest: bytes, flags: int
) -> ItemPlace:
    return ItemPlace(
        index=-1 if request.job_id is None or request.index is None else request.index,
        custom_id=request.custom_id,
        origin_partition=origin[1],
        origin_offset=origin[2],
        rows=len(request.rows),
        metadata=request.metadata,
        digest=digest,
        accepted_at_ms=accepted_at_ms,
        flags=flags | (codes.FLAG_LIST if request.is_list else 0),
    )


def _note(request: InferenceRequest, model: str, accepted_at_ms: int, now: Now) -> JobNote | None:
    if request.job_id is None:
        return None
    deadline = deadline_of(request, accepted_at_ms)
    return JobNote(
        tenant=request.tenant,
        job_id=request.job_id,
        total=-1 if request.total is None else request.total,
        # A deadline that has passed already ends this item, not its whole job.
        deadline_at_ms=deadline if deadline > now.wall_ms else 0,
        model=model,
        form=request.form,
        accepted_at_ms=accepted_at_ms,
    )


def _refused(
    record: Record,
    request: InferenceRequest,
    origin: Origin,
    accepted_at_ms: int,
    error: ItemRejected,
    now: Now,
) -> Entry:
    wished = request.params.get("encoding_format")
    model = request.model[:_NAME_CHARS]
    refusal = Refusal(
        key=RefusalKey(
            model, (request.task or "")[:_NAME_CHARS], request.tenant, request.job_id,
            request.form, str(wished) if wished in codes.ENCODINGS else "float",
            request.reply_to, origin[0],
        ),
        place=_place(request, origin, accepted_at_ms, refusal_digest(request), 0),
        status=codes.EXPIRED if error.code == "expired" else codes.ERRORED,
        code=error.code,
        message=error.message,
        retryable=error.retryable,
    )  # fmt: skip
    return Entry(
        at=TopicPartition(record.topic, record.partition),
        offset=record.offset,
        arrived_ns=now.mono_ns,
        size_bytes=_ENTRY_BYTES + 4 * len(request.metadata or ""),
        content=refusal,
        note=_note(request, model, accepted_at_ms, now),
    )


def _dead(record: Record, error: Undecodable, now: Now) -> Entry:
    value = record.value
    message = error.message
    if value is not None and len(value) > _LETTER_BYTES_MAX:
        message += f" (only the first {_LETTER_BYTES_MAX} of {len(value)} bytes are kept)"
        value = value[:_LETTER_BYTES_MAX]
    return Entry(
        at=TopicPartition(record.topic, record.partition),
        offset=record.offset,
        arrived_ns=now.mono_ns,
        size_bytes=_ENTRY_BYTES + len(value or b""),
        content=DeadLetter(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            stage="route",
            code=error.code,
            message=message,
            tenant=error.tenant,
            job_id=error.job_id,
            key=None if record.key is None else record.key[:_LETTER_KEY_BYTES_MAX],
            value=value,
            timestamp_ms=record.timestamp_ms,
        ),
    )
