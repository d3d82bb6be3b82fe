"""``streamer doctor``: what is missing, and how to get it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamer.settings import STACK_FILE, load_settings


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("doctor")(doctor)


def doctor(
    bootstrap: Annotated[
        str, typer.Option(help="Look at this cluster; Java and Maven are then not needed.")
    ] = "",
    root: Annotated[Path, typer.Option(help="Folder of the stack.")] = STACK_FILE.parent,
) -> None:
    """Look at Python, Java, Maven, disk, models, cluster and topics; exit 3 if one needs fixing."""
    from streamer.stack.doctor import FIX, examine

    settings = load_settings(**({"kafka": {"bootstrap": bootstrap}} if bootstrap else {}))
    to_fix = 0
    for finding in examine(settings, root, own_broker=not bootstrap):
        print(f"{finding.state:<5} {finding.name:<16} {finding.text}", flush=True)
        if finding.remedy:
            print(f"{'':<22} -> {finding.remedy}")
        to_fix += finding.state == FIX
    if to_fix:
        print(f"{to_fix} to fix")
        raise typer.Exit(3)
