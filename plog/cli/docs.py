"""docs/cli.md, made from the parsers: ``python -m plog.cli.docs > docs/cli.md``.

tests/unit/cli/test_docs.py holds the file to this, so that it never tells of an option that is not
there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from plog.cli.commands import COMMANDS
from plog.cli.parser import examples_of, tool_parser

_HEAD = """\
# The `plog` command

<!-- Made by `python -m plog.cli.docs > docs/cli.md` from the parsers; do not edit. -->

Every tool keeps the names, flags, columns and exit codes of Apache Kafka's script: a line of
Kafka's documentation works once `kafka-topics.sh` reads `plog topics`. Older spellings of a flag
stand behind today's. The tools work against plog and against Apache Kafka.

On a terminal results are tables (bold heads unless `NO_COLOR` is set); in a pipe or a file they
are what Kafka's tool prints; with `--json`, where a tool has it, one JSON document. What goes
wrong is one line on standard error. Exit codes: 0 done, 1 refused, failed or wrongly used, 130
stopped by Ctrl-C. Every tool also takes `--help` and `--version`.

Differences from Kafka's tools, each to protect data or to let scripts notice a failure:

| command | Apache Kafka | plog |
|---|---|---|
| `topics --delete` and `--alter` | `--topic web.log` is a pattern and also means `web-log` \
| a name means that topic alone; a pattern needs `--regex`, or a character that no topic name \
can have; deleted topics are printed |
| `configs --describe` of something that does not exist | exits with 0 | exits with 1 |
| `consumer-groups` for a missing group, offsets of a group with members, a failed deletion, \
unreachable brokers | exits with 0 | exits with 1 |
| `cluster unregister` where the cluster cannot do it | exits with 0 | exits with 1 |
| `console-consumer` of a missing topic or partition | creates the topic, or waits | never creates \
a topic; exits with 1 |
| `configs` for SCRAM users | | prints `stored, not enforced` if the broker says so |

`source <(plog completion bash)` makes the shell complete commands and options.
"""


def markdown() -> str:
    """The whole page."""
    parts = [_HEAD, "| command | what it does |\n|---|---|"]
    for row in COMMANDS:
        short = "".join(f", `plog {name}`" for name in row.short_names)
        parts[-1] += f"\n| [`plog {row.name}`](#plog-{row.name}){short} | {row.summary} |"
    for row in COMMANDS:
        parser = tool_parser(row.name, row.load())
        parts.append("\n\n".join(_sections(parser, 2)))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _sections(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """A tool's section, and one for each tool below it."""
    for each in parsers_below(parser):
        depth = each.prog.count(" ") - parser.prog.count(" ")
        yield f"{'#' * (level + depth)} {each.prog}"
        if each.description:
            yield each.description
        rows = list(_rows(each))
        if rows:
            yield "\n".join(["| option | |", "|---|---|", *rows])
        examples = examples_of(each)
        if examples:
            yield "```sh\n" + "\n".join(examples) + "\n```"


def parsers_below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A tool's parser, and those of the tools below it."""
    yield parser
    # argparse offers no other way to ask a parser what it takes.
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in dict.fromkeys(action.choices.values()):
                yield from parsers_below(below)


def _rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        if action.option_strings and action.option_strings[-1] in ("--help", "--version"):
            continue
        yield f"| {_names(action)} | {_escaped(_text(action))} |"


def _names(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    if action.choices is not None and action.metavar is None:
        value = "\\|".join(map(str, action.choices))
    if action.nargs == "?":
        value = f"[{value}]"
    if not action.option_strings:
        return f"`{action.metavar or action.dest.upper()}`"
    first, *others = action.option_strings
    names = [f"`{first} {value}`" if value else f"`{first}`", *(f"`{other}`" for other in others)]
    return ", ".join(names)


def _text(action: argparse.Action) -> str:
    text = (action.help or "") % {"default": action.default}
    return f"{text} (required)" if action.required and action.option_strings else text


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(markdown(), end="")
