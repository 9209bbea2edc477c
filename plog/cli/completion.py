"""``plog completion``: print shell code, and serve the shell's requests for completions.

argcomplete does the work (docs/decisions/0012): the shell runs ``plog`` itself with the request in
the environment, so the completions always match the parsers. argcomplete is imported only for such
requests.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import Final

from plog.cli.commands import COMMANDS, find_command
from plog.cli.parser import Parser, add_examples, add_version_option
from plog.error_base import PlogError

SHELLS: Final = ("bash", "zsh", "fish")
# argcomplete 2 (Debian bookworm) supports zsh only through zsh's emulation of bash completion.
_ZSH_HEAD = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"


def configure(parser: argparse.ArgumentParser) -> None:
    """Print the shell code that completes plog's commands and options."""
    parser.add_argument("shell", choices=SHELLS, help="the shell to print the code for")
    add_examples(
        parser,
        ("in bash, for this session", "source <(plog completion bash)"),
        ("in fish, permanently", "plog completion fish > ~/.config/fish/completions/plog.fish"),
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the code for the shell."""
    print(shell_code(arguments.shell))
    return 0


def shell_code(shell: str) -> str:
    """Return the code that the shell sources."""
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        raise PlogError(
            "cannot print completion code: argcomplete is missing; run pip install argcomplete"
        ) from None
    code: str = shellcode(["plog"], shell="bash" if shell == "zsh" else shell)
    return _ZSH_HEAD + code if shell == "zsh" else code


def complete(environment: Mapping[str, str]) -> None:
    """Print completions and exit the process; return if argcomplete is not installed."""
    try:
        import argcomplete
    except ImportError:
        return
    argcomplete.autocomplete(completion_parser(environment.get("COMP_LINE", "")))


def completion_parser(line: str) -> Parser:
    """Return a parser with the names of all commands and the options of the command in `line`.

    >>> "completion" in completion_parser("plog compl").format_help()
    True
    """
    words = _words(line)
    named = find_command(words[1]) if len(words) > 1 else None
    parser = Parser(prog="plog")
    add_version_option(parser)
    tools = parser.add_subparsers()
    for row in COMMANDS:
        for name in (row.name, *row.short_names):
            tool = tools.add_parser(name, help=row.summary)
            # Only the named tool is imported: each press of Tab runs this code.
            if row is named and row.is_installed:
                row.load()(tool)
                _offer_one_spelling(tool)
    return parser


def _offer_one_spelling(parser: argparse.ArgumentParser) -> None:
    """Offer only the current spelling of each option.

    If both ``--bootstrap-server`` and ``--bootstrap-servers`` were offered, a shell could not
    complete ``--boo`` to the end.
    """
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for tool in action.choices.values():
                _offer_one_spelling(tool)
        long = [spelling for spelling in action.option_strings if spelling.startswith("--")]
        short = [spelling for spelling in action.option_strings if spelling not in long]
        # argparse parses with another table; this list is only for display.
        action.option_strings = [*short, *long[:1]]


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # A quote is still open.
        return line.split()
