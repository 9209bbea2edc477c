"""Parsing the command line of `plog` and running what it names; see the package's text."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from plog.errors import PlogError

GROUP = "plog.commands"

Configure: TypeAlias = Callable[[argparse.ArgumentParser], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, or the process' own; its exit code."""
    return run(installed_commands(), argv)


def installed_commands() -> dict[str, Configure]:
    """Every subcommand that some installed distribution brings, by name."""
    found = importlib.metadata.entry_points(group=GROUP)
    return {entry.name: entry.load() for entry in sorted(found, key=lambda entry: entry.name)}


def run(commands: dict[str, Configure], argv: Sequence[str] | None = None) -> int:
    """Run a command line with these subcommands; its exit code."""
    parser = argparse.ArgumentParser(prog="plog", description="Tools for the log broker plog.")
    parser.add_argument("--version", action="version", version=f"plog {_version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, configure in commands.items():
        summary = first_line(configure.__doc__)
        configure(subparsers.add_parser(name, help=summary, description=summary))
    arguments = parser.parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except (PlogError, OSError) as error:
        fail(str(error).splitlines())
        return 1
    except KeyboardInterrupt:
        fail(["stopped"])
        return 1
    return code


def fail(problems: Iterable[str]) -> None:
    """Say on standard error what went wrong, a line each."""
    for problem in problems:
        print(f"plog: {problem}", file=sys.stderr)


def first_line(docstring: str | None) -> str:
    """The sentence a docstring begins with.

    >>> first_line("Look after data directories.\\n\\n    More.")
    'Look after data directories.'
    """
    return (docstring or "").strip().partition("\n")[0]


def _version() -> str:
    try:
        return importlib.metadata.version("plog")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
