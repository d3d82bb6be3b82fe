"""The ``streamer`` command: ``python -m streamer`` and the console script are the same.

Only the file of the wanted command is imported: a router need not load what ``doctor`` needs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Final

import typer

from streamer.errors import BrokerUnreachable, ConfigurationError

COMMANDS: Final = {
    "up": "up",
    "down": "up",
    "doctor": "doctor",
    "topics": "topics",
    "route": "processes",
    "work": "processes",
    "aggregate": "processes",
    "submit": "submit",
    "status": "submit",
    "results": "submit",
    "cancel": "submit",
    "deadletters": "submit",
    "audit": "audit",
    "run-batch": "run_batch",
    "config": "config",
}


def build(arguments: Sequence[str]) -> typer.Typer:
    """The application with the command that ``arguments`` begin with, else with all of them."""
    app = typer.Typer(
        name="streamer",
        help="Kafka streaming micro-batch inference: ordered job outputs, exactly once.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback()(_group)
    wanted = COMMANDS.get(arguments[0]) if arguments else None
    for name in [wanted] if wanted else dict.fromkeys(COMMANDS.values()):
        import_module(f"streamer.cli.{name}").register(app)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"streamer {version('streamer')}")
        raise typer.Exit


def _group(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it and exit.")
    ] = False,
) -> None:
    """Kafka streaming micro-batch inference: ordered job outputs, exactly once."""


def main() -> None:
    """Run one command; exit codes: 0, 2 usage, 3 configuration, 4 broker, 130 interrupted."""
    try:
        build(sys.argv[1:])()
    except ConfigurationError as error:
        print(f"streamer: {error}", file=sys.stderr)
        sys.exit(3)
    except BrokerUnreachable as error:
        print(f"streamer: {error}", file=sys.stderr)
        sys.exit(4)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
