"""Rules of CONTRIBUTING.md that can be checked: file sizes, docstrings, names, no sleeping.

The test only reads the sources. If a limit is exceeded, split the file instead of raising the
limit.
"""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINE_LENGTH_MAX = 100
FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500

LONGER_FILES = {
    # A table: one class for each error code of the protocol.
    "plog/errors.py": 600,
    # One state machine each. Rules that are nouns of their own have files; the remaining methods
    # share private state, and their order matters.
    "daemon/plogd/log/log.py": 540,
    "daemon/plogd/log/segment/log_segment.py": 540,
    "daemon/plogd/metadata/embedded_store.py": 540,
    # The facade of the consumer's engine: one short method for each call of an application.
    "plog/client/consumer/core.py": 540,
}
"""Files whose single noun needs more lines, with their own limits; reviewed like code."""

PRODUCT = ("plog", "daemon", "twisted")
TESTED = ("plog", "daemon/plogd", "tests", "examples")
# Files of tests/unit that test the whole tree instead of one module.
ABOUT_THE_TREE = {
    "test_docs",
    "test_faults_doc",
    "test_hot_path",
    "test_imports",
    "test_prose",
    "test_tidy",
}
# A load generator has to wait by the clock.
MAY_SLEEP = {ROOT / "tests/bench"}


def _sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


ALL_SOURCES = _sources(*PRODUCT, "examples", "tests")
every_source = pytest.mark.parametrize("path", ALL_SOURCES, ids=_name)


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@every_source
def test_files_lines_and_functions_stay_short(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    most = LONGER_FILES.get(_name(path), FILE_LINES_MAX)
    assert len(lines) <= most, "split the file at its second noun"
    too_long = [i for i, line in enumerate(lines, 1) if len(line) > LINE_LENGTH_MAX]
    assert too_long == []
    long_functions = {
        node.name: node.end_lineno - node.lineno + 1
        for node in _functions(ast.parse(text))
        if node.end_lineno is not None and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    }
    assert long_functions == {}


@every_source
def test_every_module_has_a_docstring(path: Path) -> None:
    text = path.read_text()
    if path.name == "__init__.py" and not text.strip():
        return
    assert ast.get_docstring(ast.parse(text)), "a module docstring is missing"


@every_source
def test_todo_has_an_issue_number(path: Path) -> None:
    marks = "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"))
    promise = re.compile(rf"\b({marks})\b(?!\(#\d+\))")
    found = [i for i, line in enumerate(path.read_text().splitlines(), 1) if promise.search(line)]
    assert found == []


@pytest.mark.parametrize("path", _sources("tests"), ids=_name)
def test_tests_wait_for_events_and_never_for_the_clock(path: Path) -> None:
    if MAY_SLEEP & set(path.parents):
        return
    sleeps = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep")
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "time"
            and "sleep" in [alias.name for alias in node.names]
        )
    ]
    assert sleeps == []


@pytest.mark.parametrize("path", _sources("tests/unit"), ids=_name)
def test_unit_test_file_is_named_after_its_module(path: Path) -> None:
    """tests/unit/log/test_log_segment[_aspect].py tests daemon/plogd/log/segment/log_segment.py.

    Likewise, tests/unit/bench tests the modules of tests/bench, and tests/unit/pipeline those of
    examples/pipeline.
    """
    if not path.stem.startswith("test_") or path.stem in ABOUT_THE_TREE:
        return
    folder = path.parent.relative_to(ROOT / "tests/unit")
    words = path.stem.removeprefix("test_").split("_")
    stems = ["_".join(words[:n]) for n in range(len(words), 0, -1)]
    places = [ROOT / top / folder / stem for top in TESTED for stem in stems]
    assert any(place.with_suffix(".py").exists() or place.is_dir() for place in places)


def test_every_folder_of_tests_is_a_package() -> None:
    """Packages distinguish two files with the same name in two folders."""
    folders = {path.parent for path in _sources("tests")}
    assert sorted(_name(x) for x in folders if not (x / "__init__.py").exists()) == []


def test_setup_cfg_lists_every_package() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = config["options"]["packages"].split()
    inits = [*(ROOT / "plog").rglob("__init__.py"), *(ROOT / "daemon").rglob("__init__.py")]
    packages = [
        ".".join(path.parent.relative_to(ROOT).parts).removeprefix("daemon.") for path in inits
    ]
    assert listed == [*sorted(packages), "twisted.plugins"]


def test_every_source_folder_is_a_package_except_the_plugin_folder() -> None:
    folders = {path.parent for path in _sources("plog", "daemon/plogd")}
    assert sorted(_name(x) for x in folders if not (x / "__init__.py").exists()) == []
    # Twisted finds other projects' plugins only in folders that are not packages.
    assert list((ROOT / "twisted").rglob("__init__.py")) == []


def test_every_entry_point_of_setup_cfg_exists() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    for group in config["options.entry_points"].values():
        for line in group.split("\n"):
            module, _, function = line.partition("=")[2].strip().partition(":")
            if module:
                _assert_defines(module, function)


def _assert_defines(module: str, function: str) -> None:
    top = ROOT / ("daemon" if module.startswith("plogd") else "")
    path = top.joinpath(*module.split(".")).with_suffix(".py")
    assert path.exists(), f"setup.cfg names {module}"
    if function:
        defined = {node.name for node in _functions(ast.parse(path.read_text()))}
        assert function in defined, f"setup.cfg names {module}:{function}"


@pytest.mark.parametrize("name", LONGER_FILES)
def test_file_with_a_limit_of_its_own_is_near_the_usual_limit(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    assert len(lines) > FILE_LINES_MAX - 10, "remove the file from LONGER_FILES"
