"""The decisions of work in one lane: what is run, and what leaves when.

    deliver ─► check ─► batcher ─► next_batch ─► device ─► batch_done ─► outbox ─► plan ─► settled

A record is held from delivery until all its items have ended; then what it produces waits in the
outbox until the contiguous finished prefix of its partition reaches it (*cover*, *prefix*). News of
a batch that belong to an assignment which is over are dropped (*epoch*). Before the first launch of
a partition the attempts at its committed offset are written by a plan, so that they survive the
death of the process; a partition that was begun before without progress is suspect and runs in
strict order and small batches until its offset moves. Pure: time is an argument.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from streamer.batch.limits import Budget
from streamer.emit.offset_metadata import OffsetMetadata, at_assignment
from streamer.emit.outbox import Outbox, finished
from streamer.emit.results import dead_letter_record, output_records
from streamer.errors import Undecodable
from streamer.event import codes
from streamer.event.lane import Assignment, EmitPlan, Now, Record, TopicPartition
from streamer.event.topics import TopicNames
from streamer.infer.launch import Launch, News
from streamer.process.held_record import Held, Owned, news_by_member
from streamer.process.model_stream import ModelStream
from streamer.process.work_intake import (
    EXPIRED_TEXT,
    end_hopeless,
    errored_instead,
    hold_record,
    undecodable,
    undecodable_letter,
    without_late,
)
from streamer.process.work_plan import WorkToken, work_plan
from streamer.process.worker_limits import ServedModel, WorkerLimits


class WorkerCore:
    """See the module; one object a lane, called from one thread.

    Attributes:
        undecodable: work records that became dead letters.
    """

    def __init__(
        self, *, limits: WorkerLimits, names: TopicNames, models: Sequence[ServedModel]
    ) -> None:
        self._limits = limits
        self._names = names
        self._outbox = Outbox(limits.outbox)
        self._owned: dict[TopicPartition, Owned] = {}
        self._streams = {
            names.work(model.spec.model, limits.lane): ModelStream(
                model.spec, model.batch, lane=limits.lane, name=limits.worker
            )
            for model in models
        }
        self._by_model = {stream.spec.model: stream for stream in self._streams.values()}
        self._unfinished = 0
        self._record_ms = 0.0
        self._planned = False
        self.undecodable = 0

    # --- the lane's side ---

    def assigned(self, assignments: Sequence[Assignment], now: Now) -> None:
        """See :class:`streamer.event.lane.LaneCore`."""
        self.revoked([one.at for one in assignments], now)
        for one in assignments:
            self._outbox.assign(one.at, epoch=one.epoch, start=one.offset)
            self._owned[one.at] = Owned(at_assignment(one.offset, one.metadata))

    def revoked(self, partitions: Collection[TopicPartition], now: Now) -> None:
        """See :class:`streamer.event.lane.LaneCore`."""
        self._planned = False
        for at in partitions:
            self._outbox.drop(at)
            owned = self._owned.pop(at, None)
            if owned is not None:
                self._unfinished -= owned.items
        for stream in self._streams.values():
            stream.drop(partitions)

    def deliver(self, records: Sequence[Record], now: Now) -> None:
        """See :class:`streamer.event.lane.LaneCore`."""
        before = self.waiting_ms
        for record in records:
            self._take_in(record, now)
        if records:
            each = max(0.0, self.waiting_ms - before) / len(records)
            self._record_ms += 0.1 * (each - self._record_ms)

    def room(self, now: Now) -> int:
        """See :class:`streamer.event.lane.LaneCore`."""
        limits = self._limits
        free_ms = limits.buffer_ms - self.waiting_ms
        if self._outbox.size_bytes >= limits.outbox_bytes or free_ms <= 0:
            return 0
        room = (limits.buffer_items - self.held_items) // limits.record_items
        if self.held_items == 0:
            room = max(1, room)
        if self._record_ms > 0:
            room = min(room, int(free_ms / self._record_ms) + 1)
        return max(0, room)

    def plan(self, now: Now, *, final: bool = False) -> EmitPlan | None:
        """See :class:`streamer.event.lane.LaneCore`."""
        fresh = [at for at, owned in self._owned.items() if not owned.sealed]
        cut = self._outbox.cut(fresh) if self._is_due(now, final=final) else None
        if cut is None and not fresh:
            return None
        self._planned = True
        attempts = {at: self._owned[at].metadata for at in fresh}
        return work_plan(cut, attempts, {at: self._epoch(at) for at in fresh})

    def settled(self, plan: EmitPlan, now: Now) -> None:
        """See :class:`streamer.event.lane.LaneCore`."""
        self._planned = False
        token = plan.token
        assert isinstance(token, WorkToken)
        for at, epoch in token.seals.items():
            if self._outbox.epoch(at) == epoch:
                self._seal(at, now)
        if token.cut is None:
            return
        self._outbox.settled(token.cut)
        for at, epoch in token.cut.epochs.items():
            if self._outbox.epoch(at) == epoch and self._owned[at].metadata.attempts:
                self._trust(at, now)

    def wake_at(self, now: Now) -> int | None:
        """See :class:`streamer.event.lane.LaneCore`."""
        times = [stream.wake_at(now) for stream in self._streams.values()]
        if not self._planned:
            if any(not owned.sealed for owned in self._owned.values()):
                return now.mono_ns
            since = self._outbox.ready_since()
            times.append(None if since is None else since + self._limits.commit_ns)
        return min((at for at in times if at is not None), default=None)

    # --- the device's side ---

    def next_batch(
        self, now: Now, *, model: str, slot_free: bool = True, budget: Budget | None = None,
        drain: bool = False,
    ) -> Launch | None:  # fmt: skip
        """The next batch of a model, if one should be laid out now.

        Args:
            now: late items end here, before they cost device time.
            model: slug.
            slot_free: it would start at once; False = it would be prepared ahead.
            budget: tighter bounds for this batch, e.g. while fast traffic is present.
            drain: wait for no company.
        """
        stream = self._by_model[model]
        while True:
            taken = stream.take(now, slot_free=slot_free, budget=budget, drain=drain)
            if taken is None:
                return None
            alive = [kept for member in taken.members if (kept := without_late(member, now))]
            for member in taken.members:
                self._finish_if_done(member.held, now)
            if alive:
                return stream.launch(taken, alive)

    def batch_done(self, news: News, now: Now) -> None:
        """Take what became of some items of a launch; those of an old epoch are dropped."""
        stream = self._by_model[news.launch.model]
        for told in news_by_member(news, stream.landed(news)):
            held = told.held
            if self._outbox.epoch(held.at) != held.epoch:
                continue
            if len(told.done):
                held.answer(told.done, told.rows)
                held.answers.kind, held.answers.labels = stream.spec.output, stream.spec.labels
            for row, code, message, culprit in told.failed:
                held.end_without_answer([row], code, message)
                if culprit:
                    held.answers.culprits.add(row)
            held.end_without_answer(told.expired, "expired", EXPIRED_TEXT)
            self._finish_if_done(held, now)

    @property
    def unfinished_items(self) -> int:
        """Items of records that have not finished."""
        return self._unfinished

    @property
    def held_items(self) -> int:
        """Items delivered and not committed."""
        return self._unfinished + self._outbox.items

    @property
    def waiting_ms(self) -> float:
        """Predicted device time that waits or runs."""
        return sum(stream.waiting_ms for stream in self._streams.values())

    def check(self) -> None:
        """Assert what must hold between any two calls."""
        self._outbox.check()
        for stream in self._streams.values():
            stream.check()
        assert self._unfinished == sum(owned.items for owned in self._owned.values())
        for at, owned in self._owned.items():
            for held in owned.held.values():
                assert held.left > 0, "a finished record is still held"
                assert held.epoch == self._outbox.epoch(at), "a record of an old epoch is held"

    # --- one record ---

    def _take_in(self, record: Record, now: Now) -> None:
        at = TopicPartition(record.topic, record.partition)
        owned, stream = self._owned[at], self._streams[record.topic]
        self._outbox.track(at, record.offset)
        try:
            held = hold_record(
                record, stream.spec, lane=self._limits.lane, epoch=self._epoch(at),
                attempts=owned.metadata.attempts, worker=self._limits.worker,
            )  # fmt: skip
            end_hopeless(held, stream.spec, now)
        except Exception as error:
            # Whatever a record holds, it must not be delivered again for ever.
            self._bury(record, undecodable(error), now)
            return
        owned.held[record.offset] = held
        self._unfinished += len(held.work.items)
        self._finish_if_done(held, now)
        if held.left and owned.sealed:
            stream.add(held, now)

    def _bury(self, record: Record, error: Undecodable, now: Now) -> None:
        """Bytes that are no work record: dead letter, and the offset moves on."""
        limits, at = self._limits, TopicPartition(record.topic, record.partition)
        letter = undecodable_letter(record, error)
        out = dead_letter_record(letter, limits.lane, self._names, limits.emit)
        done = finished([out], now_ns=now.mono_ns)
        self._outbox.put(at, epoch=self._epoch(at), offset=record.offset, done=done)
        self.undecodable += 1

    def _finish_if_done(self, held: Held, now: Now) -> None:
        """Hand a record whose items have all ended to the outbox, once."""
        owned = self._owned[held.at]
        if held.left or owned.held.get(held.offset) is not held:
            return
        del owned.held[held.offset]
        self._unfinished -= len(held.work.items)
        try:
            records = output_records(held.answers, self._names, self._limits.emit)
        except Exception as error:
            held.answers = errored_instead(held.answers, error)
            records = output_records(held.answers, self._names, self._limits.emit)
        counts = np.bincount(held.answers.status, minlength=len(codes.STATUSES)).tolist()
        done = finished(records, counts=tuple(counts), now_ns=now.mono_ns)
        kept = self._outbox.put(held.at, epoch=held.epoch, offset=held.offset, done=done)
        assert kept, "a record finished under an epoch that is over"

    # --- attempts ---

    def _seal(self, at: TopicPartition, now: Now) -> None:
        """The attempts are committed: launches may begin."""
        owned = self._owned[at]
        owned.sealed = True
        for held in owned.held.values():
            self._streams[at.topic].add(held, now)

    def _trust(self, at: TopicPartition, now: Now) -> None:
        """The offset moved past the one that was begun in vain."""
        owned = self._owned[at]
        owned.metadata = OffsetMetadata(attempts=0, offset=owned.metadata.offset)
        self._streams[at.topic].trust(at, now)

    def _is_due(self, now: Now, *, final: bool) -> bool:
        since = self._outbox.ready_since()
        if since is None:
            return False
        limits = self._limits
        return (
            final
            or now.mono_ns >= since + limits.commit_ns
            or self._outbox.size_bytes >= limits.outbox.bytes_max
            or 2 * self._outbox.items >= limits.buffer_items
        )

    def _epoch(self, at: TopicPartition) -> int:
        epoch = self._outbox.epoch(at)
        assert epoch is not None, "a partition that is not ours"
        return epoch
