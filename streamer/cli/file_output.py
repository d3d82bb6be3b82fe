"""The ``--out`` file: lines are appended as they become final, and a later run goes on after them.

The file is its own resume state: its complete lines are the rows 0 … N-1 of one job. A line that
was cut off by a crash is removed before going on.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import orjson

from streamer.client.errors import InputRefused

_CHUNK_BYTES = 1 << 20


class OutputFile:
    """Where result lines go.

    Args:
        path: the file; None writes to stdout, which cannot be resumed.
        job_id: whose lines.
    """

    def __init__(self, path: Path | None, job_id: str) -> None:
        self._path = path
        self._job_id = job_id
        self._file: IO[bytes] | None = None
        self.lines = 0

    def __enter__(self) -> Self:
        """Open it, and count what is there.

        Raises:
            InputRefused: it cannot be written, is in use, or holds something else.
        """
        if self._path is None:
            self._file = sys.stdout.buffer
            return self
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._path, "a+b")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputRefused(f"{self._path} is being written by another run") from None
        except OSError as error:
            raise InputRefused(f"{self._path}: {error.strerror}") from None
        self.lines = self._resume(self._file)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None and self._path is not None:
            self._file.close()

    def write(self, lines: Sequence[bytes]) -> None:
        """Append lines and hand them to the operating system."""
        assert self._file is not None
        self._file.write(b"".join(line + b"\n" for line in lines))
        self._file.flush()
        self.lines += len(lines)

    def sync(self) -> None:
        """Have everything on the disk."""
        if self._file is not None and self._path is not None:
            os.fsync(self._file.fileno())

    def _resume(self, file: IO[bytes]) -> int:
        """Cut a partial last line, check whose lines these are, and count them."""
        count, whole, last_start, at = 0, 0, 0, 0
        file.seek(0)
        while chunk := file.read(_CHUNK_BYTES):
            found = chunk.count(b"\n")
            if found:
                count += found
                end = chunk.rindex(b"\n")
                before = chunk.rfind(b"\n", 0, end)
                last_start = whole if before < 0 else at + before + 1
                whole = at + end + 1
            at += len(chunk)
        if count:
            file.seek(last_start)
            self._check_last(file.read(whole - last_start), count)
        if at > whole:
            file.truncate(whole)
        file.seek(0, os.SEEK_END)
        return count

    def _check_last(self, line: bytes, count: int) -> None:
        try:
            fields = orjson.loads(line)
            ours = fields["job_id"] == self._job_id and fields["index"] == count - 1
        except (orjson.JSONDecodeError, KeyError, TypeError):
            ours = False
        if not ours:
            raise InputRefused(
                f"{self._path} holds lines that are not rows 0 to {count - 1} of job "
                f"{self._job_id}: name another --out, or move the file away"
            )
