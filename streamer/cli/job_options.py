"""Options and exit codes that the commands about jobs share."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import orjson
import typer

from streamer.cli.interrupts import kept_interrupts
from streamer.client import Client
from streamer.client.errors import InputRefused, JobConflict, JobUnknown, OutputsBroken
from streamer.client.job import Progress
from streamer.errors import BrokerUnreachable, ConfigurationError, StreamerError
from streamer.event.codes import LANES

USAGE, AUDIT_FAILED, ENDED_WITH_ERRORS, INTERRUPTED = 2, 5, 6, 130

Bootstrap = Annotated[
    str | None, typer.Option("--bootstrap", help="Bootstrap servers; default: settings.")
]
Prefix = Annotated[str | None, typer.Option("--prefix", help="Topic prefix; default: settings.")]
Tenant = Annotated[str, typer.Option("--tenant", help="Whose jobs.")]


def _lane(value: str) -> str:
    if value not in LANES:
        raise typer.BadParameter(f"{value!r} is no lane: {' or '.join(sorted(LANES))}")
    return value


Lane = Annotated[str, typer.Option("--lane", help="bulk or fast.", callback=_lane)]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable on stdout.")]
JobId = Annotated[str, typer.Argument(help="The job id.", metavar="JOB")]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?\Z")
_UNIT_MS = {"ms": 1, "s": 1_000, "": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str) -> int:
    """Milliseconds of ``90s``, ``15m``, ``24h``, ``2d``; a bare number is seconds."""
    found = _DURATION.match(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no time: write 90s, 15m, 24h or 2d")
    value = int(float(found[1]) * _UNIT_MS[found[2] or ""])
    if value <= 0:
        raise typer.BadParameter("must be longer than nothing")
    return value


def talk(text: str) -> None:
    """Say something to a person; data goes to stdout instead."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def connected(bootstrap: str | None, prefix: str | None, tenant: str) -> Iterator[Client]:
    """A client for the length of a command; its errors become one line and an exit code."""
    try:
        with (
            kept_interrupts(),
            Client(bootstrap=bootstrap, prefix=prefix, tenant=tenant) as client,
        ):
            yield client
    except KeyboardInterrupt:
        talk("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except (ConfigurationError, BrokerUnreachable):
        raise
    except (InputRefused, JobConflict, JobUnknown) as error:
        talk(f"streamer: {error}")
        raise typer.Exit(USAGE) from None
    except OutputsBroken as error:
        talk(f"streamer: {error}")
        raise typer.Exit(AUDIT_FAILED) from None
    except StreamerError as error:
        talk(f"streamer: {error}")
        raise typer.Exit(1) from None


def progress_fields(progress: Progress) -> dict[str, object]:
    """A job's progress as the ``--json`` of all commands shows it."""
    return {
        "job_id": progress.job_id,
        "lane": progress.lane,
        "state": progress.state,
        "total": progress.total,
        "final": progress.final,
        "counts": {
            "succeeded": progress.succeeded,
            "errored": progress.errored,
            "expired": progress.expired,
            "cancelled": progress.cancelled,
        },
        "deadline_at_ms": progress.deadline_at_ms,
        "reason": progress.reason,
    }


def print_json(fields: object) -> None:
    """One JSON object on stdout."""
    sys.stdout.write(orjson.dumps(fields).decode() + "\n")
    sys.stdout.flush()
