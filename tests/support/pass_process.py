"""A process of its own that passes records on: ``python -m tests.support.pass_process …``."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading

from streamer.batch.kafka_consumer import SourceLimits
from streamer.batch.kafka_source import KafkaSource
from streamer.clock import SystemClock
from streamer.deadline import Deadline
from streamer.emit.kafka_ring import ProducerRing, RingLimits
from streamer.process.crash_points import crash_points
from streamer.process.lane_loop import LaneLoop, LoopLimits
from tests.support.pass_core import PassCore, PassHooks


def build_pass_loop(
    bootstrap: str,
    prefix: str,
    *,
    source: str = "in",
    out: str = "out",
    lane: str = "fast",
    slot: int = 0,
    protocol: str = "classic",
    core: PassCore | None = None,
    **source_limits: int,
) -> tuple[LaneLoop, PassCore]:
    """A loop (not started) that passes ``<prefix>in`` on to ``<prefix>out``."""
    clock = SystemClock()
    core = core or PassCore(prefix + out, seed=slot)
    properties = {"bootstrap.servers": bootstrap}
    crash = crash_points(f"pass.{lane}")
    loop = LaneLoop(
        name=f"pass.{lane}",
        core=core,
        source=KafkaSource(
            properties=properties,
            group=f"{prefix}pass-{lane}",
            topics=[prefix + name for name in source.split(",")],
            limits=SourceLimits.for_lane(lane, protocol=protocol, **source_limits),
            clock=clock,
        ),
        ring=ProducerRing(
            properties=properties,
            id_prefix=f"{prefix}pass-{lane}-{slot}",
            limits=RingLimits.for_lane(lane),
            clock=clock,
            crash=crash,
        ),
        clock=clock,
        hooks=PassHooks(core),
        limits=LoopLimits.for_lane(lane),
        crash=crash,
    )
    return loop, core


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("prefix")
    parser.add_argument("--slot", type=int, default=0)
    parser.add_argument("--lane", default="fast")
    parser.add_argument("--protocol", default="classic")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    loop, _ = build_pass_loop(
        options.bootstrap,
        options.prefix,
        lane=options.lane,
        slot=options.slot,
        protocol=options.protocol,
        session_timeout_ms=3_000,
    )
    loop.start()
    while not stop.wait(0.1) and loop.failure is None:
        pass
    clock = SystemClock()
    drained = loop.stop(Deadline.after(clock.monotonic_ns(), 5_000))
    if loop.failure is not None:
        print(repr(loop.failure), file=sys.stderr)
        return 1
    return 0 if drained else 2


if __name__ == "__main__":
    sys.exit(main())
