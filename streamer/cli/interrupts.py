"""Ctrl-C while the Kafka client is at work.

An exception that a signal handler raises while the client binding serves a callback is lost: what
comes out is a SystemError, or a client error made of it. So that Ctrl-C stays Ctrl-C, the signal
is remembered here.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def kept_interrupts() -> Iterator[None]:
    """Within, whatever error follows a Ctrl-C comes out as KeyboardInterrupt."""
    heard = False

    def note(_number: int, _frame: object) -> None:
        nonlocal heard
        heard = True
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and before != signal.SIG_IGN
    if ours:
        signal.signal(signal.SIGINT, note)
    try:
        yield
    except typer.Exit:
        raise
    except Exception:
        if heard:
            raise KeyboardInterrupt from None
        raise
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
