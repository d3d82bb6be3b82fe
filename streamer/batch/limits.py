"""How large a micro-batch may be and how long an item may wait for company. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, replace

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Bounds of one stream's micro-batches; one item over a bound still runs, alone.

    Attributes:
        items_max: items of a batch.
        tokens_max: padded tokens (longest × texts) of a batch; real tokens when packed.
        bytes_max: input bytes of a batch.
        predicted_ms_max: predicted time of a batch; inf = no bound.
        linger_ns: how long the oldest item waits for company while a slot is free.
        patience_ns: age at which an item without a deadline is as urgent as one that is due; it
            bounds how long deadlines of others can overtake it. At least ``linger_ns``.
        margin_ns: how long before its deadline a batch should be over.
        window_batches: how many batches of backlog are sorted together.
    """

    items_max: int = 256
    tokens_max: int = 2_048
    bytes_max: int = 8_388_608
    predicted_ms_max: float = float("inf")
    linger_ns: int = 0
    patience_ns: int = 2_000 * _NS_PER_MS
    margin_ns: int = 5 * _NS_PER_MS
    window_batches: int = 8

    def __post_init__(self) -> None:
        """Refuse bounds that nothing fits."""
        for name in ("items_max", "tokens_max", "bytes_max", "window_batches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.predicted_ms_max <= 0:
            raise ValueError("predicted_ms_max must be above 0")
        if self.linger_ns < 0 or self.patience_ns < self.linger_ns:
            raise ValueError("patience_ns must be at least linger_ns, and linger_ns at least 0")

    def within(self, budget: Budget | None) -> BatchLimits:
        """These limits, tightened by a momentary budget."""
        if budget is None:
            return self
        return replace(
            self,
            tokens_max=max(1, min(self.tokens_max, budget.tokens_max or self.tokens_max)),
            predicted_ms_max=min(self.predicted_ms_max, budget.ms_max or self.predicted_ms_max),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A tighter bound for one ``take``; 0 = none.

    Attributes:
        tokens_max: padded tokens.
        ms_max: predicted milliseconds, e.g. 40 for bulk while fast traffic is present.
    """

    tokens_max: int = 0
    ms_max: float = 0.0
