"""plog/cli/commands.py: the table is what setup.cfg declares and what the tools say they do."""

from __future__ import annotations

import ast
import configparser
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from plog.cli.commands import COMMANDS, GROUP, Command, find_command
from plog.cli.docs import parsers_below
from plog.cli.parser import examples_of, first_line, tool_parser

ROOT = Path(__file__).parents[3]
every_command = pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)


def test_the_table_is_what_setup_cfg_declares() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options.entry_points"][GROUP].strip().splitlines()
    declared = dict(map(str.strip, line.split("=")) for line in lines)
    ours = {name: row.target for row in COMMANDS for name in (row.name, *row.short_names)}
    assert declared == ours
    assert list(declared) == sorted(declared)


def test_the_table_is_in_order() -> None:
    assert [row.name for row in COMMANDS] == sorted(row.name for row in COMMANDS)


@every_command
def test_a_summary_is_what_the_tool_says_of_itself(row: Command) -> None:
    assert row.summary == first_line(row.load().__doc__)


@every_command
def test_a_tool_has_help_with_examples_that_it_takes_itself(row: Command) -> None:
    parser = tool_parser(row.name, row.load())
    assert f"usage: plog {row.name}" in parser.format_help()
    examples = [example for each in parsers_below(parser) for example in examples_of(each)]
    assert examples, "add_examples is missing"
    for example in examples:
        command, name, *words = shlex.split(example)
        if row.name != "completion":  # Those are about what shells do with its output.
            assert command == "plog"
            assert name in (row.name, *row.short_names)
            parser.parse_args(words)


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_a_tool_of_the_library_imports_nothing_slow_before_it_runs(row: Command) -> None:
    """Importing Twisted takes longer than a whole answer may, the others tens of milliseconds."""
    module = row.target.partition(":")[0]
    if not module.startswith("plog."):
        return
    found = {name.partition(".")[0] for name in _imported_with(module)}
    assert found & {"twisted", "zope", "OpenSSL", "plogd", "crc32c", "kazoo"} == set()


def test_short_names_are_found() -> None:
    assert find_command("metadata") is find_command("metadata-shell") is not None
    assert find_command("meta") is None


def _imported_with(module: str) -> set[str]:
    """Everything that is imported when `module` is, by the sources."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        path = ROOT.joinpath(*name.split("."))
        file = path.with_suffix(".py")
        source = file if file.exists() else path / "__init__.py"
        if name.startswith("plog") and source.exists():
            waiting += _imports(ast.parse(source.read_text()))
    return seen


def _imports(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not (
            isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        ):
            yield from _imports(child)
