"""Questions sent at a fixed rate, timed from when each was *meant* to leave.

Open loop: a slow answer never delays the next question, so waiting cannot hide in the figures.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from streamer.client.result_item import ResultItem


@dataclass(frozen=True, slots=True)
class Answer:
    """One answered question: seconds from its intended send time, and its vector."""

    question: str
    latency_s: float
    item: ResultItem


@dataclass(slots=True)
class PacedQuestions:
    """A thread that asks ``questions`` at ``rate_hz`` through ``ask``.

    Args:
        ask: sends one question; its future ends with the answer.
    """

    ask: Callable[[str], Future[ResultItem]]
    questions: list[str]
    rate_hz: float
    answers: list[Answer] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    sent: int = 0
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to ask."""
        self._thread = threading.Thread(target=self._run, name="questions", daemon=True)
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        """Wait for the last question and its answer, at most ``timeout_s`` seconds."""
        until = time.monotonic() + timeout_s
        if self._thread is not None:
            self._thread.join(timeout_s)
        while len(self.answers) + len(self.failures) < len(self.questions):
            if time.monotonic() > until:
                raise TimeoutError(
                    f"{len(self.questions) - len(self.answers)} questions unanswered"
                )
            time.sleep(0.02)

    def _run(self) -> None:
        begin = time.monotonic()
        for number, question in enumerate(self.questions):
            meant = begin + number / self.rate_hz
            wait = meant - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            try:
                future = self.ask(question)
            except Exception as error:  # the run goes on; the failure is reported at the end
                self.failures.append(error)
                continue
            self.sent += 1
            future.add_done_callback(partial(self._done, question, meant))

    def _done(self, question: str, meant: float, done: Future[ResultItem]) -> None:
        latency_s = time.monotonic() - meant
        error = done.exception()
        if error is not None:
            self.failures.append(error)
        else:
            self.answers.append(Answer(question, latency_s, done.result()))


def percentile_ms(latencies_s: list[float], percent: float) -> float:
    """The smallest latency that ``percent`` of all do not exceed, in milliseconds."""
    if not latencies_s:
        return float("nan")
    ordered = sorted(latencies_s)
    rank = max(0, -(-len(ordered) * percent // 100) - 1)
    return round(ordered[int(rank)] * 1_000, 1)
