"""Kafka's jars: fetched once, checked against their pins, all or none; Maven is a script here."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamer.errors import ConfigurationError
from streamer.stack import kafka_jars as subject
from streamer.stack.kafka_jars import kafka_jars, read_pins, recipe_folder, verify_jars

_MAVEN = """#!/bin/sh
for word in "$@"; do case "$word" in -DoutputDirectory=*) out="${word#*=}";; esac; done
echo run >> "%s"
test -f "%s" && { echo "no such artifact"; exit 1; }
printf one > "$out/one.jar"
printf two > "$out/two.jar"
"""


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the Maven script counts its runs; ``broken`` beside it makes it fail."""
    counter = tmp_path / "runs"
    script = tmp_path / "bin" / "mvn"
    script.parent.mkdir()
    script.write_text(_MAVEN % (counter, tmp_path / "broken"))
    script.chmod(0o755)
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "pom.xml").touch()
    _pin(recipe, one=b"one", two=b"two")
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
    monkeypatch.setattr(subject, "recipe_folder", lambda: recipe)
    return counter


def _pin(recipe: Path, **jars: bytes) -> None:
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}.jar\n" for name, data in jars.items()]
    (recipe / "jars.sha256").write_text("".join(lines))


def test_many_first_starts_at_once_fetch_once(runs: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: kafka_jars(tmp_path / "cache"), range(4)))

    (folder,) = folders
    assert {path.name for path in folder.iterdir()} == {"one.jar", "two.jar"}
    assert runs.read_text() == "run\n"


def test_a_jar_with_other_bytes_is_refused_and_nothing_is_kept(runs: Path, tmp_path: Path) -> None:
    _pin(tmp_path / "recipe", one=b"one", two=b"other")

    with pytest.raises(ConfigurationError, match=r"two\.jar"):
        kafka_jars(tmp_path / "cache")

    assert runs.exists()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_a_jar_that_nobody_pinned_is_refused(runs: Path, tmp_path: Path) -> None:
    _pin(tmp_path / "recipe", one=b"one")

    with pytest.raises(ConfigurationError, match=r"two\.jar"):
        kafka_jars(tmp_path / "cache")


def test_other_pins_have_another_folder(runs: Path, tmp_path: Path) -> None:
    first = kafka_jars(tmp_path / "cache")
    pins = tmp_path / "recipe" / "jars.sha256"
    pins.write_text("".join(reversed(pins.read_text().splitlines(keepends=True))))

    assert kafka_jars(tmp_path / "cache") != first


@pytest.mark.usefixtures("runs")
def test_a_failure_of_maven_is_told_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()

    with pytest.raises(ConfigurationError, match="no such artifact"):
        kafka_jars(tmp_path / "cache")


def test_no_maven_comes_with_a_remedy(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigurationError, match="install it"):
        kafka_jars(tmp_path / "cache")
    assert not runs.exists()


def test_the_recipe_pins_the_server_and_the_tools_of_one_version() -> None:
    pins = read_pins(recipe_folder() / "jars.sha256")

    version = subject.KAFKA_VERSION
    assert {f"kafka_2.13-{version}.jar", f"kafka-tools-{version}.jar"} <= pins.keys()
    assert all(len(digest) == 64 for digest in pins.values())
    assert "://" not in (recipe_folder() / "pom.xml").read_text()


def test_a_missing_jar_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.jar"):
        verify_jars(tmp_path, {"gone.jar": "00"})
