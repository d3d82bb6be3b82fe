"""One lane of work on a model of Kafka: logs with marker gaps, commits, aborts, other owners.

The checker keeps its own books: it knows the log, the committed offsets and the committed records,
and nothing of the core. ``commit`` refuses whatever breaks *cover*, *prefix* or *account*.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

from streamer.batch.limits import BatchLimits
from streamer.event import codes, wire
from streamer.event.lane import Assignment, EmitPlan, Now, OutRecord, Record
from streamer.event.records import OutputRun, ResultRecord, WorkRecord
from streamer.infer.fake_engine import fake_vector
from streamer.infer.launch import Failed, Launch, News, late
from tests.support.work_builders import (
    MODEL,
    NAMES,
    WALL_MS,
    a_core,
    answered,
    at_ms,
    delivered,
    work_at,
)

PARTITIONS = 3
POISON = "poison"  # custom ids that begin so make the device fail


@dataclass
class Log:
    """One partition of the work topic; offsets have gaps where markers lie."""

    records: list[tuple[int, WorkRecord | None]] = field(default_factory=list)
    end: int = 0
    committed: int = 0
    metadata: str = ""

    def between(self, begin: int, end: int) -> list[tuple[int, WorkRecord | None]]:
        return [entry for entry in self.records if begin <= entry[0] < end]


class World:
    """The core, the log, a device and the committed history."""

    def __init__(self, **limits: object) -> None:
        self.ms = 0
        # Small batches, so that the items of a record run apart and finish out of order.
        self.core = a_core(
            batch=BatchLimits(items_max=3, tokens_max=64), record_items=4,
            **{"buffer_items": 24, "buffer_ms": 1e9, **limits},
        )  # fmt: skip
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.epoch = 0
        self.position: dict[int, int] = {}
        self.launchable: set[int] = set()  # partitions whose attempts are committed
        self.flights: list[Launch] = []
        self.plan: EmitPlan | None = None
        self.rows: defaultdict[str, list[tuple[int, bytes]]] = defaultdict(list)
        self.letters: Counter[tuple[int, int]] = Counter()
        self.culprits: Counter[str] = Counter()

    @property
    def now(self) -> Now:
        return at_ms(self.ms)

    # --- the outside ---

    def append(self, partition: int, work: WorkRecord | None, *, marker: bool = False) -> None:
        log = self.logs[partition]
        log.records.append((log.end, work))
        log.end += 2 if marker else 1

    def deliver(self, count: int) -> None:
        room = min(count, self.core.room(self.now))
        for partition in sorted(self.position):
            log, begin = self.logs[partition], self.position[partition]
            found = log.between(begin, log.end)[:room]
            if found:
                records = [_record(partition, offset, work) for offset, work in found]
                self.core.deliver(records, self.now)
                self.position[partition] = found[-1][0] + 1
                room -= len(found)
        assert self.core.held_items <= 24, "bound"

    def assign(self, partitions: list[int]) -> None:
        fresh = [p for p in partitions if p not in self.position]
        if self.plan is not None or not fresh:
            return
        self.epoch += 1
        assignments = []
        for p in fresh:
            self.position[p] = self.logs[p].committed
            log = self.logs[p]
            assignments.append(Assignment(work_at(p), self.epoch, log.committed, log.metadata))
        self.core.assigned(assignments, self.now)

    def revoke(self, partitions: list[int]) -> None:
        gone = [p for p in partitions if p in self.position]
        self.core.revoked([work_at(p) for p in gone], self.now)
        for p in gone:
            del self.position[p]
            self.launchable.discard(p)

    def other_owner_runs(self, partition: int) -> None:
        """Another worker finishes the next record of a partition that is not ours."""
        if partition in self.position:
            return
        log = self.logs[partition]
        for offset, work in log.between(log.committed, log.end)[:1]:
            if work is None:
                self.letters[(partition, offset)] += 1
            else:
                for row, name in enumerate(work.items.custom_id):
                    self.rows[name].append((codes.SUCCEEDED, _expected(work, row)))
            log.committed, log.metadata = offset + 1, ""

    # --- the device ---

    def launch(self, *, drain: bool = False) -> bool:
        launch = self.core.next_batch(self.now, model=MODEL, drain=drain)
        if launch is None:
            return False
        for member in launch.members:
            assert member.held.at.partition in self.launchable, "launched before the attempts"
        assert not late(launch.deadline_at_ms, self.now.wall_ms).any(), "a late item was launched"
        self.flights.append(launch)
        return True

    def land(self, which: int, *, halves: bool = False) -> None:
        launch = self.flights.pop(which % len(self.flights))
        news = _with_poison(answered(launch, wall_ms=self.now.wall_ms), launch)
        for piece in _halves(news) if halves and len(launch) > 1 else [news]:
            self.core.batch_done(piece, self.now)

    # --- transactions ---

    def make_plan(self, *, final: bool = False) -> bool:
        if self.plan is None:
            self.plan = self.core.plan(self.now, final=final)
            if self.plan is not None:
                self._check_plan(self.plan)
        return self.plan is not None

    def commit(self) -> None:
        plan, self.plan = self.plan, None
        assert plan is not None
        self._apply(plan)
        self.core.settled(plan, self.now)

    def fail(self, *, committed: bool) -> None:
        """Aborted, or unknown and in truth committed: everything is read again."""
        plan, self.plan = self.plan, None
        assert plan is not None
        if committed:
            self._apply(plan)
        owned = list(self.position)
        self.revoke(owned)
        self.assign(owned)

    def _apply(self, plan: EmitPlan) -> None:
        for at, mark in plan.offsets.items():
            log = self.logs[at.partition]
            assert mark.offset >= log.committed, "an offset went back"
            log.committed, log.metadata = mark.offset, mark.metadata
            self.launchable.add(at.partition)
        for record in plan.records:
            self._keep(record)

    def _keep(self, record: OutRecord) -> None:
        if record.topic == NAMES.dead_letters("bulk"):
            letter = wire.decode_dead_letter(record.value)
            if letter.value is not None:
                self.letters[(letter.partition, letter.offset)] += 1
            else:
                self.culprits[letter.custom_id] += 1
            return
        for name, status, data in rows_of(record):
            self.rows[name].append((status, data))

    def _check_plan(self, plan: EmitPlan) -> None:
        """*cover* and *prefix*: exactly the items of the log below the offsets, no other."""
        assert plan.offsets
        assert len({record.at for record in plan.records}) <= 16
        expected: Counter[str] = Counter()
        bad = 0
        for at, mark in plan.offsets.items():
            assert at.partition in self.position, "an offset of a partition that is not ours"
            log = self.logs[at.partition]
            for _, work in log.between(log.committed, mark.offset):
                bad += work is None
                expected.update([] if work is None else work.items.custom_id)
        found: Counter[str] = Counter()
        letters = 0
        for record in plan.records:
            if record.topic == NAMES.dead_letters("bulk"):
                letters += wire.decode_dead_letter(record.value).value is not None
            else:
                found.update(name for name, _, _ in rows_of(record))
        assert found == expected, "records and offsets do not match"
        assert letters == bad

    # --- the end ---

    def heal(self) -> None:
        """Faults end: everything drains within a bounded number of steps (*live*)."""
        if self.plan is not None:
            self.commit()
        self.assign(list(range(PARTITIONS)))
        for _ in range(400):
            self.ms += 10
            while self.make_plan(final=True):
                self.commit()
            self.deliver(8)
            while self.launch(drain=True):
                pass
            while self.flights:
                self.land(0)
            if all(not log.between(log.committed, log.end) for log in self.logs):
                return
        raise AssertionError("it does not drain")

    def check_history(self) -> None:
        """*account*, *owner*, *isolate*: each item ended once, with the right answer."""
        for p, log in enumerate(self.logs):
            for offset, work in log.records:
                if work is None:
                    assert self.letters[(p, offset)] == 1
                    continue
                for row, name in enumerate(work.items.custom_id):
                    ended = self.rows[name]
                    assert len(ended) == 1, f"{name} ended {len(ended)} times"
                    _check_row(work, row, *ended[0], self.culprits[name])
        total = sum(len(w.items) for log in self.logs for _, w in log.records if w is not None)
        assert sum(len(ended) for ended in self.rows.values()) == total


def rows_of(record: OutRecord) -> list[tuple[str, int, bytes]]:
    """(custom id, status, answer bytes) of every row of a result or reply in Avro form."""
    kind = record.headers["streamer-kind"]
    decoded: ResultRecord | OutputRun = (
        wire.decode_result(record.value) if kind == b"result" else wire.decode_output(record.value)  # type: ignore[assignment]
    )
    found, at = [], 0
    for row, name in enumerate(decoded.items.custom_id):
        data = b""
        if decoded.status[row] == codes.SUCCEEDED:
            assert decoded.outputs is not None
            size = decoded.outputs.row_bytes * int(decoded.items.rows[row])
            data = decoded.outputs.data[at : at + size]
            at += size
        else:
            assert any(error.row == row for error in decoded.errors)
        found.append((name, int(decoded.status[row]), data))
    return found


def _record(partition: int, offset: int, work: WorkRecord | None) -> Record:
    return delivered(b"\x00junk" if work is None else work, offset, partition)


def _expected(work: WorkRecord, row: int) -> bytes:
    """The answer computed from the record alone, text by text."""
    first = int(work.items.rows[:row].sum())
    begin = int(work.lengths[:first].sum())
    data = b""
    for text in range(first, first + int(work.items.rows[row])):
        end = begin + int(work.lengths[text])
        data += fake_vector(work.token_ids[begin:end], 4).astype("<f4").tobytes()
        begin = end
    return data


def _check_row(work: WorkRecord, row: int, status: int, data: bytes, culprits: int) -> None:
    name, deadline = work.items.custom_id[row], int(work.deadline_at_ms[row])
    if work.tokenizer_hash != "fake":
        assert status in (codes.ERRORED, codes.SUCCEEDED)  # the other owner may hold that model
    elif status == codes.EXPIRED:
        assert deadline > 0
    elif name.startswith(POISON) and status == codes.ERRORED:
        assert culprits == 1
    else:
        assert status == codes.SUCCEEDED
        assert data == _expected(work, row), "the answer of another item"


def _with_poison(news: News, launch: Launch) -> News:
    """The device fails on poison items and answers their neighbours."""
    names = [m.held.work.items.custom_id[i] for m in launch.members for i in m.items]
    bad = [p for p in news.done.tolist() if names[p].startswith(POISON)]
    if not bad:
        return news
    kept = ~np.isin(news.done, bad)
    of_text = np.repeat(kept, launch.columns.texts_per_item[news.done])
    failed = tuple(Failed(item=p, code="poison", message="it kills", culprit=True) for p in bad)
    return News(
        launch=launch, done=news.done[kept], rows=news.rows[of_text], failed=failed,
        expired=news.expired,
    )  # fmt: skip


def _halves(news: News) -> list[News]:
    """The same news in two pieces."""
    cut = len(news.done) // 2
    texts = int(news.launch.columns.texts_per_item[news.done[:cut]].sum())
    return [
        News(launch=news.launch, done=news.done[:cut], rows=news.rows[:texts], final=False),
        News(
            launch=news.launch, done=news.done[cut:], rows=news.rows[texts:], failed=news.failed,
            expired=news.expired,
        ),
    ]  # fmt: skip


__all__ = ["PARTITIONS", "POISON", "WALL_MS", "World", "rows_of"]
