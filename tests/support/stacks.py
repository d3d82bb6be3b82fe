"""Whole stacks for tests: real processes on the broker of the run, under a prefix of their own."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamer.stack.local import FAKE_MODELS, LocalStack

LOG_TAIL_LINES = 25


@dataclass(slots=True)
class StackFactory:
    """Call it for a started stack; all of them are stopped when the test is over.

    Processes run in a folder of the test, so that they see no configuration but their own.
    """

    bootstrap: str
    folder: Path
    made: list[LocalStack] = field(default_factory=list)

    def __call__(
        self,
        *,
        models: Mapping[str, Mapping[str, Any]] = FAKE_MODELS,
        workers: int = 1,
        partitions: int = 4,
        env: Mapping[str, str] | None = None,
        own_broker: bool = False,
        prefix: str = "",
        **options: Any,
    ) -> LocalStack:
        """Start one; ``own_broker`` gives it a broker that may be killed (name ``kafka``)."""
        root = self.folder / f"stack{len(self.made)}"
        root.mkdir()
        stack = LocalStack(
            root=root,
            models=models,
            workers=workers,
            partitions=partitions,
            env=env or {},
            bootstrap="" if own_broker else self.bootstrap,
            prefix=prefix or f"s{uuid.uuid4().hex[:8]}.",
            cwd=root,
            say=print,
            **options,
        )
        self.made.append(stack)
        return stack.start()

    def stop(self) -> None:
        """Stop all."""
        for stack in reversed(self.made):
            stack.stop()

    def show_logs(self) -> None:
        """Print the end of every log, for a failed test."""
        for path in sorted(self.folder.glob("stack*/logs/*.log")):
            print(f"--- {path}")
            print("\n".join(path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]))
