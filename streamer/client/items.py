"""What a caller hands in, turned into lines: one form for files and for Python items."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from streamer.client.errors import InputRefused
from streamer.client.file_source import FileSource
from streamer.client.jsonl import Line

Item = str | Mapping[str, object]
_BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_job_id(at_ms: int) -> str:
    """``job_`` and a ULID: sorts by time, 80 random bits."""
    value = (at_ms << 80) | int.from_bytes(os.urandom(10), "big")
    return "job_" + "".join(_BASE32[(value >> shift) & 31] for shift in range(125, -1, -5))


def line_of(position: int, item: Item) -> Line:
    """The line of an item given in Python; ``custom_id`` defaults to its position."""
    if isinstance(item, str):
        return Line(number=0, custom_id=str(position), fields={"input": item})
    if not isinstance(item, Mapping):
        raise InputRefused(f"item {position} is neither a text nor a mapping")
    custom_id = item.get("custom_id", str(position))
    if not isinstance(custom_id, str):
        raise InputRefused(f"item {position}: custom_id is not a text")
    return Line(
        number=0,
        custom_id=custom_id,
        fields={key: value for key, value in item.items() if key != "custom_id"},
    )


def lines_of(source: str | Path | FileSource | Iterable[Item]) -> FileSource | Iterator[Line]:
    """A path becomes a file source, anything else a stream of lines read once."""
    if isinstance(source, FileSource):
        return source
    if isinstance(source, str | Path):
        return FileSource(Path(source))
    return (line_of(position, item) for position, item in enumerate(source))


def with_defaults(lines: Iterator[Line], params: Mapping[str, object] | None) -> Iterator[Line]:
    """Add ``params`` to the items that do not set the same parameter themselves."""
    if not params:
        yield from lines
        return
    for line in lines:
        own = line.fields.get("params")
        if line.invalid is not None or not (own is None or isinstance(own, Mapping)):
            yield line
            continue
        fields = {**line.fields, "params": {**params, **(own or {})}}
        yield Line(number=line.number, custom_id=line.custom_id, fields=fields, named=line.named)
