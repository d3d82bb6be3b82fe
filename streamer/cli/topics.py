"""``streamer topics plan | apply | check``: the topics of the settings on the cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from streamer.event.kafka_topics import apply_topics, check_topics, refuse_drift, wanted_topics
from streamer.event.topic_rows import WantedTopic
from streamer.settings import client_properties, load_settings
from streamer.stack.topic_plan import topic_layout

Bootstrap = Annotated[
    str | None, typer.Option("--bootstrap", help="Bootstrap servers; default: settings.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    topics = typer.Typer(no_args_is_help=True, help="Plan, make or check the topics.")
    topics.command("plan")(plan)
    topics.command("apply")(apply)
    topics.command("check")(check)
    app.add_typer(topics, name="topics")


def plan(bootstrap: Bootstrap = None) -> None:
    """Show what apply would do; changes nothing."""
    drifts = check_topics(*_target(bootstrap))
    for drift in drifts:
        print(drift.line())
    print(f"{len(drifts)} difference{'' if len(drifts) == 1 else 's'}")


def apply(bootstrap: Bootstrap = None) -> None:
    """Create missing topics and mend settings; refuses what cannot be mended."""
    done = apply_topics(*_target(bootstrap))
    for drift in done:
        print(drift.line())
    print(f"{len(done)} change{'' if len(done) == 1 else 's'}; topics are as the settings say")


def check(bootstrap: Bootstrap = None) -> None:
    """Exit 3 if any topic is not as the settings say."""
    client, wanted = _target(bootstrap)
    refuse_drift(check_topics(client, wanted))
    print(f"{len(wanted)} topics are as the settings say")


def _target(bootstrap: str | None) -> tuple[dict[str, Any], tuple[WantedTopic, ...]]:
    flags = {"kafka": {"bootstrap": bootstrap}} if bootstrap else {}
    settings = load_settings(**flags)
    return dict(client_properties(settings.kafka)), wanted_topics(topic_layout(settings))
