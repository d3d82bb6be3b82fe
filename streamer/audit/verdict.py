"""What an audit says."""

from __future__ import annotations

from dataclasses import dataclass, field

PROBLEMS_MAX = 50
LETTERS_MAX = 50


@dataclass(slots=True, kw_only=True)
class Verdict:
    """The result of one audit; ``ok`` only if everything is proven.

    Attributes:
        subject: what was audited.
        state: of the job; "" for a range.
        items: rows that must exist: the job's total, or the requests of the range.
        lost: accepted items without terminal record that can get none any more, and items expired
            although work had passed them without a result.
        duplicated: terminal records beyond the first of an item.
        misordered: rows that do not stand in their place.
        pending: accepted items that may still be answered.
        repeated_results: results that aggregate dropped as repeats; no fault of the output.
        problems: what is wrong, in words; the first 50.
        dead_letters: of the subject, or of its time when a letter names no job.
    """

    subject: str
    state: str = ""
    items: int = 0
    succeeded: int = 0
    errored: int = 0
    expired: int = 0
    cancelled: int = 0
    lost: int = 0
    duplicated: int = 0
    misordered: int = 0
    pending: int = 0
    repeated_results: int = 0
    problem_count: int = 0
    problems: list[str] = field(default_factory=list)
    dead_letters: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the promise was kept, and that is proven."""
        return not self.problem_count

    def problem(self, text: str) -> None:
        """Note something wrong; words are kept for the first ones."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(text)

    def letter(self, text: str) -> None:
        """Name a dead letter."""
        if len(self.dead_letters) < LETTERS_MAX:
            self.dead_letters.append(text)

    def count(self, status: str) -> None:
        """Count a terminal record by its state."""
        if status in ("succeeded", "errored", "expired", "cancelled"):
            setattr(self, status, getattr(self, status) + 1)
        else:
            self.problem(f"a row has the unknown state {status!r}")

    def fields(self) -> dict[str, object]:
        """For ``--json``."""
        names = (
            "subject", "state", "items", "succeeded", "errored", "expired", "cancelled", "lost",
            "duplicated", "misordered", "pending", "repeated_results", "ok", "problem_count",
            "problems", "dead_letters",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}
