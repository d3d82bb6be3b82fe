"""``make demo``: a bulk job and single questions, side by side, on a real broker.

Starts Kafka and the processes, sends the paragraphs of Python's own reference as one job while
questions run through the fast lane at a fixed rate, reads the ordered output as it grows, finds the
nearest paragraph to each question, and proves from the topics alone that nothing was lost.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from streamer.audit.kafka_audit import LaneAudit
from streamer.audit.verdict import Verdict
from streamer.client import Client
from streamer.client.job import Job
from streamer.client.result_item import ResultItem
from streamer.demo.corpus import paragraphs, questions
from streamer.demo.paced import Answer, PacedQuestions, percentile_ms
from streamer.demo.report import DemoReport, nearest
from streamer.demo.scrape import counters
from streamer.errors import StreamerError
from streamer.settings import find_stack, load_settings

MODEL = "minilm"
FOLDER = Path("build/demo")
ALONE = 60
SHOWN = 5
SHOWN_CHARS = 68
_RULE = re.compile(r" ?[*=~-]{5,}")


def main() -> int:
    """Run the demonstration; exit code 0, or 5 when the audit failed."""
    options = _options()
    console = Console(highlight=False)
    begun = time.monotonic()
    console.print("[bold]Starting[/] Kafka, topics, route, work, aggregate")
    code = _streamer("up", "--fresh", "--timeout", "240")
    if code:
        return code
    setup_s = time.monotonic() - begun
    keep = options.keep
    try:
        code = _demonstrate(console, options, setup_s)
    except StreamerError as error:
        console.print(f"[red]demo failed:[/] {error}")
        code = 1
    except KeyboardInterrupt:
        console.print("interrupted")
        code, keep = 130, False
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            _streamer("down")
    if keep:
        console.print("The stack stays up; `make down` stops it.")
    return code


def _streamer(*arguments: str) -> int:
    """A command of ours, as a user would run it."""
    return subprocess.run([sys.executable, "-m", "streamer", *arguments], check=False).returncode


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the stack running")
    parser.add_argument("--items", type=int, default=0, help="paragraphs; 0 = all")
    parser.add_argument("--questions", type=int, default=240, help="single requests beside the job")
    parser.add_argument("--rate", type=float, default=25.0, help="questions a second")
    return parser.parse_args()


def _demonstrate(console: Console, options: argparse.Namespace, setup_s: float) -> int:
    texts = paragraphs()[: options.items or None]
    asked = questions(options.questions)
    source = FOLDER / "paragraphs.jsonl"
    _write_lines(source, texts)
    with Client() as client:
        console.print(f"\n[bold]{ALONE} questions[/] through the fast lane, nothing beside them")
        alone = _ask(client, questions(ALONE), options.rate)
        alone.finish(60)
        console.print(
            f"\n[bold]{len(texts):,} paragraphs[/] as a bulk job, "
            f"{len(asked)} questions beside it at {options.rate:g} a second"
        )
        side = _ask(client, asked, options.rate)
        begun = time.monotonic()
        job = client.submit(source, model=MODEL, params={"truncate": True}, background=True)
        rows = _follow(console, job, len(texts))
        job_s = time.monotonic() - begun
        side.finish(60)
        verdict = _audit(client, job)
        for failure in (*alone.failures, *side.failures):
            console.print(f"[red]a question failed:[/] {failure}")
        _show_nearest(console, texts, rows, side.answers)
    report = _report(rows, (alone, side), verdict, setup_s=setup_s, job_s=job_s)
    report.write(FOLDER / "report.json")
    report.show(console)
    console.print(f"\nfigures: {FOLDER / 'report.json'}   vectors: {FOLDER / 'vectors.npy'}")
    for problem in verdict.problems:
        console.print(f"[red]{problem}[/]")
    colour = "green" if verdict.ok else "red"
    console.print(f"[bold {colour}]audit: {report.audit}[/]")
    return 0 if report.audit == "ok" and not (alone.failures or side.failures) else 5


def _write_lines(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for number, text in enumerate(texts):
            file.write(orjson.dumps({"custom_id": f"paragraph-{number}", "input": text}) + b"\n")


def _ask(client: Client, asked: list[str], rate_hz: float) -> PacedQuestions:
    client.embed("a first question opens the connection", model=MODEL)
    paced = PacedQuestions(
        ask=lambda text: client.request({"input": text, "task": "embed"}, model=MODEL),
        questions=asked,
        rate_hz=rate_hz,
    )
    paced.start()
    return paced


def _follow(console: Console, job: Job, total: int) -> list[ResultItem]:
    rows: list[ResultItem] = []
    columns = (
        TextColumn("  final rows, in order"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:.0f} items/s"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("rows", total=total, rate=0.0)
        begun = time.monotonic()
        for row in job.results(timeout_s=120):
            if row.index != len(rows):
                raise StreamerError(f"row {row.index} where {len(rows)} is due")
            rows.append(row)
            rate = len(rows) / max(1e-9, time.monotonic() - begun)
            bar.update(task, completed=len(rows), rate=rate)
    return rows


def _show_nearest(
    console: Console, texts: list[str], rows: list[ResultItem], answers: list[Answer]
) -> None:
    good = [row for row in rows if row.output is not None]
    vectors = np.stack([row.output for row in good if row.output is not None])
    np.save(FOLDER / "vectors.npy", vectors)
    asked = [answer for answer in answers if answer.item.output is not None]
    if not asked:
        return
    picked = asked[:: max(1, len(asked) // SHOWN)][:SHOWN]
    at, cosine = nearest(
        np.stack([answer.item.output for answer in picked if answer.item.output is not None]),
        vectors,
    )
    console.print("\n[bold]Nearest paragraphs[/]")
    for answer, position, close in zip(picked, at, cosine, strict=True):
        text = texts[good[position].index or 0]
        # Rules under headings are part of the paragraphs and nothing to look at.
        text = _RULE.sub("", text)
        short = text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
        console.print(f"  [cyan]{answer.question}[/]")
        console.print(f"    {close:.2f}  {short}", markup=False)


def _audit(client: Client, job: Job) -> Verdict:
    auditor = LaneAudit(
        client.properties,
        client.names,
        job.name.lane,
        group_prefix=load_settings().kafka.group_prefix,
    )
    try:
        return auditor.job(job.name)
    finally:
        auditor.close()


def _report(
    rows: list[ResultItem],
    paced: tuple[PacedQuestions, PacedQuestions],
    verdict: Verdict,
    *,
    setup_s: float,
    job_s: float,
) -> DemoReport:
    stack = find_stack() or {}
    workers = [one["health"] for one in stack["processes"] if one["name"].startswith("work")]
    real = counters(workers, "streamer_batch_tokens_total", lane="bulk")
    padded = counters(workers, "streamer_batch_padded_tokens_total", lane="bulk")
    alone, side = ([answer.latency_s for answer in one.answers] for one in paced)
    used = {row.receipt.dtype for row in rows if row.receipt.dtype}
    tokens = sum(int(row.usage.get("input_tokens", 0)) for row in rows)
    return DemoReport(
        items=len(rows),
        succeeded=sum(row.status == "succeeded" for row in rows),
        errored=sum(row.status != "succeeded" for row in rows),
        lost=verdict.lost,
        duplicated=verdict.duplicated,
        misordered=verdict.misordered,
        items_per_s=round(len(rows) / job_s, 1),
        tokens_per_s=round(tokens / job_s, 1),
        padding_overhead=round(padded / real - 1, 4) if real else 0.0,
        fast_questions=len(side),
        fast_rate_hz=paced[1].rate_hz,
        fast_p50_ms=percentile_ms(side, 50),
        fast_p99_ms=percentile_ms(side, 99),
        fast_alone_p50_ms=percentile_ms(alone, 50),
        fast_alone_p99_ms=percentile_ms(alone, 99),
        dtype="/".join(sorted(used)),
        audit="ok" if verdict.ok else "failed",
        setup_s=round(setup_s, 1),
        job_s=round(job_s, 2),
    )


if __name__ == "__main__":
    sys.exit(main())
