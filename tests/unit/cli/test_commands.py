"""plog/cli/commands.py: the table matches setup.cfg and the docstrings of the tools."""

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


def test_table_matches_setup_cfg() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options.entry_points"][GROUP].strip().splitlines()
    declared = dict(map(str.strip, line.split("=")) for line in lines)
    listed = {name: row.target for row in COMMANDS for name in (row.name, *row.short_names)}
    assert declared == listed
    assert list(declared) == sorted(declared)


def test_table_is_sorted() -> None:
    assert [row.name for row in COMMANDS] == sorted(row.name for row in COMMANDS)


@every_command
def test_summary_matches_the_tools_docstring(row: Command) -> None:
    assert row.summary == first_line(row.load().__doc__)


@every_command
def test_help_has_examples_that_the_tool_accepts(row: Command) -> None:
    parser = tool_parser(row.name, row.load())
    assert f"usage: plog {row.name}" in parser.format_help()
    examples = [example for each in parsers_below(parser) for example in examples_of(each)]
    assert examples, "add_examples is missing"
    for example in examples:
        command, name, *words = shlex.split(example)
        if row.name != "completion":  # Its examples are shell commands.
            assert command == "plog"
            assert name in (row.name, *row.short_names)
            parser.parse_args(words)


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_library_tool_imports_no_slow_module_before_it_runs(row: Command) -> None:
    """Importing Twisted takes longer than a request; the others take tens of milliseconds."""
    module = row.target.partition(":")[0]
    if not module.startswith("plog."):
        return
    found = {name.partition(".")[0] for name in _imported_with(module)}
    assert found & {"twisted", "zope", "OpenSSL", "plogd", "crc32c", "kazoo"} == set()


def test_find_command_accepts_short_names_but_not_prefixes() -> None:
    assert find_command("metadata") is find_command("metadata-shell") is not None
    assert find_command("meta") is None


def _imported_with(module: str) -> set[str]:
    """Return all modules that importing `module` imports, according to the sources."""
    seen: set[str] = set()
    pending = [module]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        path = ROOT.joinpath(*name.split("."))
        file = path.with_suffix(".py")
        source = file if file.exists() else path / "__init__.py"
        if name.startswith("plog") and source.exists():
            pending += _imports(ast.parse(source.read_text()))
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
