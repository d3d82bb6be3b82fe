"""Work records, a worker core and a device that answers at once: defaults plus what matters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamer.batch.limits import BatchLimits
from streamer.event import wire
from streamer.event.lane import Assignment, Now, Record, TopicPartition
from streamer.event.records import ItemColumns, WorkRecord
from streamer.event.topics import TopicNames
from streamer.infer.engine import EngineSpec
from streamer.infer.fake_engine import FakeCost, fake_spec, fake_vectors
from streamer.infer.launch import Failed, Launch, News, late
from streamer.process.worker_core import WorkerCore
from streamer.process.worker_limits import ServedModel, WorkerLimits

NAMES = TopicNames("t.")
MODEL = "fake"
WALL_MS = 1_700_000_000_000


def at_ms(ms: float = 0.0) -> Now:
    """Both clocks ``ms`` after the beginning of a test."""
    return Now(1_000_000_000 + int(ms * 1e6), WALL_MS + int(ms))


def a_spec(*, dimension: int = 4, task: str = "embed", instances: int = 1) -> EngineSpec:
    return fake_spec(
        model=MODEL, task=task, revision="fake-1", tokenizer_hash="fake", dimension=dimension,
        max_length=512, instances=instances, cost=FakeCost(fixed_ms=1.0, token_us=5.0),
    )  # fmt: skip


def some_items(
    count: int, *, first_index: int = 0, rows: Sequence[int] | None = None, job: bool = True,
    metadata: list[str | None] | None = None, first_offset: int = 0,
) -> ItemColumns:  # fmt: skip
    index = np.arange(first_index, first_index + count, dtype=np.int64)
    return ItemColumns(
        index=index if job else np.full(count, -1, np.int64),
        custom_id=[f"c{i}" for i in index],
        origin_partition=(index % 3).astype(np.int32),
        origin_offset=first_offset + index,
        rows=np.ones(count, np.int32) if rows is None else np.array(rows, np.int32),
        metadata=metadata,
        input_digest=b"".join(int(i).to_bytes(16, "little") for i in index),
        accepted_at_ms=np.full(count, WALL_MS, np.int64),
        flags=np.zeros(count, np.uint8),
    )


def a_work(
    count: int = 3,
    *,
    job_id: str | None = "job-1",
    lane: str = "bulk",
    first_index: int = 0,
    rows: Sequence[int] | None = None,
    lengths: Sequence[int] | None = None,
    deadlines: Sequence[int] | None = None,
    params: str = "{}",
    encoding: str = "float",
    form: str = "json",
    reply_to: int | None = None,
    metadata: list[str | None] | None = None,
    first_token: int | None = None,
    **changes: object,
) -> WorkRecord:
    """A record whose tokens are made from its indices, so that every text differs."""
    items = some_items(
        count, first_index=first_index, rows=rows, job=job_id is not None, metadata=metadata
    )
    texts = int(items.rows.sum())
    sizes = np.full(texts, 5, np.int32) if lengths is None else np.array(lengths, np.int32)
    begin = first_index * 7 if first_token is None else first_token
    tokens = (np.arange(int(sizes.sum())) + begin) % 60_000
    fields: dict[str, object] = {
        "model": MODEL, "revision": "fake-1", "tokenizer_hash": "fake", "task": "embed",
    }  # fmt: skip
    fields.update(changes)
    return WorkRecord(
        lane=lane, params=params, params_key=f"k{params}{encoding}", tenant="default",
        job_id=job_id, form=form, encoding=encoding, reply_to=reply_to,
        origin_topic=NAMES.requests(lane), plan_version=0, group_reason="window", items=items,
        lengths=sizes, token_ids=tokens.astype(np.uint16), pair_at=None,
        deadline_at_ms=np.zeros(count, np.int64) if deadlines is None
        else np.array(deadlines, np.int64), **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def work_at(partition: int = 0, lane: str = "bulk") -> TopicPartition:
    return TopicPartition(NAMES.work(MODEL, lane), partition)


def delivered(work: WorkRecord | bytes, offset: int, partition: int = 0) -> Record:
    lane = work.lane if isinstance(work, WorkRecord) else "bulk"
    value = wire.encode_work(work) if isinstance(work, WorkRecord) else work
    at = work_at(partition, lane)
    return Record(at.topic, at.partition, offset, WALL_MS, None, value, {})


def a_core(
    *, lane: str = "bulk", spec: EngineSpec | None = None, batch: BatchLimits | None = None,
    **limits: object,
) -> WorkerCore:  # fmt: skip
    return WorkerCore(
        limits=WorkerLimits(lane=lane, **{"commit_ns": 0, **limits}),  # type: ignore[arg-type]
        names=NAMES,
        models=[ServedModel(spec=spec or a_spec(), batch=batch or BatchLimits())],
    )


def assigned(
    core: WorkerCore, *partitions: int, epoch: int = 1, offset: int = 0, metadata: str = "",
    lane: str = "bulk", now: Now | None = None,
) -> None:  # fmt: skip
    """Assign partitions and commit their attempts, so that launches may begin."""
    now = now or at_ms()
    core.assigned([Assignment(work_at(p, lane), epoch, offset, metadata) for p in partitions], now)
    plan = core.plan(now)
    assert plan is not None
    assert not plan.records
    core.settled(plan, now)


def answered(launch: Launch, spec: EngineSpec | None = None, *, wall_ms: int = 0) -> News:
    """What a healthy device says of a launch at once."""
    columns = launch.columns
    dimension = (spec or a_spec()).row_shape[0]
    passed = late(launch.deadline_at_ms, wall_ms)
    rows = fake_vectors(columns.token_ids, columns.lengths, dimension)
    kept = np.repeat(~passed, columns.texts_per_item)
    return News(
        launch=launch, done=np.flatnonzero(~passed), rows=rows[kept],
        expired=tuple(np.flatnonzero(passed).tolist()),
    )  # fmt: skip


def all_failed(launch: Launch, code: str = "model_error", *, culprit: bool = True) -> News:
    failed = tuple(
        Failed(item=i, code=code, message="it failed", culprit=culprit) for i in range(len(launch))
    )
    return News(
        launch=launch, done=np.empty(0, np.int64), rows=np.empty((0, 4), np.float32), failed=failed
    )


def run_all(core: WorkerCore, now: Now | None = None, spec: EngineSpec | None = None) -> int:
    """Launch and answer until nothing waits; returns the number of batches."""
    now = now or at_ms()
    count = 0
    while (launch := core.next_batch(now, model=MODEL, drain=True)) is not None:
        core.batch_done(answered(launch, spec), now)
        count += 1
    return count
