"""The argparse parser for all tools, with one-line errors, and help that ends with examples.

An error is a single line on standard error, which refers to the help instead of printing it. As in
Kafka's tools, the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

from plog.version import VERSION

USAGE_ERROR: Final = 1  # argparse would exit with 2.
_MANY_OPTIONS: Final = 6
"""Maximum number of options that the usage line lists."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats help with a wide option column, and does not reflow examples."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=32, **options)


class Parser(argparse.ArgumentParser):
    """The parser of a tool or of one of its subcommands."""

    usage_error = USAGE_ERROR
    """The exit code of `error`."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", HelpFormatter)
        # A script that uses the prefix of an option would break when another option with the same
        # prefix is added. Kafka's tools do not accept prefixes either.
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """Print the error and a reference to the help in one line, and exit."""
        text = " ".join(message.split())  # A message can repeat a value with line breaks.
        text += self._suggestion(text)
        self.exit(self.usage_error, f"plog: {text}; see '{self.prog} --help'\n")

    def _suggestion(self, message: str) -> str:
        """Return a hint if `message` names an option that the parser does not have."""
        known = [name for action in self._actions for name in action.option_strings]
        for word in message.split():
            option = word.rstrip(":;,").partition("=")[0]
            if option.startswith("--") and option not in known:
                # Imported here because most command lines do not need it.
                import difflib

                near = difflib.get_close_matches(option, known, n=1, cutoff=0.75)
                return f"; did you mean {near[0]}?" if near else ""
        return ""

    def format_help(self) -> str:
        """Return the help text."""
        if self.usage is None and self._too_many_for_usage():
            # A long usage line would only repeat the names in the list of options that follows.
            self.usage = " ".join(["%(prog)s [OPTION]...", *self._positional_names()])
        return super().format_help()

    def _too_many_for_usage(self) -> bool:
        return sum(bool(action.option_strings) for action in self._actions) > _MANY_OPTIONS

    def _positional_names(self) -> list[str]:
        # argparse has no public attribute that lists a parser's arguments.
        actions = [action for action in self._actions if not action.option_strings]
        return [str(action.metavar or action.dest) for action in actions]


def tool_parser(name: str, configure: Callable[[argparse.ArgumentParser], None]) -> Parser:
    """Return the parser of the tool `name`, including all options."""
    parser = Parser(prog=f"plog {name}", description=first_line(configure.__doc__))
    configure(parser)
    add_version_option(parser)
    return parser


def add_version_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--version``, which every tool accepts."""
    parser.add_argument(
        "--version", action=_ShowVersion, nargs=0, help="show program's version number and exit"
    )


def version_line() -> str:
    """Return the text of ``--version``, including whether the record codec is compiled."""
    # Imported here because the import takes longer than the rest of the command.
    from plog.records import codec_is_compiled

    return f"plog {VERSION} ({'compiled' if codec_is_compiled() else 'interpreted'} codec)"


class _ShowVersion(argparse.Action):
    """Prints the version and exits."""

    # argparse's own action needs the text in advance, which would slow down every command.
    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> NoReturn:
        print(version_line())
        parser.exit()


def add_examples(parser: argparse.ArgumentParser, *examples: tuple[str, str]) -> None:
    """Append examples to the help; each is a description and a complete command line."""
    lines = ["examples:"]
    for description, command_line in examples:
        lines += [f"  {description}:", f"    {command_line}"]
    parser.epilog = "\n".join(lines)


def examples_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the command lines passed to `add_examples`."""
    lines = (parser.epilog or "").splitlines()
    return [line.strip() for line in lines if line.startswith("    ")]


def first_line(docstring: str | None) -> str:
    """Return the first line of a docstring.

    >>> first_line("Format and inspect data directories.\\n\\n    More.")
    'Format and inspect data directories.'
    """
    return (docstring or "").strip().partition("\n")[0]


def fail(problem: str) -> None:
    """Print an error on standard error."""
    print(f"plog: {problem}", file=sys.stderr)
