"""A file of requests answered without Kafka: the same route, batches, engine and output lines.

lines ─► Reader (admit, tokenize) ─► sorted groups ─► OfflineRun ─► output lines in line order
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamer.clock import Clock
from streamer.emit.answer_rows import Answers, encode_rows
from streamer.event import codes, wire
from streamer.event.file_models import ModelFiles
from streamer.event.json_form import output_lines
from streamer.event.lane import Now, Record
from streamer.event.records import InferenceRequest, ItemError, OutputRun, Outputs, Receipt
from streamer.event.request_fields import IntakeLimits, request_of
from streamer.event.topics import TopicNames
from streamer.process.engines import tokenizer_of
from streamer.process.offline import WINDOW_ITEMS, OfflineRun
from streamer.route.admission import Admission
from streamer.route.entry import Entry, Refusal, WorkItem
from streamer.route.grouping import GroupLimits, grouped
from streamer.route.models import AdmissionLimits, ServedModel
from streamer.route.outgoing import Outlets, item_columns, work_record
from streamer.route.params import ParamDefaults
from streamer.route.reading import Reader

if TYPE_CHECKING:
    from streamer.client.jsonl import Line

# Items in memory before reading pauses; lines wait for slower ones before them.
_OPEN_ITEMS_MAX = 3 * WINDOW_ITEMS
_JOB = "run-batch"
_ANSWER_BYTES_MAX = 1 << 40
_TURN_S = 0.0005
_OUTLETS = Outlets(
    names=TopicNames(""), lane="bulk", results=1, replies=1, jobs=1, dead_letters=1, work={}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBatchOptions:
    """What holds for lines that do not say otherwise.

    Attributes:
        params: parameters added to every line that does not set them.
        normalize: the model's default.
        window_items: read, tokenized and sorted together.
    """

    params: Mapping[str, object]
    normalize: bool = True
    window_items: int = WINDOW_ITEMS


def run_lines(
    run: OfflineRun,
    files: ModelFiles,
    lines: Iterator[Line],
    options: RunBatchOptions,
    *,
    clock: Clock,
    write: Callable[[bytes], object],
) -> Mapping[str, int]:
    """Answer every line, in order.

    Args:
        run: the entered engine loop of the model.
        files: the model.
        lines: the requests.
        options: defaults.
        clock: source of time.
        write: takes one output line without its end.

    Returns:
        How many lines ended in which item state.
    """
    reader = _LineReader(files, options, clock)
    writer = _InOrder(write)
    begun = time.perf_counter()
    lines_left = True
    while lines_left or run.open_items:
        if lines_left and run.open_items < _OPEN_ITEMS_MAX - options.window_items:
            window = list(islice(lines, options.window_items))
            lines_left = len(window) == options.window_items
            tick = time.perf_counter()
            entries = reader.entries(window)
            run.stats.tokenize_s += time.perf_counter() - tick
            _start(run, reader.served, entries, writer)
        finished = run.turn(drain=not lines_left)
        for _, held in finished:
            writer.add(_run_of(held.answers))
        if not finished:
            time.sleep(_TURN_S)
    run.stats.wall_s = time.perf_counter() - begun
    return writer.counts


def _start(
    run: OfflineRun, served: ServedModel, entries: Sequence[Entry], writer: _InOrder
) -> None:
    """Sort a window into records; refused lines are answered at once."""
    items = [entry.content for entry in entries if isinstance(entry.content, WorkItem)]
    for group in grouped(items, GroupLimits(), lambda _: 0):
        record = work_record(
            group, 0, model=served, plan_version=0, reason="file", outlets=_OUTLETS
        )
        run.add(wire.decode_work(record.value or b""))
    for entry in entries:
        if isinstance(entry.content, Refusal):
            run.stats.items += 1
            writer.add(_refused_run(entry.content))


class _LineReader:
    """Lines to entries, by route's own reader."""

    def __init__(self, files: ModelFiles, options: RunBatchOptions, clock: Clock) -> None:
        self._files = files
        self._options = options
        self._clock = clock
        self._lines: deque[InferenceRequest] = deque()
        self._count = 0
        labels = len(files.labels or ()) or 1
        self.served = ServedModel(
            slug=files.slug, revision=files.revision, tokenizer=tokenizer_of(files),
            defaults=ParamDefaults(
                task=files.task, normalize=options.normalize, dimension=files.dimension,
                prompts=files.prompts, default_prompt_name=files.default_prompt_name,
            ),
            answer_bytes=4 * labels,
        )  # fmt: skip
        admission = Admission(
            lane="bulk", models={files.slug: self.served}, limits=AdmissionLimits()
        )
        # The reader asks for the request of each record once, in order.
        self._reader = Reader(
            admission=admission, read_request=lambda _value, _headers: self._lines.popleft()
        )

    def entries(self, lines: Sequence[Line]) -> list[Entry]:
        """One entry a line, in order; its index is the number of lines before it."""
        records = []
        for line in lines:
            self._lines.append(self._request(line))
            records.append(Record("file", 0, self._count, -1, None, b"", {}))
            self._count += 1
        now = Now(self._clock.monotonic_ns(), self._clock.wall_ms())
        return self._reader.entries(records, now)

    def _request(self, line: Line) -> InferenceRequest:
        asked = line.fields.get("params") or {}
        fields = {
            **line.fields, "custom_id": line.custom_id, "job_id": _JOB, "index": self._count,
            "tenant": "default",
        }  # fmt: skip
        if isinstance(asked, Mapping):
            fields["params"] = {**self._options.params, **asked}
        fields["model"] = line.fields.get("model") or self._files.slug
        if line.invalid is not None:
            fields["invalid"] = dict(zip(("code", "message"), line.invalid, strict=True))
        return request_of(fields, form="json", limits=IntakeLimits(), problem=line.invalid)


