"""One budget of time, handed down: an unbounded wait cannot be written with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on the monotonic clock, in nanoseconds."""

    at_ns: int

    @classmethod
    def after(cls, now_ns: int, budget_ms: float) -> Deadline:
        """The deadline that lies ``budget_ms`` milliseconds after ``now_ns``."""
        return cls(now_ns + int(budget_ms * 1_000_000))

    def remaining_s(self, now_ns: int) -> float:
        """Seconds left, never below zero."""
        return max(0.0, (self.at_ns - now_ns) / 1e9)

    def passed(self, now_ns: int) -> bool:
        """Whether nothing is left."""
        return now_ns >= self.at_ns
