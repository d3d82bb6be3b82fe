"""Files a reader takes in at one sitting, functions on one screen, no leftovers."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 300
TEST_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
LEFTOVER = re.compile(r"\b(FIXME|XXX|HACK)\b|\bTODO\b(?!\(#\d+\))")


def _sources() -> list[Path]:
    return sorted(
        path
        for folder in ("streamer", "loadgen", "tests")
        for path in (ROOT / folder).rglob("*.py")
    )


@pytest.mark.parametrize("path", _sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_is_read_at_one_sitting(path: Path) -> None:
    text = path.read_text()
    limit = TEST_LINES_MAX if path.is_relative_to(ROOT / "tests") else FILE_LINES_MAX

    assert text.count("\n") <= limit
    if path != Path(__file__):
        assert not LEFTOVER.search(text)


@pytest.mark.parametrize("path", _sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_function_fits_one_screen(path: Path) -> None:
    long = [
        f"{node.name} ({node.end_lineno - node.lineno + 1} lines)"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]

    assert not long


@pytest.mark.parametrize(
    "path",
    [p for layer in ("unit", "property") for p in sorted((ROOT / "tests" / layer).rglob("*.py"))],
    ids=lambda p: str(p.relative_to(ROOT)),
)  # fmt: skip
def test_unit_tests_never_sleep(path: Path) -> None:
    calls = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sleep"
    ]

    assert not calls


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "streamer").rglob("*.py")
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]

    assert not silent
