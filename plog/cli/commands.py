"""The table of our own tools, so that ``plog --help`` imports none of them.

Scanning every installed distribution for entry points costs more than all the rest of the command
(docs/decisions/0011); so the table names what setup.cfg declares under ``plog.commands``, and
tests/unit/cli/test_commands.py holds the two equal, and each summary to the tool's docstring.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import argparse

GROUP: Final = "plog.commands"

Configure: TypeAlias = "Callable[[argparse.ArgumentParser], None]"


class Command(NamedTuple):
    """One tool: its name, the function that configures its parser, and what it does."""

    name: str
    target: str
    """``module:function``, as in an entry point."""
    summary: str
    short_names: tuple[str, ...] = ()

    @property
    def is_installed(self) -> bool:
        """Whether its package is there: a client's installation may lack the broker's."""
        return importlib.util.find_spec(self.target.partition(".")[0]) is not None

    def load(self) -> Configure:
        """Import the tool."""
        module, _, function = self.target.partition(":")
        configure: Configure = getattr(importlib.import_module(module), function)
        return configure


COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        "completion",
        "plog.cli.completion:configure",
        "Print what makes a shell complete plog's commands and options.",
    ),
    Command(
        "dump-log",
        "plogd.tools.dump_log:configure",
        "Print what is in the files of a log: records, indexes, producer snapshots.",
    ),
    Command(
        "metadata-shell",
        "plogd.tools.metadata_shell:configure",
        "Walk through a cluster's metadata as if it were a file system, offline.",
        ("metadata",),
    ),
    Command(
        "storage",
        "plogd.tools.storage:configure",
        "Look after data directories, offline.",
    ),
)


def find_command(name: str, commands: tuple[Command, ...] = COMMANDS) -> Command | None:
    """The row with this name or short name."""
    return next((row for row in commands if name == row.name or name in row.short_names), None)
