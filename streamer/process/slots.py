"""Which number this process has in its role: part of its transactional ids, so it must be its own.

Setting, else the ordinal of a StatefulSet pod, else the first lock file that nobody holds. A lock
is held by an open file: it ends with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from streamer.errors import ConfigurationError

SLOTS_MAX: Final = 1_024
_ORDINAL: Final = re.compile(r"-(\d+)\Z")


class Slot:
    """A number and, where one was taken, the lock file that keeps it ours."""

    def __init__(self, number: int, lock: int | None = None) -> None:
        self.number = number
        self._lock = lock

    def release(self) -> None:
        """Let another process have the number."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def take_slot(
    *, setting: int, name: str, folder: Path, environ: Mapping[str, str] = os.environ
) -> Slot:
    """The slot of this process.

    Args:
        setting: the configured number, -1 when there is none.
        name: what is numbered, e.g. ``streamer-work``.
        folder: where the lock files lie; shared by the processes of one machine.
        environ: tells of Kubernetes and the pod's name.

    Raises:
        ConfigurationError: no lock file can be made, or all are held.
    """
    if setting >= 0:
        return Slot(setting)
    ordinal = _ORDINAL.search(environ.get("HOSTNAME", ""))
    if "KUBERNETES_SERVICE_HOST" in environ and ordinal is not None:
        return Slot(int(ordinal[1]))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(SLOTS_MAX):
            lock = _locked(folder / f"{name}-{number}.lock")
            if lock is not None:
                return Slot(number, lock)
    except OSError as error:
        raise ConfigurationError(
            f"state_dir: cannot lock a slot in {folder}: {error.strerror}; set slot instead"
        ) from None
    raise ConfigurationError(f"all {SLOTS_MAX} slots of {name} are taken in {folder}")


def _locked(path: Path) -> int | None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
