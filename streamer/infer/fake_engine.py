"""A model without weights: deterministic rows, a stated cost, faults on request.

A row depends on its token ids alone, never on its neighbours: byte-identical in any batch, so that
any mix-up on the way shows. Pure: it waits through a function that it is given.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamer.batch.cost import CostModel
from streamer.errors import EngineFailure
from streamer.infer.collate import starts
from streamer.infer.engine import OUTPUT_OF_TASK, BatchColumns, EngineSpec, HostBatch

FAULTS = ("item", "batch", "transient", "sticky", "lost", "nan", "short")


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeCost:
    """What the fake claims to cost.

    Attributes:
        fixed_ms: of a batch.
        token_us: of a padded token.
    """

    fixed_ms: float = 0.0
    token_us: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeFaults:
    """Which token ids make the fake fail.

    Attributes:
        marks: token id -> one of ``FAULTS``: a failure of that class for the batch that holds the
            token (``item`` and ``nan`` answer NaN for that text alone, ``short`` answers one row
            too few).
        transient_times: how often a ``transient`` mark fails before the batch succeeds.
    """

    marks: Mapping[int, str] = field(default_factory=dict)
    transient_times: int = 1


def fake_vectors(
    token_ids: NDArray[np.generic], lengths: NDArray[np.int32], dimension: int
) -> NDArray[np.float32]:
    """Rows of several texts: float32 [texts, dimension], each value in [-1, 1).

    BLAKE2b-64 of a text's ids (as uint32 little endian) seeds a splitmix64 stream whose top 24
    bits become the values: exact in float32 and the same on every machine.

    Args:
        token_ids: [sum of lengths], any integer type.
        lengths: int32 [texts].
        dimension: values a row.
    """
    edges = (starts(lengths) * 4).tolist()
    flat = np.ascontiguousarray(token_ids, dtype="<u4").tobytes()
    blake = hashlib.blake2b
    seeds = np.frombuffer(
        b"".join(
            blake(flat[begin:end], digest_size=8).digest()
            for begin, end in itertools.pairwise(edges)
        ),
        "<u8",
    ).astype(np.uint64)
    steps = np.arange(1, dimension + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = seeds[:, None] + steps[None, :]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    values = (mixed >> np.uint64(40)).astype(np.float64) / (1 << 23) - 1.0
    return np.asarray(values, np.float32)


def fake_vector(token_ids: NDArray[np.generic], dimension: int) -> NDArray[np.float32]:
    """The row of one text: float32 [dimension]."""
    rows = fake_vectors(token_ids, np.array([len(token_ids)], np.int32), dimension)
    return rows.reshape(dimension)


class FakeModel:
    """A blocking model that computes :func:`fake_vectors`.

    Args:
        spec: what it claims to be; ``row_shape`` decides the values a row.
        cost: how long a batch takes.
        wait: sleeps that many seconds.
        faults: what goes wrong.
    """

    def __init__(
        self,
        spec: EngineSpec,
        *,
        cost: FakeCost,
        wait: Callable[[float], None],
        faults: FakeFaults | None = None,
    ) -> None:
        self._spec = spec
        self._cost = cost
        self._wait = wait
        self._faults = faults or FakeFaults()
        self._transient_left = self._faults.transient_times

    @property
    def spec(self) -> EngineSpec:
        """What it claims to be, with its stated cost."""
        return self._spec

    def load(self) -> None:
        """Nothing to load."""

    def warm_up(self) -> None:
        """Nothing to warm."""

    def unload(self) -> None:
        """Nothing to free."""

    def prepare(self, columns: BatchColumns) -> HostBatch:
        """Priced as a padded engine."""
        longest = int(columns.lengths.max(initial=0))
        tokens = longest * columns.texts
        return HostBatch(columns=columns, arrays=(), tokens=tokens, squares=float(tokens) * longest)

    def run(self, batch: HostBatch, instance: int) -> NDArray[np.float32]:
        """Wait for the stated cost, then answer.

        Raises:
            EngineFailure: a token of the batch is marked.
        """
        wait_ms = self._cost.fixed_ms + batch.tokens * self._cost.token_us / 1e3
        if wait_ms > 0:
            self._wait(wait_ms / 1e3)
        columns = batch.columns
        width = int(np.prod(self._spec.row_shape, dtype=np.int64))
        rows = fake_vectors(columns.token_ids, columns.lengths, width)
        if self._faults.marks:
            rows = self._fail(columns, rows)
        return rows.reshape(len(rows), *self._spec.row_shape)

    def _fail(self, columns: BatchColumns, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        text_of_token = np.repeat(np.arange(columns.texts), columns.lengths)
        for token, fault in self._faults.marks.items():
            hit = text_of_token[columns.token_ids == token]
            if not len(hit):
                continue
            if fault in ("item", "nan"):
                rows[hit] = np.nan
            elif fault == "short":
                rows = rows[:-1]
            elif fault == "transient":
                if self._transient_left > 0:
                    self._transient_left -= 1
                    raise EngineFailure("transient", "model_error", "the fake failed, as asked")
            else:
                raise EngineFailure(fault, "model_error", "the fake failed, as asked")
        return rows


def fake_spec(
    *, model: str, task: str, revision: str, tokenizer_hash: str, dimension: int,
    max_length: int, instances: int, cost: FakeCost,
) -> EngineSpec:  # fmt: skip
    """What a fake claims: ``dimension`` values for embed, labels for classify, none for score."""
    shape: tuple[int, ...] = () if task == "score" else (dimension,)
    return EngineSpec(
        model=model,
        revision=revision,
        tokenizer_hash=tokenizer_hash,
        task=task,
        output=OUTPUT_OF_TASK[task],
        row_shape=shape,
        labels=tuple(f"label_{n}" for n in range(dimension)) if task == "classify" else None,
        max_length=max_length,
        instances=instances,
        cost=CostModel(fixed_ms=cost.fixed_ms, token_us=cost.token_us),
    )
