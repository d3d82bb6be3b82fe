"""``streamer audit``: prove a job, or a range of single requests, from the topics alone."""

from __future__ import annotations

from typing import Annotated

import typer

from streamer.audit.kafka_audit import LaneAudit
from streamer.audit.verdict import Verdict
from streamer.cli.job_options import (
    AUDIT_FAILED,
    AsJson,
    Bootstrap,
    Lane,
    Prefix,
    Tenant,
    connected,
    print_json,
    talk,
)
from streamer.client import Client
from streamer.client.errors import JobUnknown
from streamer.client.kafka_jobs import JobName
from streamer.event.topics import JOB_ID
from streamer.settings import load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(
    job_id: Annotated[str, typer.Argument(help="The job id.", metavar="JOB")] = "",
    whole_range: Annotated[
        bool, typer.Option("--range", help="The single requests of the lane instead of a job.")
    ] = False,
    start: Annotated[
        list[str] | None,
        typer.Option("--from", help="With --range: PARTITION:OFFSET of the first; repeatable."),
    ] = None,
    end: Annotated[
        list[str] | None,
        typer.Option("--to", help="With --range: PARTITION:OFFSET after the last; repeatable."),
    ] = None,
    lane: Lane = "bulk",
    tenant: Tenant = "default",
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
) -> None:
    """Prove that every accepted item has exactly one terminal record, its own, in its place.

    Reads what read_committed shows, believes no counter of the service, and recomputes the job's
    digest. Ends with `audit: ok`, or with exit code 5 and what is wrong.
    """
    if bool(job_id) == whole_range:
        raise typer.BadParameter("name a job, or say --range (of a --lane); not both")
    if job_id and not JOB_ID.match(job_id):
        raise typer.BadParameter("a job id is 1 to 64 of A-Z a-z 0-9 . _ -")
    with connected(bootstrap, prefix, tenant) as client:
        auditor = LaneAudit(
            client.properties, client.names, lane, group_prefix=group_prefix_of(client)
        )
        try:
            if whole_range:
                verdict = auditor.range(_offsets(start), _offsets(end))
            else:
                name = JobName(lane=lane, job_id=job_id, tenant=tenant)
                verdict = auditor.job(name)
                nothing = not verdict.items and verdict.state == "open"
                if nothing and not client.board.known(name).entries:
                    raise JobUnknown(f"no job {job_id} in lane {lane} (tenant {tenant})")
        finally:
            auditor.close()
    if as_json:
        print_json(verdict.fields())
    else:
        print("\n".join(lines_of(verdict)))
    if not verdict.ok:
        raise typer.Exit(AUDIT_FAILED)


def group_prefix_of(client: Client) -> str:
    """Groups are named after the topics unless a setting names them otherwise."""
    settings = load_settings()
    default = type(settings.kafka).model_fields["group_prefix"].default
    named = settings.kafka.group_prefix
    return named if named != default else client.names.prefix.rstrip(".") + "-"


def lines_of(verdict: Verdict) -> list[str]:
    """A verdict for people; the last line is the one to look at."""
    state = f" ({verdict.state})" if verdict.state else ""
    lines = [
        f"{verdict.subject}{state}: {verdict.items} items: {verdict.succeeded} succeeded, "
        f"{verdict.errored} errored, {verdict.expired} expired, {verdict.cancelled} cancelled",
        f"lost {verdict.lost}, duplicated {verdict.duplicated}, misordered {verdict.misordered}, "
        f"pending {verdict.pending}",
    ]
    if verdict.repeated_results:
        lines.append(f"{verdict.repeated_results} repeated results were dropped on the way")
    lines += [f"dead letter {text}" for text in verdict.dead_letters]
    lines += [f"problem: {text}" for text in verdict.problems]
    if verdict.problem_count > len(verdict.problems):
        lines.append(f"and {verdict.problem_count - len(verdict.problems)} problems more")
    lines.append("audit: ok" if verdict.ok else "audit: failed")
    return lines


def _offsets(pairs: list[str] | None) -> dict[int, int] | None:
    if not pairs:
        return None
    found = {}
    for pair in pairs:
        partition, _, offset = pair.partition(":")
        if not (partition.isdecimal() and offset.isdecimal()):
            talk(f"streamer: {pair!r} is not PARTITION:OFFSET")
            raise typer.Exit(2)
        found[int(partition)] = int(offset)
    return found
