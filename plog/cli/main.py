"""Entry point of the `plog` command, which imports and runs the requested tool.

An expected error is printed as one line on standard error, with exit code 1. Any other exception is
a bug, and its traceback is printed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from plog.cli.commands import COMMANDS, GROUP, Command, Configure, find_command
from plog.cli.parser import Parser, add_version_option, fail, tool_parser
from plog.cli.standard_streams import open_closed_streams, show_warnings

FAILED: Final = 1
STOPPED: Final = 130
"""The exit code that a shell reports for a process terminated by SIGINT."""

_EPILOG = """\
'plog COMMAND --help' shows the options of a command, with examples. Other packages may add
commands, which are not listed here."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, or by default the process's own, and return the exit code."""
    # First, because otherwise the next file or socket would get a closed stream's descriptor.
    open_closed_streams()
    arguments = sys.argv[1:] if argv is None else list(argv)
    if "_ARGCOMPLETE" in os.environ:  # A shell requests completions.
        from plog.cli.completion import complete

        complete(os.environ)
    try:
        try:
            return run(arguments)
        finally:
            # Python would otherwise flush at exit, where a BrokenPipeError cannot be handled.
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does. Python flushes stdout again at exit, so
        # the rest of the output is redirected to the null device.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def run(arguments: Sequence[str], commands: tuple[Command, ...] = COMMANDS) -> int:
    """Run a command line and return its exit code."""
    # Users of git and other programs with commands first try 'plog help topics'.
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    # argparse's subparsers are not used, because they need the options of all tools and would
    # import every tool.
    if arguments and not arguments[0].startswith("-"):
        name = arguments[0]
        return run_tool(name, load_tool(name, commands), arguments[1:])
    parser = main_parser(commands)
    parser.parse_args(arguments)
    parser.error("no command specified")


def main_parser(commands: tuple[Command, ...] = COMMANDS) -> Parser:
    """Return the parser for `plog` itself, which provides its help."""
    parser = Parser(
        prog="plog",
        usage="plog COMMAND [OPTION]...",
        description="Tools for the plog log broker and for Apache Kafka.",
        epilog=_EPILOG,
    )
    add_version_option(parser)
    group = parser.add_argument_group("commands")
    for row in commands:
        if row.is_installed:
            names = ", ".join((row.name, *row.short_names))
            # Only for the list of commands in the help: `run` finds the command by the first
            # argument.
            group.add_argument(names, nargs="?", metavar=names, help=row.summary)
    return parser


def load_tool(name: str, commands: tuple[Command, ...] = COMMANDS) -> Configure:
    """Return a tool's configure function, which can come from another distribution."""
    row = find_command(name, commands)
    if row is not None and row.is_installed:
        return row.load()
    # Imported here because it is slow, and only needed for names that are not in the table.
    import importlib.metadata

    for entry in importlib.metadata.entry_points(group=GROUP):
        # setup.cfg also declares plog's own tools, which cannot be loaded if `plogd` is missing.
        if entry.name == name and row is None:
            configure: Configure = entry.load()
            return configure
    if row is not None:
        package = row.target.partition(".")[0]
        main_parser(commands).error(f"'{name}' requires {package}, which is not installed")
    main_parser(commands).error(f"unknown command '{name}'{_nearest(name, commands)}")


def _nearest(name: str, commands: tuple[Command, ...]) -> str:
    import difflib  # Only needed for a misspelled command.

    near = difflib.get_close_matches(name, [row.name for row in commands], n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def run_tool(name: str, configure: Configure, arguments: Sequence[str]) -> int:
    """Run a tool with the arguments after its name and return the exit code."""
    # A tool that starts another process passes the command line on.
    given = argparse.Namespace(command_line=list(arguments))
    parsed = tool_parser(name, configure).parse_args(arguments, given)
    # Imported here because parsing, help and version do not need it.
    from plog.error_base import PlogError

    show_warnings()
    try:
        code: int = parsed.run(parsed)
    # This OSError is not a failure of the tool; `main` handles it.
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
    """Return the message for an expected error.

    >>> describe(FileNotFoundError(2, "No such file or directory", "orders.txt"))
    'orders.txt: not found'
    """
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        from plog.error_base import reason_of

        return f"{os.fsdecode(error.filename)}: {reason_of(error)}"
    # A KafkaError without an argument has no text, but its `message` is the class docstring.
    text: object = getattr(error, "message", None) or error
    return str(text) or type(error).__name__
