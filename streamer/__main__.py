"""The ``streamer`` command: ``python -m streamer`` and the console script are the same."""

from __future__ import annotations

import sys
from importlib import import_module

import typer

from streamer.errors import BrokerUnreachable, ConfigurationError

COMMAND_FILES = ("up", "topics", "doctor", "processes", "submit", "audit", "run_batch", "config")

app = typer.Typer(
    name="streamer",
    help="Kafka streaming micro-batch inference: ordered job outputs, exactly once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.callback()
def _group() -> None:
    """Kafka streaming micro-batch inference: ordered job outputs, exactly once."""


for _file in COMMAND_FILES:
    import_module(f"streamer.cli.{_file}").register(app)


def main() -> None:
    """Run one command; exit codes: 0, 2 usage, 3 configuration, 4 broker, 130 interrupted."""
    try:
        app()
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
