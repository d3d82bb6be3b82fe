"""What an item costs in aggregate: decoding, waiting, ordering, digest, encoding. No Kafka."""

from __future__ import annotations

import random
import time

from streamer.event import wire
from streamer.event.lane import Assignment, Now, Record, TopicPartition
from streamer.event.topics import TopicNames, job_key
from streamer.reassemble.aggregator_core import AggregatorCore
from streamer.reassemble.deadlines import DeadlineLimits
from streamer.reassemble.partition import AggregatorLimits
from streamer.reassemble.runs import RunLimits
from tests.support.results import Row, a_result

ITEMS = 8_192
WINDOW = 2_048  # indices are shuffled this far, as a window of the router does
# 14 µs on a quiet 2-core machine with 384 floats an item, 30 beside heavy work.
ITEM_US_MAX = 100.0


def test_an_item_costs_little_in_aggregate() -> None:
    chance = random.Random(1)
    order = sorted(range(ITEMS), key=lambda i: (i // WINDOW, chance.random()))
    records = [
        Record(
            "t.results.bulk", 0, 2 * number, 1, job_key("bulk", "default", "job"),
            wire.encode_result(
                a_result([Row(index=i, origin=(0, i), texts=192) for i in order[at : at + 64]])
            ),
            {},
        )
        for number, at in enumerate(range(0, ITEMS, 64))
    ]  # fmt: skip
    core = AggregatorCore(
        lane="bulk", names=TopicNames("t."),
        limits=AggregatorLimits(
            partitions=1, runs=RunLimits(items_max=256, bytes_max=524_288), commit_ms=0,
            deadlines=DeadlineLimits(default_ms=1 << 40, longest_ms=1 << 40, grace_ms=0),
        ),
    )  # fmt: skip
    core.restored(0, states=[], entries=[], watermark=0)
    core.assigned([Assignment(TopicPartition("t.results.bulk", 0), 1, 0)], Now(0, 1))

    started = time.process_time()
    for at in range(0, len(records), 16):
        core.deliver(records[at : at + 16], Now(at, 1))
        while (plan := core.plan(Now(at, 1), final=True)) is not None:
            core.settled(plan, Now(at, 1))
    item_us = (time.process_time() - started) / ITEMS * 1e6

    print(f"aggregate: {item_us:.1f} µs an item")
    assert core.tally.released == ITEMS
    assert item_us < ITEM_US_MAX
