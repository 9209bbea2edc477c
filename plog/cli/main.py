"""Parsing the command line of `plog` and running what it names; see the package's text.

Only the tool that was named is imported. An error that was raised on purpose is a line on standard
error, and the exit code 1; anything else is a bug, and shows its traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from plog.cli.commands import COMMANDS, GROUP, Command, Configure, find_command
from plog.cli.parser import Parser, add_version_option, fail, tool_parser
from plog.cli.standard_streams import open_closed_streams, show_warnings

FAILED: Final = 1
STOPPED: Final = 130
"""As a shell reports a process that ended by SIGINT."""

_EPILOG = """\
'plog COMMAND --help' tells more, with examples. Other packages may bring further commands,
which are not listed here."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, or the process' own; its exit code."""
    open_closed_streams()
    arguments = sys.argv[1:] if argv is None else list(argv)
    if "_ARGCOMPLETE" in os.environ:
        from plog.cli.completion import complete

        complete(os.environ)
    try:
        try:
            return run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Who reads has seen enough. Python flushes once more at its end: into nothing then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def run(arguments: Sequence[str], commands: tuple[Command, ...] = COMMANDS) -> int:
    """Run a command line; its exit code."""
    if arguments[:1] == ["help"]:  # As in other programs with commands: 'help topics'.
        arguments = [*arguments[1:2], "--help"]
    if arguments and not arguments[0].startswith("-"):
        name = arguments[0]
        return run_tool(name, load_tool(name, commands), arguments[1:])
    parser = frame_parser(commands)
    parser.parse_args(arguments)
    parser.error("name a command")


def frame_parser(commands: tuple[Command, ...] = COMMANDS) -> Parser:
    """The parser of `plog` itself: what its help shows."""
    parser = Parser(
        prog="plog",
        usage="plog COMMAND [OPTION]...",
        description="Tools for the log broker plog, and for Apache Kafka.",
        epilog=_EPILOG,
    )
    add_version_option(parser)
    group = parser.add_argument_group("commands")
    for row in commands:
        if row.is_installed:
            names = ", ".join((row.name, *row.short_names))
            # Only to be listed: what begins a command line is looked up by `run`.
            group.add_argument(names, nargs="?", metavar=names, help=row.summary)
    return parser


def load_tool(name: str, commands: tuple[Command, ...] = COMMANDS) -> Configure:
    """The function behind a name: one of ours, or what another distribution brings."""
    row = find_command(name, commands)
    if row is not None and row.is_installed:
        return row.load()
    import importlib.metadata  # Slow: only for who is not in the table.

    for entry in importlib.metadata.entry_points(group=GROUP):
        if entry.name == name and row is None:
            configure: Configure = entry.load()
            return configure
    if row is not None:
        package = row.target.partition(".")[0]
        frame_parser(commands).error(f"'{name}' belongs to {package}, which is not installed")
    frame_parser(commands).error(f"there is no command '{name}'{_nearest(name, commands)}")


def _nearest(name: str, commands: tuple[Command, ...]) -> str:
    import difflib

    near = difflib.get_close_matches(name, [row.name for row in commands], n=1)
    return f", did you mean '{near[0]}'?" if near else ""


def run_tool(name: str, configure: Configure, arguments: Sequence[str]) -> int:
    """Run one tool with what stands behind its name; its exit code."""
    parsed = tool_parser(name, configure).parse_args(arguments)
    from plog.error_base import PlogError  # Not before there is work to do.

    show_warnings()
    try:
        code: int = parsed.run(parsed)
    except BrokenPipeError:
        raise
    except (PlogError, OSError) as error:
        for line in describe(error).splitlines():
            fail(line)
        return FAILED
    except KeyboardInterrupt:
        fail("stopped")
        return STOPPED
    return code


def describe(error: Exception) -> str:
    """What an error that was raised on purpose tells people.

    >>> describe(FileNotFoundError(2, "No such file or directory", "orders.txt"))
    'orders.txt: not found'
    """
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        from plog.error_base import reason_of

        return f"{os.fsdecode(error.filename)}: {reason_of(error)}"
    text: object = getattr(error, "message", None) or error
    return str(text) or type(error).__name__
