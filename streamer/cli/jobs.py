"""``streamer status | results | cancel | deadletters list``: looking at and ending jobs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from streamer.cli.file_output import OutputFile
from streamer.cli.job_options import (
    ENDED_WITH_ERRORS,
    AsJson,
    Bootstrap,
    JobId,
    Lane,
    Prefix,
    Tenant,
    connected,
    print_json,
    progress_fields,
    talk,
)
from streamer.client import Client, Job
from streamer.client.job import Progress
from streamer.event.codes import STATUSES
from streamer.event.records import DeadLetter
from streamer.event.wire import decode_dead_letter

__all__ = ["STATUSES", "one_line", "progress_fields", "register"]

_POLL_S = 0.2
_FOR_LAST_ROW_S = 10.0


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("status")(status)
    app.command("results")(results)
    app.command("cancel")(cancel)
    letters = typer.Typer(no_args_is_help=True, help="What could not become an answer.")
    letters.command("list")(list_dead_letters)
    # One command alone would take the place of its group.
    letters.callback()(lambda: None)
    app.add_typer(letters, name="deadletters")


def one_line(progress: Progress) -> str:
    """A job's progress for people."""
    total = str(progress.total) if progress.total >= 0 else "?"
    counts = ", ".join(
        f"{count} {name}" for name in STATUSES if (count := getattr(progress, name)) or
        name == "succeeded"
    )  # fmt: skip
    reason = f" ({progress.reason})" if progress.reason else ""
    return (
        f"job {progress.job_id}: {progress.state}{reason}, {progress.final}/{total} final: {counts}"
    )


def status(
    job_id: JobId,
    lane: Lane = "bulk",
    tenant: Tenant = "default",
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
) -> None:
    """Show how far a job is."""
    with connected(bootstrap, prefix, tenant) as client:
        progress = client.job(job_id, lane).progress()
    if as_json:
        print_json(progress_fields(progress))
    else:
        print(one_line(progress))


def results(
    job_id: JobId,
    out: Annotated[Path | None, typer.Option("--out", help="Append here, after the lines that "
                                             "are there; default: stdout.")] = None,
    lane: Lane = "bulk",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Until the job ends, or only what "
                                       "is final now.")] = True,
    tenant: Tenant = "default",
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
) -> None:  # fmt: skip
    """Write a job's result lines, in order."""
    with connected(bootstrap, prefix, tenant) as client:
        job = client.job(job_id, lane)
        progress = job.progress()
        with OutputFile(out, job_id) as file:
            _copy(job, file, None if wait else progress.final)
        ended = job.progress()
    if ended.closed and (ended.state != "completed" or ended.final != ended.succeeded):
        talk(one_line(ended))
        raise typer.Exit(ENDED_WITH_ERRORS)


def _copy(job: Job, file: OutputFile, upto: int | None) -> None:
    """Copy rows until the job is closed, or until ``upto`` rows are written."""
    reader = job.reader(file.lines)
    try:
        moved = time.monotonic()
        while reader.completion is None and (upto is None or reader.next_index < upto):
            lines = reader.poll_lines(_POLL_S)
            if lines:
                file.write(lines)
                moved = time.monotonic()
            elif upto is not None and time.monotonic() - moved > _FOR_LAST_ROW_S:
                talk(f"rows {reader.next_index} to {upto - 1} did not come")
                raise typer.Exit(1)
        file.sync()
    finally:
        reader.close()


def cancel(
    job_id: JobId,
    lane: Lane = "bulk",
    tenant: Tenant = "default",
    wait: Annotated[bool, typer.Option("--wait", help="Until the job is closed.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
) -> None:
    """End a job early: rows that are final stay, the others become cancelled."""
    with connected(bootstrap, prefix, tenant) as client:
        job = client.job(job_id, lane)
        progress = job.progress()
        if not progress.closed:
            job.cancel()
            progress = job.wait() if wait else progress
    if as_json:
        print_json({**progress_fields(progress), "cancel_requested": True})
    else:
        print(one_line(progress) if progress.closed else f"job {job_id}: cancel requested")


def list_dead_letters(
    lane: Lane = "bulk",
    job_id: Annotated[str, typer.Option("--job", help="Only of this job.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="The newest N.")] = 100,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
) -> None:
    """List dead letters: where they came from and why; never what was in them."""
    with connected(bootstrap, prefix, "default") as client:
        found = [row for row in dead_letters(client, lane) if not job_id or row[1].job_id == job_id]
    for at, letter in found[-limit:]:
        fields = {
            "dead_letter": at, "topic": letter.topic, "partition": letter.partition,
            "offset": letter.offset, "stage": letter.stage, "code": letter.code,
            "message": letter.message, "job_id": letter.job_id,
            "index": letter.index if letter.index >= 0 else None, "custom_id": letter.custom_id,
        }  # fmt: skip
        if as_json:
            print_json(fields)
        else:
            job = f" job {letter.job_id}[{letter.index}]" if letter.job_id else ""
            print(f"{letter.topic}[{letter.partition}]@{letter.offset} {letter.stage} "
                  f"{letter.code}{job}: {letter.message}")  # fmt: skip
    if not as_json:
        talk(f"{min(len(found), limit)} of {len(found)} dead letters")


def dead_letters(client: Client, lane: str) -> list[tuple[str, DeadLetter]]:
    """All dead letters of a lane with their own place, oldest first."""
    topic = client.names.dead_letters(lane)
    places = [(topic, p) for p in range(client.reader.partition_count(topic))]
    starts = {place: client.reader.watermarks(place)[0] for place in places}
    rows = [
        (record.timestamp_ms, f"{record.partition}:{record.offset}",
         decode_dead_letter(record.value))
        for record in client.reader.read(starts)
    ]  # fmt: skip
    rows.sort(key=lambda row: row[0])
    return [(at, letter) for _, at, letter in rows]
