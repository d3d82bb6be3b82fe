"""Commands that run one role in the foreground: route, work, aggregate."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from streamer.event.codes import LANES
from streamer.settings import Settings, load_settings

Lane = Annotated[
    list[str] | None,
    typer.Option("--lane", help="fast or bulk; may be repeated. Default: both."),
]
Slot = Annotated[
    int | None,
    typer.Option(
        "--slot", min=0, help="Number of this process in its role. Default: the first free one."
    ),
]
Model = Annotated[
    list[str] | None,
    typer.Option("--model", help="Model to serve; may be repeated. Default: all configured."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("route")(route)
    app.command("work")(work)
    app.command("aggregate")(aggregate)


def route(lane: Lane = None, slot: Slot = None) -> None:
    """Validate, tokenize and group requests into work."""
    from streamer.process.router import run_router

    raise typer.Exit(run_router(_settings(slot), _lanes(lane)))


def work(lane: Lane = None, slot: Slot = None, model: Model = None) -> None:
    """Run models over work; results leave exactly once."""
    from streamer.process.worker import run_worker

    settings = _settings(slot)
    unknown = sorted(set(model or ()) - set(settings.models))
    if unknown:
        raise typer.BadParameter(f"not configured: {', '.join(unknown)}", param_hint="--model")
    raise typer.Exit(run_worker(settings, _lanes(lane), model or sorted(settings.models)))


def aggregate(lane: Lane = None, slot: Slot = None) -> None:
    """Put the results of jobs in order and release them."""
    from streamer.process.aggregator import run_aggregator

    raise typer.Exit(run_aggregator(_settings(slot), _lanes(lane)))


def _settings(slot: int | None) -> Settings:
    flags: dict[str, Any] = {} if slot is None else {"slot": slot}
    return load_settings(**flags)


def _lanes(chosen: list[str] | None) -> list[str]:
    unknown = sorted(set(chosen or ()) - set(LANES))
    if unknown:
        raise typer.BadParameter(
            f"{', '.join(unknown)}: choose from {', '.join(LANES)}", param_hint="--lane"
        )
    return [lane for lane in LANES if lane in (chosen or LANES)]
