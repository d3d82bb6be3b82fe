"""What the demonstration found out: one JSON file and a table for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """Figures of one run.

    Attributes:
        items, succeeded, errored: of the bulk job.
        lost, duplicated, misordered: as the audit found in the topics.
        items_per_s, tokens_per_s: of the bulk job, first send to last row read, while the
            questions ran beside it.
        padding_overhead: padded / real tokens − 1 over the bulk batches.
        fast_p50_ms, fast_p99_ms: questions beside the job, from their intended send time.
        audit: ``ok`` or ``failed``.
    """

    items: int
    succeeded: int
    errored: int
    lost: int
    duplicated: int
    misordered: int
    items_per_s: float
    tokens_per_s: float
    padding_overhead: float
    fast_questions: int
    fast_rate_hz: float
    fast_p50_ms: float
    fast_p99_ms: float
    fast_alone_p50_ms: float
    fast_alone_p99_ms: float
    dtype: str
    audit: str
    setup_s: float
    job_s: float

    def write(self, path: Path) -> None:
        """Write the JSON file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2))

    def show(self, console: Console) -> None:
        """Print what a reader wants first; all figures are in the file."""
        table = Table.grid(padding=(0, 0, 0, 2), pad_edge=True)
        table.add_row(
            "job",
            f"{self.items:,} paragraphs in {self.job_s:.1f} s: {self.items_per_s:,.0f} items/s, "
            f"{self.tokens_per_s:,.0f} tokens/s",
        )
        table.add_row("", f"{self.dtype}, padding +{100 * self.padding_overhead:.1f} %")
        table.add_row(
            "questions",
            f"{self.fast_questions} beside it at {self.fast_rate_hz:g} a second: "
            + _latency(self.fast_p50_ms, self.fast_p99_ms),
        )
        table.add_row("", f"alone: {_latency(self.fast_alone_p50_ms, self.fast_alone_p99_ms)}")
        table.add_row("rows", f"{self.succeeded:,} succeeded, {self.errored} without an answer")
        table.add_row(
            "topics",
            f"{self.lost} lost, {self.duplicated} duplicated, {self.misordered} misordered",
        )
        console.print("\n[bold]What happened[/]")
        console.print(table)


def _latency(p50_ms: float, p99_ms: float) -> str:
    return f"p50 {p50_ms:,.0f} ms, p99 {p99_ms:,.0f} ms"


def nearest(
    questions: NDArray[np.float32], passages: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """For each question the position of the nearest passage and its cosine.

    Args:
        questions: float32 [questions, dimension], unit length.
        passages: float32 [passages, dimension], unit length.
    """
    cosines = questions @ passages.T
    best = cosines.argmax(axis=1)
    return best, cosines[np.arange(len(best)), best]
