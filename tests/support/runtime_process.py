"""A process under ``run_process`` that passes the fast lane on: the runtime's own test subject."""

from __future__ import annotations

import os
import sys

from streamer.process import lane_loop
from streamer.process.lane_loop import LaneLoop
from streamer.process.lane_parts import build_loop
from streamer.process.runtime import ProcessContext, run_process
from streamer.settings import load_settings
from tests.support.pass_core import PassCore, PassHooks


class _NeverFinishes(PassCore):
    def finish_some(self) -> bool:
        return bool(self._undone)


def build(context: ProcessContext) -> list[LaneLoop]:
    prefix = context.settings.kafka.prefix
    kind = _NeverFinishes if "PASS_NEVER_FINISHES" in os.environ else PassCore
    core = kind(f"{prefix}out")
    return [
        build_loop(context, lane="fast", topics=[f"{prefix}in"], core=core, hooks=PassHooks(core))
    ]


if __name__ == "__main__":
    lane_loop._START_MS = int(os.environ.get("PASS_START_MS", lane_loop._START_MS))
    sys.exit(run_process(load_settings(), role="pass", build=build))
