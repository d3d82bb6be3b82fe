"""The doctor: says what is there, and for what is missing how to get it."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamer.settings import Settings
from streamer.stack.doctor import FIX, NOTE, OK, Finding, examine
from streamer.stack.local import FAKE_MODELS

pytestmark = pytest.mark.integration


def _findings(settings: Settings, root: Path, *, own_broker: bool = True) -> dict[str, Finding]:
    return {one.name: one for one in examine(settings, root, own_broker=own_broker)}


def _settings(bootstrap: str, prefix: str, **model: str) -> Settings:
    kafka = {"bootstrap": bootstrap, "prefix": prefix}
    return Settings(kafka=kafka, models={"one": model} if model else FAKE_MODELS)


def test_all_is_well_on_a_broker_of_our_own(kafka: str, prefix: str, tmp_path: Path) -> None:
    found = _findings(_settings(kafka, prefix), tmp_path)

    assert {one.state for name, one in found.items() if name != "topics"} == {OK}
    assert found["topics"].state == NOTE
    assert "missing" in found["topics"].text + found["topics"].remedy


def test_no_broker_no_java_no_model_each_come_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    found = _findings(_settings("127.0.0.1:1", "p.", path="/nowhere"), tmp_path)

    assert {name for name, one in found.items() if one.state == FIX} == {
        "java", "maven", "model one",
    }  # fmt: skip
    assert all(found[name].remedy for name in ("java", "maven", "model one", "broker"))


def test_java_is_not_needed_for_a_cluster_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    found = _findings(_settings("127.0.0.1:1", "p."), tmp_path, own_broker=False)

    assert found["java"].state == NOTE
