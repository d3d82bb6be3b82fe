"""Run as a script: ask the kernel to be killed with the parent, then become another program.

``python die_with_parent.py PARENT_PID COMMAND...`` keeps its pid. Asking from inside the child
is safe with threads in the parent, which ``preexec_fn`` is not.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask, look whether the parent is still there, execute."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the request was in place
            sys.exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
