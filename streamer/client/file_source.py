"""A request file on disk: looked over once before anything is sent, then read line by line.

Memory stays flat: the first pass keeps 8 bytes a line, the second one line.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamer.client.errors import InputRefused
from streamer.client.jsonl import Line, numbered_lines, read_line

_DUPLICATES_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What the first pass found.

    Attributes:
        total: lines that hold something; the number of items of the job.
        invalid: lines that will be answered with an error as they stand.
        digest: BLAKE2b-128 of all bytes, hexadecimal; names the content of the file.
    """

    total: int
    invalid: int
    digest: str


class FileSource:
    """One JSON Lines file.

    Args:
        path: where it lies.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._facts: FileFacts | None = None

    def scan(self) -> FileFacts:
        """Count, check for repeated names, and take the digest; reads the file once.

        Raises:
            InputRefused: the file cannot be read, is not UTF-8 text, or names two lines alike;
                the message has the line numbers.
        """
        if self._facts is not None:
            return self._facts
        names = array("Q")
        total = invalid = 0
        hasher = hashlib.blake2b(digest_size=16)
        for line in self._lines(hasher):
            total += 1
            invalid += line.invalid is not None
            if line.named:
                names.append(_name_hash(line.custom_id))
        repeated = _repeated(names)
        if repeated:
            self._refuse_duplicates(repeated)
        self._facts = FileFacts(total=total, invalid=invalid, digest=hasher.hexdigest())
        return self._facts

    def items(self) -> Iterator[Line]:
        """The lines in order; the n-th one is the item with index n of the job."""
        return self._lines(None)

    def _lines(self, hasher: hashlib.blake2b | None) -> Iterator[Line]:
        try:
            with self.path.open("rb") as file:
                start = file.read(4)
                if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
                    raise InputRefused(f"{self.path}: UTF-16 text; convert it to UTF-8")
                if start[:2] == b"\x1f\x8b":
                    raise InputRefused(f"{self.path}: compressed; unpack it first")
                file.seek(0)

                def readline(limit: int) -> bytes:
                    raw = file.readline(limit)
                    if hasher is not None:
                        hasher.update(raw)
                    return raw

                for number, raw in numbered_lines(readline):
                    yield read_line(number, raw)
        except OSError as error:
            raise InputRefused(f"{self.path}: {error.strerror}") from None

    def _refuse_duplicates(self, hashes: frozenset[int]) -> None:
        """Second look at the suspects only: the lines of each repeated name."""
        at: dict[str, list[int]] = {}
        for line in self._lines(None):
            if line.named and _name_hash(line.custom_id) in hashes:
                at.setdefault(line.custom_id, []).append(line.number)
        doubles = [(name, lines) for name, lines in at.items() if len(lines) > 1]
        if not doubles:  # two names with one hash
            return
        shown = "; ".join(
            f"custom_id {name[:64]!r} on lines {', '.join(map(str, lines[:8]))}"
            for name, lines in doubles[:_DUPLICATES_SHOWN]
        )
        more = len(doubles) - _DUPLICATES_SHOWN
        if more > 0:
            shown += f"; and {more} more"
        raise InputRefused(
            f"{self.path}: duplicate_custom_id: {shown}"
            + (f"; and {more} more" if more > 0 else "")
        )


def _name_hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _repeated(names: array[int]) -> frozenset[int]:
    values = np.sort(np.frombuffer(names, dtype=np.uint64)) if names else np.empty(0, np.uint64)
    return frozenset(values[1:][values[1:] == values[:-1]].tolist())
