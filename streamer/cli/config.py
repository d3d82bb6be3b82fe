"""``streamer config``: what holds right now, and the table of all settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from streamer.settings import ModelSettings, Settings, load_settings


def register(app: typer.Typer) -> None:
    """Add ``config``."""
    app.command()(config)


def config(
    markdown: bool = typer.Option(False, help="The table of all settings instead of the values."),
) -> None:
    """Print the effective settings as JSON (secrets are file names, never their content)."""
    if markdown:
        print(settings_table())
        return
    values = load_settings().model_dump(mode="json")
    values["kafka"]["properties"] = {
        name: "(hidden)" if _is_secret(name) else value
        for name, value in values["kafka"]["properties"].items()
    }
    print(orjson.dumps(values, option=orjson.OPT_INDENT_2).decode())


def settings_table() -> str:
    """All settings as a Markdown table: environment variable, default, meaning."""
    lines = ["| setting (environment) | default | meaning |", "|---|---|---|"]
    lines += [_row(name, field) for name, field in _walk("STREAMER_", Settings)]
    lines += [_row(name, field) for name, field in _walk("STREAMER_MODELS__SLUG__", ModelSettings)]
    return "\n".join(lines)


def _walk(prefix: str, model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _walk(f"{prefix}{name.upper()}__", kind)
        elif field.description:
            yield f"{prefix}{name.upper()}", field


def _row(name: str, field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    shown = "" if default in ("", None, {}) else str(default)
    if isinstance(default, Path):
        shown = default.as_posix()
    return f"| `{name}` | {f'`{shown}`' if shown else ''} | {field.description} |"


def _is_secret(name: str) -> bool:
    return any(word in name for word in ("password", "secret", "key", "jaas", "token"))
