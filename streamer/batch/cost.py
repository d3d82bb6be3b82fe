"""What a batch costs on a device: t = a + b·(padded tokens) + c·Σ(length²), fitted, never guessed.

A prediction never leaves the measured grid: a larger batch is priced as several batches of the
largest measured size, because real devices bend upward there (caches) and a straight line would
promise too much. Pure: measured durations are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

# Old observations fade with this factor per batch: about the last 100 batches count.
_FORGET = 0.99
# How many batches the fit that came with the engine weighs against new observations.
_PRIOR_BATCHES = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Predicted milliseconds of one batch on one engine instance.

    Attributes:
        fixed_ms: cost of a batch whatever its size.
        token_us: microseconds a token (padded tokens on padded engines, real ones on packed).
        square_ns: nanoseconds for each unit of Σ length² (attention).
        tokens_max: largest batch that was measured; 0 = nothing measured, no bound.
        best_tokens: smallest batch that reaches nearly the best measured speed; 0 = unknown.
    """

    fixed_ms: float = 0.0
    token_us: float = 0.0
    square_ns: float = 0.0
    tokens_max: int = 0
    best_tokens: int = 0

    def predict_ms(self, tokens: int, squares: float = 0.0) -> float:
        """Milliseconds of a batch.

        Args:
            tokens: padded tokens (longest × texts) on padded engines.
            squares: Σ length² over the texts, padded lengths on padded engines.
        """
        pieces = 1
        if self.tokens_max and tokens > self.tokens_max:
            pieces = -(-tokens // self.tokens_max)
        return (
            pieces * self.fixed_ms + tokens * self.token_us / 1e3 + squares * self.square_ns / 1e6
        )

    def tokens_within(self, budget_ms: float, *, length: int = 128) -> int:
        """Largest batch (tokens) predicted to end within ``budget_ms``; at least 1.

        Args:
            budget_ms: the time there is.
            length: length of the texts assumed for the quadratic part.
        """
        per_token_ms = self.token_us / 1e3 + length * self.square_ns / 1e6
        if per_token_ms <= 0:
            return self.tokens_max or 1 << 30
        tokens = max(1, int((budget_ms - self.fixed_ms) / per_token_ms))
        return min(tokens, self.tokens_max) if self.tokens_max else tokens


class OnlineFit:
    """Keeps a :class:`CostModel` true to what batches really take.

    Weighted least squares over (1, tokens, squares) with forgetting; coefficients stay >= 0 (the
    best of all supports is taken); one batch counts at most twice its predicted time, so that a
    stall of the machine does not bend the model.
    """

    def __init__(self, start: CostModel) -> None:
        self._start = start
        self._normal: NDArray[np.float64] = np.zeros((3, 3))
        self._right: NDArray[np.float64] = np.zeros(3)
        self._seen = 0
        self.model = start

    def observe(self, tokens: int, squares: float, took_ms: float) -> CostModel:
        """Take one measured batch into account.

        Args:
            tokens: as in :meth:`CostModel.predict_ms`.
            squares: as there.
            took_ms: device time; a batch beyond the measured grid is ignored.

        Returns:
            The model from now on.
        """
        if self._start.tokens_max and tokens > self._start.tokens_max:
            return self.model
        if not self._seen:
            self._seed()
        expected = self.model.predict_ms(tokens, squares)
        if expected > 0:
            took_ms = min(took_ms, 2.0 * expected)
        row = np.array([1.0, tokens / 1e3, squares / 1e6])
        self._normal = self._normal * _FORGET + np.outer(row, row)
        self._right = self._right * _FORGET + row * took_ms
        self._seen += 1
        fixed, token, square = _non_negative_solution(self._normal, self._right)
        self.model = replace(self._start, fixed_ms=fixed, token_us=token, square_ns=square)
        return self.model

    def _seed(self) -> None:
        """Let the starting model weigh as much as some batches of typical sizes."""
        start = self._start
        top = start.tokens_max or 2_048
        if start.fixed_ms <= 0 and start.token_us <= 0 and start.square_ns <= 0:
            return
        for share in (0.05, 0.25, 0.5, 1.0):
            for length in (16, 128):
                tokens = max(1, int(top * share))
                row = np.array([1.0, tokens / 1e3, tokens * length / 1e6])
                weight = _PRIOR_BATCHES / 8
                self._normal += weight * np.outer(row, row)
                self._right += weight * row * start.predict_ms(tokens, tokens * length)


def fit(
    tokens: NDArray[np.float64], squares: NDArray[np.float64], took_ms: NDArray[np.float64]
) -> tuple[float, float, float]:
    """Least squares with coefficients >= 0.

    Args:
        tokens: float64 [measured batches].
        squares: float64 [measured batches].
        took_ms: float64 [measured batches].

    Returns:
        ``(fixed_ms, token_us, square_ns)`` of a :class:`CostModel`.
    """
    rows = np.stack([np.ones_like(tokens), tokens / 1e3, squares / 1e6], axis=1)
    # Relative errors matter, not absolute ones: a small batch must be predicted as well.
    weight = 1.0 / np.maximum(took_ms, 1e-6)
    weighted = rows * weight[:, None]
    return _non_negative_solution(weighted.T @ weighted, weighted.T @ (took_ms * weight))


def _non_negative_solution(
    normal: NDArray[np.float64], right: NDArray[np.float64]
) -> tuple[float, float, float]:
    best = np.zeros(3)
    best_loss = 0.0
    for size in (1, 2, 3):
        for support in combinations(range(3), size):
            part = normal[np.ix_(support, support)] + 1e-12 * np.eye(size)
            solved = np.linalg.solve(part, right[list(support)])
            if (solved < 0).any():
                continue
            loss = float(solved @ normal[np.ix_(support, support)] @ solved) - 2.0 * float(
                solved @ right[list(support)]
            )
            if loss < best_loss - 1e-12:
                best = np.zeros(3)
                best[list(support)] = solved
                best_loss = loss
    return float(best[0]), float(best[1]), float(best[2])
