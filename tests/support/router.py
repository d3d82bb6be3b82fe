"""A router core with fake models, and the request records that tests feed to it."""

from __future__ import annotations

from typing import Any

import orjson

from streamer.event.intake import read_request
from streamer.event.lane import Assignment, EmitPlan, Now, Record, TopicPartition
from streamer.event.records import ResultRecord, WorkRecord
from streamer.event.topics import TopicNames
from streamer.event.wire import decode_dead_letter, decode_job, decode_result, decode_work
from streamer.route.admission import Admission
from streamer.route.fake_tokenizer import FakeTokenizer
from streamer.route.models import AdmissionLimits, ServedModel
from streamer.route.outgoing import Outlets
from streamer.route.params import ParamDefaults
from streamer.route.reading import Reader
from streamer.route.router_core import RouterCore, RouterLimits
from streamer.route.tokenizer import Tokenizer
from streamer.route.window import WindowLimits

NAMES = TopicNames("t.")
WALL_MS = 1_800_000_000_000


def now_at(ms: float = 0.0) -> Now:
    """``ms`` milliseconds after the start, on both clocks."""
    return Now(int(ms * 1_000_000) + 1_000_000_000, WALL_MS + int(ms))


def a_model(
    slug: str = "fake",
    *,
    task: str = "embed",
    dimension: int = 4,
    max_length: int = 256,
    tokenizer: Tokenizer | None = None,
    prompts: dict[str, str] | None = None,
) -> ServedModel:
    return ServedModel(
        slug=slug,
        revision="fake-1",
        tokenizer=tokenizer or FakeTokenizer(max_length=max_length),
        defaults=ParamDefaults(task=task, dimension=dimension, prompts=prompts or {}),
    )


def a_core(
    *models: ServedModel,
    lane: str = "bulk",
    partitions: int = 12,
    limits: RouterLimits | None = None,
    admission: AdmissionLimits | None = None,
) -> RouterCore:
    served = {model.slug: model for model in models or (a_model(),)}
    outlets = Outlets(
        names=NAMES, lane=lane, results=partitions, replies=partitions, jobs=partitions,
        dead_letters=partitions, work=dict.fromkeys(served, partitions),
    )  # fmt: skip
    reader = Reader(
        admission=Admission(
            lane=lane, models=served, limits=admission or AdmissionLimits(replies=partitions)
        ),
        read_request=read_request,
    )
    if limits is None:
        limits = RouterLimits(window=WindowLimits(wait_ms=0 if lane == "fast" else 100))
    return RouterCore(reader=reader, models=served, outlets=outlets, limits=limits)


def assign(core: RouterCore, partitions: int = 1, *, epoch: int = 1, lane: str = "bulk",
           offset: int = 0) -> list[TopicPartition]:  # fmt: skip
    ats = [TopicPartition(NAMES.requests(lane), number) for number in range(partitions)]
    core.assigned([Assignment(at=at, epoch=epoch, offset=offset) for at in ats], now_at())
    return ats


def a_request(**fields: Any) -> dict[str, Any]:
    return {"custom_id": "c", "model": "fake", "input": "to be or not", **fields}


def a_record(
    content: dict[str, Any] | bytes | None,
    offset: int = 0,
    *,
    partition: int = 0,
    lane: str = "bulk",
    headers: dict[str, bytes] | None = None,
    timestamp_ms: int = WALL_MS,
) -> Record:
    value = orjson.dumps(content) if isinstance(content, dict) else content
    return Record(NAMES.requests(lane), partition, offset, timestamp_ms, None, value, headers or {})


class Emitted:
    """What a plan's records say, decoded."""

    def __init__(self, plan: EmitPlan) -> None:
        kinds = [(record.headers["streamer-kind"], record) for record in plan.records]
        self.plan = plan
        self.work_at = [record.partition for kind, record in kinds if kind == b"work"]
        self.work: list[WorkRecord] = [
            decode_work(record.value) for kind, record in kinds if kind == b"work"
        ]
        self.results: list[ResultRecord] = [
            decode_result(record.value) for kind, record in kinds if kind == b"result"
        ]
        self.replies = [record for kind, record in kinds if kind == b"reply"]
        self.letters = [
            decode_dead_letter(record.value) for kind, record in kinds if kind == b"dead-letter"
        ]
        self.seen = [decode_job(record.value) for kind, record in kinds if kind == b"job"]

    def outcomes(self) -> list[tuple[int, int]]:
        """(partition, offset) of the origin of every outcome, one entry an item."""
        columns = [record.items for record in (*self.work, *self.results)]
        found = [
            (int(partition), int(offset))
            for items in columns
            for partition, offset in zip(items.origin_partition, items.origin_offset, strict=True)
        ]
        found += [(letter.partition, letter.offset) for letter in self.letters]
        for record in self.replies:
            line = orjson.loads(record.value)
            found.append((line["origin"]["partition"], line["origin"]["offset"]))
        return found


def drained(core: RouterCore, at_ms: float = 1_000.0) -> list[Emitted]:
    """Every plan until nothing is left, each one settled."""
    found = []
    while (plan := core.plan(now_at(at_ms), final=True)) is not None:
        found.append(Emitted(plan))
        core.settled(plan, now_at(at_ms))
    return found
