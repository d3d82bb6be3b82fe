"""The seam between deciding what runs together and running it.

Only flat arrays cross it, so a thread, a child process, a tensor-parallel group and a remote server
are one kind of thing to the worker. Completion is told per item: a ticket may be answered in pieces
(``final`` is false until the last). What an item costs is a vector; texts know tokens only.

    prepare(BatchColumns) -> HostBatch        host memory, no device; may run while another runs
    submit(HostBatch, priority) -> Ticket     or FULL: nothing was taken, try after the next poll
    poll() -> [BatchOutcome]                  items done, items failed, or the whole ticket failed

Failure classes (``EngineFailure.kind``), named by what the worker does about them:
``item``       this input cannot be answered: errored result, neighbours unharmed.
``batch``      some input of the batch, unknown which: run its halves, isolate the culprit.
``transient``  nothing is wrong with the inputs: run the same batch again.
``sticky``     the device or runtime is broken for good: the process restarts.
``lost``       the engine is gone and its tickets with it: they run again elsewhere.

The task decides the rows: ``embed`` float32 (dimension,) a text, ``classify`` (labels,) a text,
``score`` () a text (a pair). Rows come out as the params ask (``normalize``, ``raw_scores``);
``dimensions`` and ``encoding_format`` are applied after the engine, on its float32 rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.batch.cost import CostModel
from streamer.errors import EngineFailure

FailureKind = Literal["item", "batch", "transient", "sticky", "lost"]

# Priorities of ``submit``: a lower number overtakes everything that waits, never what runs.
PRIORITY_FAST: Final = 0
PRIORITY_BULK: Final = 1

OUTPUT_OF_TASK: Final[Mapping[str, str]] = {
    "embed": "embedding",
    "classify": "labels",
    "score": "scores",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """What an engine is; complete after ``load`` (``cost`` after ``warm_up``).

    Attributes:
        task: ``embed``, ``classify`` or ``score``; a batch of another task is refused.
        output: kind of the rows: ``embedding``, ``labels`` or ``scores``.
        row_shape: shape of one text's row: (384,), (labels,) or ().
        labels: names of the columns for classification, else None.
        max_length: longest text in tokens.
        vocabulary: token ids are below it; 0 = unknown.
        packed: whether a batch costs the sum of its tokens (else longest × texts).
        dtype: of the weights: ``fp32 bf16 fp16``; rows are float32 in any case.
        instances: batches that run at the same time.
        cost: of one batch on one instance.
    """

    model: str
    revision: str
    tokenizer_hash: str
    task: str
    output: str
    row_shape: tuple[int, ...]
    labels: tuple[str, ...] | None = None
    max_length: int = 512
    vocabulary: int = 0
    packed: bool = False
    dtype: str = "fp32"
    device: str = "cpu"
    instances: int = 1
    cost: CostModel = field(default_factory=CostModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchColumns:
    """A micro-batch as flat arrays: all items share revision, task and params.

    Attributes:
        params: canonical JSON of the effective parameters; ``params_key`` is its hash.
        lengths: int32 [texts], tokens of each text, all >= 1.
        token_ids: uint16 or uint32 [sum of lengths], all texts one after another.
        pair_at: int32 [texts], token position where the second segment begins, 0 = single
            text; None when no text is a pair.
        texts_per_item: int32 [items], sums up to texts.
    """

    task: str
    params_key: str
    params: str
    lengths: NDArray[np.int32]
    token_ids: NDArray[np.uint16] | NDArray[np.uint32]
    pair_at: NDArray[np.int32] | None
    texts_per_item: NDArray[np.int32]

    @property
    def items(self) -> int:
        """Number of items."""
        return len(self.texts_per_item)

    @property
    def texts(self) -> int:
        """Number of texts (rows of the answer)."""
        return len(self.lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBatch:
    """A batch laid out for the device, still in host memory; made by ``prepare`` alone.

    Attributes:
        columns: what it was made from (so that halves can be prepared after a failure).
        arrays: the engine's own layout; nobody else looks inside.
        tokens: what the cost counts: padded tokens on padded engines.
        squares: Σ length² over padded lengths, for the cost.
    """

    columns: BatchColumns
    arrays: tuple[Mapping[str, NDArray[np.generic]], ...]
    tokens: int
    squares: float


class Ticket(NamedTuple):
    """Names one submitted batch; numbers are never reused in a process."""

    number: int


class Full(NamedTuple):
    """Nothing was taken: every place is in use."""


FULL: Final = Full()


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFailure:
    """Item ``item`` (position in the batch) has no answer; ``code`` is one of event.codes."""

    item: int
    kind: FailureKind
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """News of one ticket. Every item of a ticket is told exactly once as done or failed.

    Attributes:
        done: int32 [k], positions of the items answered here, ascending.
        rows: float32 [texts of those items, *row_shape], in the order of ``done``, all finite.
        failed: items that have no answer (kind ``item``).
        failure: the whole rest of the ticket failed by this; then ``done`` and ``failed`` hold
            only what was answered before it in this outcome.
        final: nothing more follows for this ticket.
        device_ms: time the batch ran; 0 when unknown.
        tokens, squares: of the batch, for fitting the cost.
        instance: which instance ran it; -1 = none.
    """

    ticket: Ticket
    done: NDArray[np.int32]
    rows: NDArray[np.float32]
    failed: tuple[ItemFailure, ...] = ()
    failure: EngineFailure | None = None
    final: bool = True
    device_ms: float = 0.0
    tokens: int = 0
    squares: float = 0.0
    instance: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Places of an engine.

    Attributes:
        running: batches on instances now.
        waiting: submitted and not running yet.
        free: how many ``submit`` calls would be taken now.
        idle: instances without work: a batch submitted now starts at once while > 0.
    """

    running: int
    waiting: int
    free: int
    idle: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the engine can still answer.

    Attributes:
        ok: false after a ``sticky`` or ``lost`` failure.
        reason: "" while ok.
    """

    ok: bool
    reason: str = ""


class Engine(Protocol):
    """A loaded model that answers batches.

    One thread calls ``submit``, ``poll`` and ``cancel``; ``prepare`` may be called from any.
    """

    @property
    def spec(self) -> EngineSpec:
        """What it is; complete after ``load``."""
        ...

    def load(self) -> None:
        """Bring the weights to the device; slow.

        Raises:
            ConfigurationError: the model files are missing, unsafe or not of this task.
        """
        ...

    def warm_up(self) -> None:
        """Run once through everything that the first batch would otherwise pay for."""
        ...

    def prepare(self, columns: BatchColumns) -> HostBatch:
        """Lay a batch out in host memory.

        Raises:
            EngineFailure: kind ``item`` or ``batch``: the columns do not fit this model.
        """
        ...

    def submit(self, batch: HostBatch, priority: int = PRIORITY_BULK) -> Ticket | Full:
        """Take a batch; never blocks."""
        ...

    def poll(self, wait_s: float = 0.0) -> list[BatchOutcome]:
        """What happened since the last call; waits at most ``wait_s`` for the first news."""
        ...

    def cancel(self, ticket: Ticket) -> bool:
        """Give up a ticket; true when it had not begun and nothing will be told about it."""
        ...

    def capacity(self) -> Capacity:
        """Places in use and free."""
        ...

    def health(self) -> Health:
        """Whether it can still answer."""
        ...

    def unload(self) -> None:
        """Free the device; ``load`` brings it back."""
        ...

    def close(self) -> None:
        """End all threads and children; running batches are not waited for beyond seconds."""
        ...
