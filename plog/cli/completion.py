"""``plog completion``: print shell code that completes command lines, and answer its requests.

For each completion, the shell code runs ``plog`` with the request in environment variables, and the
package argcomplete computes the completions from the parsers (docs/decisions/0012). Completions
therefore always match the installed tools.
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
    """Print shell code for completing plog's commands and options."""
    parser.add_argument("shell", choices=SHELLS, help="shell for which to print the code")
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
    """Return the code that the user's shell sources. Raises PlogError."""
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        raise PlogError(
            "cannot print completion code: argcomplete is missing; run pip install argcomplete"
        ) from None
    code: str = shellcode(["plog"], shell="bash" if shell == "zsh" else shell)
    return _ZSH_HEAD + code if shell == "zsh" else code


def complete(environment: Mapping[str, str]) -> None:
    """Print completions and exit the process, or return if argcomplete is not installed."""
    try:
        import argcomplete
    except ImportError:
        return
    # It exits the process itself, so that the command that is being completed never runs.
    argcomplete.autocomplete(completion_parser(environment.get("COMP_LINE", "")))


def completion_parser(line: str) -> Parser:
    """Return a parser with all command names and the options of the command in `line`.

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
            # Only the named tool is imported, because this code runs whenever the user presses Tab.
            if row is named and row.is_installed:
                row.load()(tool)
                _offer_one_spelling(tool)
    return parser


def _offer_one_spelling(parser: argparse.ArgumentParser) -> None:
    """Offer only the current spelling of each option for completion."""
    # With both --bootstrap-server and --bootstrap-servers, a shell could not complete --boo fully.
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for tool in action.choices.values():
                _offer_one_spelling(tool)
        long = [spelling for spelling in action.option_strings if spelling.startswith("--")]
        short = [spelling for spelling in action.option_strings if spelling not in long]
        # argparse does not use this list to parse, so older spellings are still accepted.
        action.option_strings = [*short, *long[:1]]


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # The user has not closed a quote yet.
        return line.split()
