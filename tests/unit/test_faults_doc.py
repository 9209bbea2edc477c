"""docs/faults.md has a section for every fault in the list, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"
NUMBERS = [*range(1, 27), *range(28, 32), 35, 36, *range(38, 52)]
HEADING = re.compile(r"^## F(\d+) \S", re.MULTILINE)
TEST_NAME = re.compile(r"`(tests/[^`]*)`")


def _sections() -> dict[int, str]:
    pieces = HEADING.split(PAGE.read_text())
    return dict(zip(map(int, pieces[1::2]), pieces[2::2], strict=True))


def _named_tests(text: str) -> list[str]:
    return [name for name in TEST_NAME.findall(text) if "::" in name]


@cache
def _defined(path: Path) -> frozenset[str]:
    """Return ``test_name`` and ``TestClass::test_name`` for each test of a file."""
    return frozenset(_walk(ast.parse(path.read_text()).body, ""))


def _walk(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _walk(node.body, f"{prefix}{node.name}::")


def test_every_fault_has_one_section_in_order() -> None:
    found = [int(number) for number in HEADING.findall(PAGE.read_text())]
    assert found == sorted(set(found))
    assert [number for number in NUMBERS if number not in found] == []


@pytest.mark.parametrize("number", NUMBERS)
def test_every_fault_has_a_promise_and_a_test(number: int) -> None:
    section = _sections()[number]
    assert "**Promise.**" in section
    assert _named_tests(section)


def test_every_test_named_in_the_page_exists() -> None:
    missing = []
    for name in _named_tests(PAGE.read_text()):
        path, _, test = name.partition("::")
        if not (ROOT / path).is_file() or test not in _defined(ROOT / path):
            missing.append(name)
    assert missing == []
