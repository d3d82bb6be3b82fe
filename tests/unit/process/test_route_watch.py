"""Hints may be missing or garbled; the thread that looks for them goes on."""

from __future__ import annotations

import pytest

from streamer.clock import SystemClock
from streamer.process.route_watch import RouteWatch


def _a_watch() -> RouteWatch:
    return RouteWatch(properties={}, lanes=[], plans_topic="plans", clock=SystemClock())


class _Fragile:
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.polls = 0

    def poll(self, timeout_s: float) -> None:
        self.polls += 1
        raise self.error


@pytest.mark.parametrize("error", [ValueError("secret words"), KeyError("x"), TimeoutError()])
def test_whatever_a_look_raises_is_logged_once_by_its_type(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    watch, admin = _a_watch(), _Fragile(error)

    for _ in range(3):
        watch._look(admin, None)  # type: ignore[arg-type]

    assert admin.polls == 3
    (line,) = caplog.records
    assert line.error == type(error).__name__
