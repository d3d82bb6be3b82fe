"""The cut of a sorted window is the cheapest one, and the cost model keeps to its grid."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.batch.cost import CostModel, OnlineFit, fit
from streamer.batch.limits import BatchLimits
from streamer.batch.split import split

items = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 3)), min_size=1, max_size=9)


@given(items=items, fixed=st.floats(0.5, 20), square=st.floats(0, 1_000))
@settings(max_examples=150, deadline=None)
def test_no_other_cut_costs_less(items: list[tuple[int, int]], fixed: float, square: float) -> None:
    items.sort()
    longest, texts = (np.array(column, np.int64) for column in zip(*items, strict=True))
    limits = BatchLimits(items_max=5, tokens_max=90, patience_ns=0)
    cost = CostModel(fixed_ms=fixed, token_us=100.0, square_ns=square)

    def price(begin: int, end: int) -> float:
        padded = int(texts[begin:end].sum() * longest[end - 1])
        if end - begin > 1 and (padded > 90 or end - begin > 5):
            return float("inf")
        return fixed + padded * 0.1 + padded * int(longest[end - 1]) * square / 1e6

    @lru_cache
    def cheapest(end: int) -> float:
        if end == 0:
            return 0.0
        return min(cheapest(begin) + price(begin, end) for begin in range(end))

    ranges = split(longest, texts, longest * texts * 4, limits, cost)

    assert [n for begin, end in ranges for n in range(begin, end)] == list(range(len(items)))
    total = sum(price(begin, end) for begin, end in ranges)
    assert total <= cheapest(len(items)) + 1e-6


def test_the_online_fit_follows_a_machine_that_became_slower() -> None:
    fit_online = OnlineFit(CostModel(fixed_ms=2.0, token_us=20.0, tokens_max=2_048))
    rng = np.random.default_rng(7)

    for _ in range(400):
        tokens = int(rng.integers(100, 2_048))
        took = (3.0 + tokens * 0.030) * rng.uniform(0.95, 1.05)
        fit_online.observe(tokens, tokens * 100.0, took)

    for tokens in (200, 1_000, 2_000):
        assert (
            abs(fit_online.model.predict_ms(tokens, tokens * 100.0) / (3 + tokens * 0.03) - 1) < 0.1
        )


def test_one_stall_does_not_bend_the_fit() -> None:
    fit_online = OnlineFit(CostModel(fixed_ms=2.0, token_us=20.0, tokens_max=2_048))
    before = fit_online.model.predict_ms(1_000, 0.0)

    fit_online.observe(1_000, 0.0, 5_000.0)

    assert fit_online.model.predict_ms(1_000, 0.0) < 1.3 * before


def test_a_batch_beyond_the_measured_grid_is_priced_as_several() -> None:
    cost = CostModel(fixed_ms=4.0, token_us=30.0, tokens_max=2_048)

    assert cost.predict_ms(4_096) == 2 * cost.predict_ms(2_048)
    assert cost.tokens_within(1e9) == 2_048


def test_coefficients_are_never_negative() -> None:
    tokens = np.array([100.0, 200, 400, 800])

    fixed, token, square = fit(tokens, tokens * 64, np.array([1.0, 2.5, 6.0, 14.0]))

    assert min(fixed, token, square) >= 0
