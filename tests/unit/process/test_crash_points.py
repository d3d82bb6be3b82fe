from __future__ import annotations

from pathlib import Path

import pytest

from streamer.process import crash_points as module
from streamer.process.crash_points import crash_points, no_crash


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    died: list[str] = []
    monkeypatch.setattr(module, "_die", lambda: died.append("killed"))
    return died


def test_nothing_happens_unless_asked() -> None:
    assert crash_points("work.bulk", {}) is no_crash
    assert crash_points("work.bulk", {"STREAMER_CRASH_AT": "work.fast.after_poll"}) is no_crash
    assert crash_points("work.bulk", {"STREAMER_CRASH_AT": "work.bulk.nowhere:2"}) is no_crash


def test_it_dies_at_the_nth_visit_of_its_own_point(deaths: list[str]) -> None:
    crash = crash_points(
        "work.bulk", {"STREAMER_CRASH_AT": "route.fast.after_poll, work.bulk.after_produce:3"}
    )

    for _ in range(2):
        crash("after_produce")
        crash("after_poll")
    assert deaths == []

    crash("after_produce")

    assert deaths == ["killed"]


def test_with_a_file_it_dies_once_for_all_successors(deaths: list[str], tmp_path: Path) -> None:
    environ = {
        "STREAMER_CRASH_AT": "work.bulk.after_poll",
        "STREAMER_CRASH_ONCE": str(tmp_path / "died"),
    }

    for _ in range(3):
        crash_points("work.bulk", environ)("after_poll")

    assert deaths == ["killed"]
    assert [path.name for path in tmp_path.iterdir()] == ["died.work.bulk.after_poll"]
