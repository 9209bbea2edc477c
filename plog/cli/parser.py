"""An argparse parser with the habits all tools share: one line for an error, examples in the help.

An error is a single line on standard error and exit code 1, as Kafka's tools have it, and names the
help instead of printing it. Options cannot be abbreviated: a script that leans on a prefix breaks
with the next option that shares it, and Kafka's tools take none either.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

from plog.version import VERSION

USAGE_ERROR: Final = 1
_MANY_OPTIONS: Final = 6


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Options in one column, as wide as the terminal allows; examples stay as they were written."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=32, **options)


class Parser(argparse.ArgumentParser):
    """The parser of a tool, or of a tool below a tool."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", HelpFormatter)
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong and where the help is; exit code 1."""
        text = " ".join(message.split())
        self.exit(USAGE_ERROR, f"plog: {text}; see '{self.prog} --help'\n")

    def format_help(self) -> str:
        """The help; a tool of many options has them in the list alone."""
        if self.usage is None and self._too_many_for_usage():
            self.usage = " ".join(["%(prog)s [OPTION]...", *self._positional_names()])
        return super().format_help()

    def _too_many_for_usage(self) -> bool:
        return sum(bool(action.option_strings) for action in self._actions) > _MANY_OPTIONS

    def _positional_names(self) -> list[str]:
        # argparse offers no other way to ask a parser what it takes.
        actions = [action for action in self._actions if not action.option_strings]
        return [str(action.metavar or action.dest) for action in actions]


def tool_parser(name: str, configure: Callable[[argparse.ArgumentParser], None]) -> Parser:
    """The parser of the tool `name`, with all its options."""
    parser = Parser(prog=f"plog {name}", description=first_line(configure.__doc__))
    configure(parser)
    add_version_option(parser)
    return parser


def add_version_option(parser: argparse.ArgumentParser) -> None:
    """``--version``, as every tool takes it."""
    parser.add_argument(
        "--version", action=_ShowVersion, nargs=0, help="show program's version number and exit"
    )


def version_line() -> str:
    """What ``--version`` prints: also whether records go through compiled code or much slower."""
    from plog.records import codec_is_compiled  # Costs more than the rest of the command.

    return f"plog {VERSION} ({'compiled' if codec_is_compiled() else 'interpreted'} codec)"


class _ShowVersion(argparse.Action):
    """Print the version and end; argparse's own wants to know the text before it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> NoReturn:
        print(version_line())
        parser.exit()


def add_examples(parser: argparse.ArgumentParser, *examples: tuple[str, str]) -> None:
    """Let the help end with examples, each what it does and the whole command line."""
    lines = ["examples:"]
    for what, command_line in examples:
        lines += [f"  {what}:", f"    {command_line}"]
    parser.epilog = "\n".join(lines)


def examples_of(parser: argparse.ArgumentParser) -> list[str]:
    """The command lines `add_examples` was given."""
    lines = (parser.epilog or "").splitlines()
    return [line.strip() for line in lines if line.startswith("    ")]


def first_line(docstring: str | None) -> str:
    """The sentence a docstring begins with.

    >>> first_line("Look after data directories.\\n\\n    More.")
    'Look after data directories.'
    """
    return (docstring or "").strip().partition("\n")[0]


def fail(problem: str) -> None:
    """Say on standard error what went wrong."""
    print(f"plog: {problem}", file=sys.stderr)
