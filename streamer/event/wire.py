"""Records to bytes and back: the one place that knows which record has which schema and form.

Decoders raise :class:`Undecodable` and nothing else, whatever the bytes; encoders raise
``Inconsistent`` when the columns of a record contradict each other, which is our bug.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from streamer.errors import Undecodable
from streamer.event import headers, json_form, wire_request, wire_rows, wire_state
from streamer.event.columns import Inconsistent
from streamer.event.file_schemas import codec
from streamer.event.lane import OutRecord
from streamer.event.records import (
    BucketPlan,
    Completion,
    DeadLetter,
    Fact,
    InferenceRequest,
    JobEntry,
    JobState,
    OutputRun,
    ResultRecord,
    WorkRecord,
)
from streamer.event.topics import job_key

T = TypeVar("T")
_MIB = 1024 * 1024

# Above what a topic takes, below what hurts: the densest forged array (errors of four bytes each)
# takes 50 times its bytes in memory. A run may carry the metadata of 256 items beside its answers,
# a dead letter a whole foreign record.
MAX_BYTES: Mapping[str, int] = {"work": 4 * _MIB, "output": 6 * _MIB, "dead_letter": 64 * _MIB}
_MAX_BYTES_ELSE = 2 * _MIB


def _decode(name: str, value: bytes | None, build: Callable[[Any], T]) -> T:
    datum = codec(name).decode(value, max_bytes=MAX_BYTES.get(name, _MAX_BYTES_ELSE))
    try:
        return build(datum)
    except Inconsistent as error:
        raise Undecodable("corrupt_record", f"{name}: {error}") from None


def encode_work(work: WorkRecord) -> bytes:
    """Bytes of a work record."""
    return codec("work").encode(wire_rows.work_datum(work))


def decode_work(value: bytes | None) -> WorkRecord:
    """A work record; its columns agree."""
    return _decode("work", value, wire_rows.work_of)


def encode_result(result: ResultRecord) -> bytes:
    """Bytes of a result record."""
    return codec("result").encode(wire_rows.result_datum(result))


def decode_result(value: bytes | None) -> ResultRecord:
    """A result record; its columns agree."""
    return _decode("result", value, wire_rows.result_of)


def encode_output(output: OutputRun | Completion) -> bytes:
    """Bytes of a run, a reply or a completion."""
    return codec("output").encode(wire_rows.output_datum(output))


def decode_output(value: bytes | None) -> OutputRun | Completion:
    """A run, a reply or a completion; its columns agree."""
    return _decode("output", value, wire_rows.output_of)


def encode_job_state(state: JobState) -> bytes:
    """Bytes of a job state."""
    return codec("job_state").encode(wire_state.job_state_datum(state))


def decode_job_state(value: bytes | None) -> JobState:
    """A job state."""
    return _decode("job_state", value, wire_state.job_state_of)


def encode_job(entry: JobEntry) -> bytes:
    """Bytes of something said about a job."""
    return codec("job").encode(wire_state.plain_datum(entry))


def decode_job(value: bytes | None) -> JobEntry:
    """Something said about a job."""
    return _decode("job", value, wire_state.job_of)


def encode_plan(plan: BucketPlan) -> bytes:
    """Bytes of a bucket plan."""
    return codec("bucket_plan").encode(wire_state.plan_datum(plan))


def decode_plan(value: bytes | None) -> BucketPlan:
    """A bucket plan; every bucket has a partition."""
    return _decode("bucket_plan", value, wire_state.plan_of)


def encode_dead_letter(letter: DeadLetter) -> bytes:
    """Bytes of a dead letter."""
    return codec("dead_letter").encode(wire_state.plain_datum(letter))


def decode_dead_letter(value: bytes | None) -> DeadLetter:
    """A dead letter."""
    return _decode("dead_letter", value, wire_state.dead_letter_of)


def encode_fact(fact: Fact) -> bytes:
    """Bytes of a fact."""
    return codec("event").encode(wire_state.plain_datum(fact))


def decode_fact(value: bytes | None) -> Fact:
    """A fact."""
    return _decode("event", value, wire_state.fact_of)


def encode_request(request: InferenceRequest) -> bytes:
    """Avro bytes of a request; ``intake.read_request`` reads them.

    Raises:
        ValueError: texts and token ids stand in one input.
    """
    return codec("inference_request").encode(wire_request.request_datum(request))


def output_records(output: OutputRun | Completion, topic: str, partition: int) -> list[OutRecord]:
    """The messages of a run, a reply or a completion, in the form its request came in.

    JSON: one message an item. Avro: one message. The key is the job key, or the custom id of a
    reply (None when it has none).
    """
    if isinstance(output, Completion):
        kind = b"completion"
    else:
        kind = b"reply" if output.job_id is None else b"run"
    tags = {headers.KIND: kind}
    if output.job_id is None:
        assert isinstance(output, OutputRun)
        key = output.items.custom_id[0].encode() or None
    else:
        key = job_key(output.lane, output.tenant, output.job_id)
        tags[headers.JOB] = key
    if output.form == "avro":
        tags[headers.CONTENT_TYPE] = headers.AVRO
        values = [encode_output(output)]
    else:
        tags[headers.CONTENT_TYPE] = headers.JSON
        if isinstance(output, Completion):
            values = [json_form.completion_line(output)]
        else:
            wire_rows.check_run(output)
            values = json_form.output_lines(output)
    return [OutRecord(topic, partition, key, value, tags) for value in values]
