"""[shell] Reads the Avro schemas once: from ``schemas/`` of the source tree, or from the wheel.

A released schema never changes; ``history/<name>.vN.avsc`` keeps each, so that every reader can
read what any earlier version wrote.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from streamer.errors import ConfigurationError
from streamer.event.avro import Codec, codec_of

NAMES: Final = (
    "inference_request", "work", "result", "output", "job_state", "job",
    "bucket_plan", "dead_letter", "event",
)  # fmt: skip

_PACKAGE = Path(__file__).resolve().parent.parent


def schema_folder() -> Path:
    """Where the schemas lie: inside the installed package, else beside it in the source tree."""
    for folder in (_PACKAGE / "_schemas", _PACKAGE.parent / "schemas"):
        if (folder / "work.avsc").is_file():
            return folder
    raise ConfigurationError("the Avro schemas are missing: install the package again")


def read_schema(name: str, folder: Path | None = None) -> dict[str, Any]:
    """The current schema ``name`` as JSON value."""
    return _read((folder or schema_folder()) / f"{name}.avsc")


def read_history(name: str, folder: Path | None = None) -> list[dict[str, Any]]:
    """All released versions of schema ``name``, oldest first."""
    found = (folder or schema_folder()).joinpath("history").glob(f"{name}.v*.avsc")
    return [_read(path) for path in sorted(found, key=_version)]


@cache
def codec(name: str) -> Codec:
    """The codec of record ``name``; built at the first use, then kept."""
    return codec_of(name, read_schema(name), read_history(name))


def _version(path: Path) -> int:
    return int(path.name.split(".")[-2].removeprefix("v"))


def _read(path: Path) -> dict[str, Any]:
    try:
        schema: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"schema {path.name} cannot be read ({type(error).__name__})"
        ) from None
    return schema
