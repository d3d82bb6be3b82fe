"""``streamer submit``: a file of requests in, ordered result lines out; the other job commands."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import orjson
import typer

from streamer.cli import jobs
from streamer.cli.file_output import OutputFile
from streamer.cli.interrupts import kept_interrupts
from streamer.cli.job_options import (
    ENDED_WITH_ERRORS,
    INTERRUPTED,
    AsJson,
    Bootstrap,
    Lane,
    Prefix,
    Tenant,
    connected,
    duration_ms,
    print_json,
    talk,
)
from streamer.cli.progress import JobProgress
from streamer.client import Client, Job
from streamer.client.file_source import FileSource
from streamer.client.job import Progress

_POLL_S = 0.2

RequestFile = Annotated[
    Path,
    typer.Argument(
        help='JSON Lines: OpenAI Batch lines, or plain {"custom_id", "input", ...} lines.'
    ),
]
Model = Annotated[str, typer.Option("--model", help="For lines that name none.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Result lines go here as they become final; default: stdout."),
]
OwnJobId = Annotated[
    str,
    typer.Option(
        "--job-id",
        help="Default: made from the file's content, model, lane and options, so that the same "
        "command finds its job again.",
    ),
]
New = Annotated[
    bool, typer.Option("--new", help="A new job, even if the same file was submitted before.")
]
Until = Annotated[
    str,
    typer.Option("--deadline", help="The job ends then: 90s, 15m, 24h. Default: the service's."),
]
Truncate = Annotated[
    bool | None, typer.Option("--truncate/--no-truncate", help="Cut texts that are too long.")
]
Dimensions = Annotated[int | None, typer.Option("--dimensions", help="Shorter vectors.")]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="float, base64, f16, int8 or binary.")
]


def register(app: typer.Typer) -> None:
    """Add ``submit`` and the commands about submitted jobs."""
    app.command("submit")(submit)
    jobs.register(app)


def submit(
    file: RequestFile,
    model: Model = "",
    lane: Lane = "bulk",
    out: Out = None,
    job_id: OwnJobId = "",
    new: New = False,
    deadline: Until = "",
    truncate: Truncate = None,
    dimensions: Dimensions = None,
    encoding: Encoding = None,
    tenant: Tenant = "default",
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
) -> None:
    """Submit a file as one job and write its results in order.

    Example: streamer submit requests.jsonl --model minilm --out results.jsonl

    Interrupted and run again with the same arguments it goes on where it stopped. Exit code 6 says
    that the job ended and some of its lines have no answer.
    """
    params = {"truncate": truncate, "dimensions": dimensions, "encoding_format": encoding}
    given = {key: value for key, value in params.items() if value is not None}
    if as_json and out is None:
        raise typer.BadParameter("--json needs --out: stdout can carry only one of them")
    deadline_ms = duration_ms(deadline) if deadline else None
    with connected(bootstrap, prefix, tenant) as client:
        source = FileSource(file)
        if not job_id and not new:
            job_id = default_job_id(source.scan().digest, model, lane, given)
        job = client.submit(
            source, model=model, lane=lane, job_id=job_id or None, deadline_ms=deadline_ms,
            params=given, background=True,
        )  # fmt: skip
        talk(_begun(job, source))
        progress = _follow(client, job, out, quiet=as_json)
    if as_json:
        print_json(jobs.progress_fields(progress))
    talk(jobs.one_line(progress))
    if progress.state != "completed" or progress.final != progress.succeeded:
        raise typer.Exit(ENDED_WITH_ERRORS)


def _begun(job: Job, source: FileSource) -> str:
    facts = source.scan()
    lines = "line" if facts.invalid == 1 else "lines"
    broken = f", {facts.invalid} broken {lines} to be answered with an error" * bool(facts.invalid)
    known = "" if job.sending is not None else "; submitted before, and closed"
    items = "item" if facts.total == 1 else "items"
    return f"job {job.job_id}: {facts.total} {items}, lane {job.name.lane}{broken}{known}"


def default_job_id(digest: str, model: str, lane: str, params: Mapping[str, object]) -> str:
    """The id of a file's job: the same content, model, lane and options give the same id."""
    words = [digest, model, lane, *(f"{key}={params[key]}" for key in sorted(params))]
    name = hashlib.blake2b("\n".join(words).encode(), digest_size=12).hexdigest()
    return f"file-{name}"


def _follow(client: Client, job: Job, out: Path | None, *, quiet: bool) -> Progress:
    """Write rows as they become final until the job is closed; stops sending when interrupted."""
    written = 0
    try:
        with kept_interrupts(), OutputFile(out, job.job_id) as file:
            written = file.lines
            if written:
                talk(f"{out}: {written} lines are there, going on after them")
            return _copy(job, file, quiet=quiet)
    except KeyboardInterrupt:
        if job.sending is not None:
            job.sending.stop()
        client.close()
        where = f"{out} has the lines written so far; " if out is not None else ""
        talk(f"interrupted; {where}run the same command to go on (job {job.job_id})")
        raise typer.Exit(INTERRUPTED) from None


def first_trouble(lines: Sequence[bytes]) -> str:
    """The first row among ``lines`` that ended in an error, in words; empty if there is none."""
    for line in lines:
        if b'"status":"succeeded"' in line:
            continue
        row = orjson.loads(line)
        error = row.get("error") or {}
        if error.get("code"):
            name = row["custom_id"] or f"row {row['index']}"
            return f"first error: {name}: {error['code']}: {error['message']}"
    return ""


def _copy(job: Job, file: OutputFile, *, quiet: bool) -> Progress:
    reader = job.reader(file.lines)
    trouble = ""
    try:
        with JobProgress(f"job {job.job_id}", job.total, quiet=quiet) as shown:
            while reader.completion is None:
                lines = reader.poll_lines(_POLL_S)
                if lines:
                    file.write(lines)
                    trouble = trouble or first_trouble(lines)
                note = ""
                if job.sending is not None:
                    job.sending.check()
                    note = "" if job.sending.done else f", {job.sending.accepted} sent"
                shown.show(file.lines, note)
        file.sync()
    finally:
        reader.close()
    if trouble:
        talk(trouble)
    done = reader.completion
    counts = {name: int(done.counts.get(name, 0)) for name in jobs.STATUSES}
    return Progress(
        job_id=job.job_id, lane=job.name.lane, state=done.status, total=done.total,
        final=sum(counts.values()), reason=done.reason, **counts,
    )  # fmt: skip