class _InOrder:
    """Writes lines by index as soon as all before them are written."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._next = 0
        self._waiting: dict[int, bytes] = {}
        self.counts = dict.fromkeys(codes.STATUSES, 0)

    def add(self, run: OutputRun) -> None:
        for status in run.status.tolist():
            self.counts[codes.status_name(status)] += 1
        for index, line in zip(run.items.index.tolist(), output_lines(run), strict=True):
            self._waiting[index] = line
        while (ready := self._waiting.pop(self._next, None)) is not None:
            self._write(ready)
            self._next += 1


def _run_of(answers: Answers) -> OutputRun:
    """The rows of a finished record, encoded as the service would."""
    rows = encode_rows(answers, _ANSWER_BYTES_MAX)
    work = answers.work
    outputs = None
    if len(rows.data):
        outputs = Outputs(
            kind=answers.kind, dtype=rows.dtype, row_shape=tuple(rows.data.shape[1:]),
            data=rows.data.tobytes(),
        )  # fmt: skip
    return OutputRun(
        lane=work.lane, tenant=work.tenant, job_id=work.job_id, model=work.model, task=work.task,
        form="json", encoding=work.encoding, origin_topic=work.origin_topic,
        first_index=int(work.items.index[0]), items=work.items, status=answers.status,
        outputs=outputs, errors=tuple(answers.errors.values()), input_tokens=rows.tokens,
        labels=answers.labels, receipts=(answers.receipt,),
        receipt_at=np.zeros(len(work.items), np.uint16),
    )  # fmt: skip


def _refused_run(refusal: Refusal) -> OutputRun:
    status: NDArray[np.uint8] = np.array([refusal.status], np.uint8)
    key = refusal.key
    error = ItemError(
        row=0, code=refusal.code, message=refusal.message, retryable=refusal.retryable
    )
    return OutputRun(
        lane="bulk", tenant=key.tenant, job_id=key.job_id, model=key.model, task=key.task,
        form="json", encoding=key.encoding, origin_topic=key.origin_topic,
        first_index=refusal.place.index, items=item_columns([refusal.place]), status=status,
        outputs=None, errors=(error,), input_tokens=np.zeros(1, np.int32), labels=None,
        receipts=(Receipt(),), receipt_at=np.zeros(1, np.uint16),
    )  # fmt: skip
