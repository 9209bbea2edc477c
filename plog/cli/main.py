"""The entry point of `plog`: parse the command line and run the requested tool.

Only that tool is imported. An expected error is printed as one line on standard error, with exit
code 1; any other exception is a bug, and its traceback is printed.
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
"""The exit code that a shell reports for a process terminated by SIGINT."""

_EPILOG = """\
'plog COMMAND --help' shows the options of a command, with examples. Other packages may add
commands, which are not listed here."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, by default that of the process, and return the exit code."""
    # First, because the next file or socket would get the descriptor of a closed stream.
    open_closed_streams()
    arguments = sys.argv[1:] if argv is None else list(argv)
    if "_ARGCOMPLETE" in os.environ:  # A shell requests completions.
        from plog.cli.completion import complete

        complete(os.environ)
    try:
        try:
            return run(arguments)
        finally:
            # Otherwise, a broken pipe would raise at exit, where it can no longer be handled.
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe. Python flushes stdout again at exit: discard that output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def run(arguments: Sequence[str], commands: tuple[Command, ...] = COMMANDS) -> int:
    """Run a command line and return its exit code."""
    if arguments[:1] == ["help"]:  # As in other programs with commands: 'help topics'.
        arguments = [*arguments[1:2], "--help"]
    # Subparsers of argparse would need the options of all tools, and therefore import all tools.
    if arguments and not arguments[0].startswith("-"):
        name = arguments[0]
        return run_tool(name, load_tool(name, commands), arguments[1:])
    parser = main_parser(commands)
    parser.parse_args(arguments)
    parser.error("no command given")


def main_parser(commands: tuple[Command, ...] = COMMANDS) -> Parser:
    """Return the parser of `plog` itself, which provides its help."""
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
            # For the listing only: `run` finds the command by the first argument.
            group.add_argument(names, nargs="?", metavar=names, help=row.summary)
    return parser


def load_tool(name: str, commands: tuple[Command, ...] = COMMANDS) -> Configure:
    """Return the configure function of a tool, from plog or from another distribution."""
    row = find_command(name, commands)
    if row is not None and row.is_installed:
        return row.load()
    # Imported here because it is slow, and only needed for names that are not in the table.
    import importlib.metadata

    for entry in importlib.metadata.entry_points(group=GROUP):
        # setup.cfg also declares plog's own tools; one whose package is missing cannot be loaded.
        if entry.name == name and row is None:
            configure: Configure = entry.load()
            return configure
    if row is not None:
        package = row.target.partition(".")[0]
        main_parser(commands).error(f"'{name}' requires {package}, which is not installed")
    main_parser(commands).error(f"unknown command '{name}'{_nearest(name, commands)}")


def _nearest(name: str, commands: tuple[Command, ...]) -> str:
    import difflib

    near = difflib.get_close_matches(name, [row.name for row in commands], n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def run_tool(name: str, configure: Configure, arguments: Sequence[str]) -> int:
    """Run a tool with the arguments after its name and return the exit code."""
    parsed = tool_parser(name, configure).parse_args(arguments)
    # Imported here because parsing, help and version do not need it.
    from plog.error_base import PlogError

    show_warnings()
    try:
        code: int = parsed.run(parsed)
    except BrokenPipeError:  # An OSError, but not a failure of the tool; `main` handles it.
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
    """Return the message of an expected error.

    >>> describe(FileNotFoundError(2, "No such file or directory", "orders.txt"))
    'orders.txt: not found'
    """
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        from plog.error_base import reason_of

        return f"{os.fsdecode(error.filename)}: {reason_of(error)}"
    # A KafkaError without an argument has no text; its `message` is the description of its class.
    text: object = getattr(error, "message", None) or error
    return str(text) or type(error).__name__
