"""The SDK's front door: jobs with ordered results, and single requests over the fast lane."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamer.client.descriptor import check_closed, check_same, descriptor, total_entry
from streamer.client.errors import InputRefused, RequestFailed
from streamer.client.fast_lane import FastLane
from streamer.client.file_source import FileSource
from streamer.client.items import Item, lines_of, new_job_id, with_defaults
from streamer.client.job import Job
from streamer.client.jsonl import Line
from streamer.client.kafka_jobs import IndexSet, JobBoard, JobName
from streamer.client.kafka_read import Properties, TopicReader
from streamer.client.kafka_submit import JobWriter, Sending, now_ms
from streamer.client.result_item import ResultItem
from streamer.event.codes import LANES
from streamer.event.records import JobEntry
from streamer.event.request_fields import MAX_CUSTOM_ID
from streamer.event.topics import TopicNames
from streamer.settings import Settings, client_properties, load_settings

_TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_WAVE_REQUESTS = 512


class Client:
    """A connection to one streamer installation; threads may share it.

    Without arguments it finds the installation as every command does: environment, then
    ``streamer.yaml``, then the nearest running stack, then localhost.

    Args:
        settings: the whole tree of settings, if the caller has one.
        bootstrap: bootstrap servers, over the settings.
        prefix: topic prefix, over the settings.
        properties: further client properties (TLS, SASL), over the settings.
        tenant: whose jobs and requests.

    Example:
        >>> with Client() as client:
        ...     vectors = client.embed(["a text", "another"], model="minilm")
        ...     job = client.submit("requests.jsonl", model="minilm")
        ...     for item in job.results():
        ...         print(item.index, item.status)
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        bootstrap: str | None = None,
        prefix: str | None = None,
        properties: Properties | None = None,
        tenant: str = "default",
    ) -> None:
        if not _TENANT.match(tenant):
            raise InputRefused("tenant must be 1 to 64 of A-Z a-z 0-9 . _ -")
        flags = {"bootstrap": bootstrap, "prefix": prefix}
        given = {key: value for key, value in flags.items() if value is not None}
        tree = settings if settings is not None else load_settings(kafka=given)
        kafka = tree.kafka.model_copy(update=given)
        self.properties: Properties = {**client_properties(kafka), **(properties or {})}
        self.names = TopicNames(kafka.prefix)
        self.tenant = tenant
        self.reader = TopicReader(self.properties)
        self.board = JobBoard(self.reader, self.names)
        self._lanes: dict[str, FastLane] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all connections; answers still awaited end with an error."""
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()
        self.reader.close()

    def submit(
        self,
        source: str | Path | FileSource | Iterable[Item],
        *,
        model: str = "",
        lane: str = "bulk",
        job_id: str | None = None,
        deadline_ms: int | None = None,
        total: int | None = None,
        params: Mapping[str, object] | None = None,
        form: str = "avro",
        background: bool = False,
    ) -> Job:
        """Send a job; returns when all its items are accepted.

        The same call with the same ``job_id`` goes on where an earlier one stopped: items that
        were accepted are not sent again, and a finished job is only looked up.

        Args:
            source: path of a JSON Lines file, or an iterable of texts and of mappings with the
                fields of a request (``input``, ``custom_id``, ``params``, ``model``, ...). An
                iterable may be endless in memory terms: it is read once, while it is sent.
            model: slug for items that name no model themselves.
            lane: ``bulk`` or ``fast``.
            job_id: 1 to 64 of ``A-Za-z0-9._-``; None makes a new one.
            deadline_ms: the job ends after this time whatever is missing; None = the service's
                default.
            total: number of items, if known ahead for an iterable.
            params: for items that do not set the same parameter themselves.
            form: ``avro`` (answers as columns, fast) or ``json`` (one message an item).
            background: return at once and send in a thread; ``job.sending`` tells how it goes.

        Raises:
            InputRefused: the file or an argument is wrong; nothing was sent.
            JobConflict: the job id belongs to other input.
        """
        name = JobName(lane=lane, job_id=job_id or new_job_id(now_ms()), tenant=self.tenant)
        lines, digest = lines_of(source), ""
        if isinstance(lines, FileSource):
            facts = lines.scan()
            total, digest = facts.total, f"blake2b:{facts.digest}"
        entry = descriptor(
            name, model=model, form=form, source=digest, total=total, deadline_ms=deadline_ms,
            at_ms=now_ms(),
        )  # fmt: skip
        items = lines.items() if isinstance(lines, FileSource) else lines
        return self._submit(name, entry, with_defaults(items, params), background)

    def job(self, job_id: str, lane: str = "bulk") -> Job:
        """A job submitted earlier, from here or elsewhere; nothing is read before it is asked."""
        name = JobName(lane=lane, job_id=job_id, tenant=self.tenant)
        return Job(self, name, self.board.known(name))

    def request(
        self,
        fields: Item,
        *,
        model: str,
        lane: str = "fast",
        custom_id: str = "",
        timeout_ms: int | None = None,
    ) -> Future[ResultItem]:
        """Send one request; the future ends with its answer, an errored one included.

        Args:
            fields: a text, or a mapping with ``input`` and if wanted ``task`` and ``params``.
            model: slug of the model.
            lane: ``fast`` or ``bulk``.
            custom_id: comes back in the answer.
            timeout_ms: the service answers ``expired`` when it cannot make this.
        """
        if len(custom_id) > MAX_CUSTOM_ID:
            raise InputRefused(f"custom_id has more than {MAX_CUSTOM_ID} characters")
        wanted = {"input": fields} if isinstance(fields, str) else fields
        return self._lane(lane).send(
            wanted, model=model, custom_id=custom_id, timeout_ms=timeout_ms
        )

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        model: str,
        lane: str = "fast",
        timeout_s: float = 30.0,
        **params: object,
    ) -> NDArray[Any]:
        """Vectors of texts through the fast lane.

        Args:
            texts: one text, or several.
            model: slug of an embedding model.
            lane: ``fast`` or ``bulk``.
            timeout_s: for all of them together.
            params: ``truncate=True``, ``normalize=False``, ``dimensions=128``, ...

        Returns:
            float32 [dimension] for one text, [texts, dimension] for several.

        Raises:
            RequestFailed: the first text, by position, that was answered with an error.
            WaitTimeout: some answers did not come in time.
        """
        one = isinstance(texts, str)
        wanted = [texts] if isinstance(texts, str) else list(texts)
        if not wanted:
            return np.empty((0, 0), dtype=np.float32)
        until = time.monotonic() + timeout_s
        rail = self._lane(lane)
        vectors: list[NDArray[Any]] = []
        for first in range(0, len(wanted), _WAVE_REQUESTS):
            wave = wanted[first : first + _WAVE_REQUESTS]
            futures = [
                rail.send(
                    {"input": text, "task": "embed", "params": params},
                    model=model,
                    timeout_ms=max(1, int((until - time.monotonic()) * 1000)),
                )
                for text in wave
            ]
            answers = rail.wait(futures, max(0.0, until - time.monotonic()))
            vectors += [_vector(answer, first + at) for at, answer in enumerate(answers)]
        return vectors[0] if one else np.stack(vectors)

    def writer(self, name: JobName, form: str = "avro") -> JobWriter:
        """A writer of the job's records; the caller closes it."""
        return JobWriter(
            self.properties,
            self.names,
            name,
            requests_partitions=self.reader.partition_count(self.names.requests(name.lane)),
            jobs_partition=self.board.place(self.names.jobs(name.lane), name)[1],
            form=form,
        )

    def _lane(self, lane: str) -> FastLane:
        if lane not in LANES:
            raise InputRefused(f"lane must be one of {', '.join(LANES)}")
        if lane in self._lanes and self._lanes[lane].failed:
            self._lanes.pop(lane).close()
        if lane not in self._lanes:
            self._lanes[lane] = FastLane(
                self.properties, self.reader, self.names, lane=lane, tenant=self.tenant
            )
        return self._lanes[lane]

    def _submit(
        self, name: JobName, entry: JobEntry, lines: Iterator[Line], background: bool
    ) -> Job:
        known = self.board.known(name)
        accepted = IndexSet()
        below = 0
        if known.descriptor is not None:
            check_same(known.descriptor, entry)
        earlier = Job(self, name, known)
        state = earlier.state()
        if state is not None and state.closed:
            check_closed(state, entry)
            return earlier
        if known.descriptor is not None:
            below = state.next_index if state is not None else 0
            accepted = self.board.accepted(name, known.since_ms)
        writer = self.writer(name, entry.form)
        if known.descriptor is None:
            writer.say(entry)
            known = self.board.known(name)
        sending = Sending(
            writer,
            lines,
            model=entry.model,
            skip=lambda index: index < below or index in accepted,
            finish=lambda count: total_entry(entry, count, now_ms()),
        )
        job = Job(self, name, known, sending)
        if background:
            sending.start()
        else:
            sending.run()
        return job


def _vector(answer: ResultItem, position: int) -> NDArray[Any]:
    if answer.error is not None or answer.output is None:
        error = answer.error
        raise RequestFailed(
            error.code if error else answer.status,
            error.message if error else "no answer",
            retryable=bool(error and error.retryable),
            custom_id=answer.custom_id,
            position=position,
        )
    return answer.output
