"""What the README says is true today."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from streamer.cli.config import settings_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_settings_table_is_the_generated_one() -> None:
    found = re.search(r"<!-- settings -->\n(.*?)\n<!-- /settings -->", README, re.DOTALL)

    assert found, "README.md has no settings table"
    assert found[1].strip() == settings_table().strip(), (
        "put the output of `streamer config --markdown` between the settings marks of README.md"
    )


def test_every_make_verb_of_the_readme_exists() -> None:
    named = set(re.findall(r"`make ([a-z]+)", README)) | set(
        re.findall(r"^make ([a-z]+)", README, re.M)
    )
    verbs = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))

    assert {"demo", "test"} <= named
    assert named <= verbs


def test_every_command_of_the_readme_exists() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streamer", "--help"],
        capture_output=True, text=True, cwd=ROOT, check=True,
    )  # fmt: skip
    named = set(re.findall(r"`streamer ([a-z-]+)", README)) | set(
        re.findall(r"^streamer ([a-z-]+)", README, re.M)
    )

    assert named
    assert not {name for name in named if not re.search(rf"\b{name}\b", done.stdout)}


def test_nothing_names_a_machine_or_an_index() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout.split()
    banned = re.compile(r"/work/|/root/|pypi\.org|pythonhosted|repo1?\.maven|registry\.npmjs")

    wrong = [
        name
        for name in listed
        if (ROOT / name).is_file()
        and name != "tests/architecture/test_docs.py"
        and banned.search((ROOT / name).read_text(errors="ignore"))
    ]

    assert not wrong
