"""plog/cli/manual_pages.py: a page per command, made from its parser."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from plog.cli.commands import COMMANDS, Command
from plog.cli.docs import documented_actions, parsers_below
from plog.cli.manual_pages import pages, write_pages
from plog.cli.parser import tool_parser

every_command = pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)


def plain(text: str) -> str:
    """Return the text of a page without its escapes and fonts."""
    return re.sub(r"\\f[BIR]", "", text).replace(r"\-", "-").replace(r"\e", "\\")


def parsers_of(row: Command) -> list[argparse.ArgumentParser]:
    return list(parsers_below(tool_parser(row.name, row.load())))


@every_command
def test_page_has_every_option_of_the_command(row: Command) -> None:
    lines = plain(pages()[f"plog-{row.name}.1"]).splitlines()
    tags = [lines[i + 1] for i, line in enumerate(lines) if line == ".TP"]
    for parser in parsers_of(row):
        for action in documented_actions(parser):
            if action.option_strings:
                listed = [
                    [word.split()[0] for word in re.split(r", (?=-)", tag)]
                    for tag in tags
                    if tag.startswith("-")
                ]
                assert action.option_strings in listed


@every_command
def test_page_has_no_option_that_the_command_lacks(row: Command) -> None:
    known = {
        name
        for parser in parsers_of(row)
        for action in parser._actions
        for name in action.option_strings
    }
    lines = pages()[f"plog-{row.name}.1"].splitlines()
    bold = [line for i, line in enumerate(lines) if i and lines[i - 1] == ".TP"]
    shown = {plain(name) for line in bold for name in re.findall(r"\\fB(.*?)\\fR", line)}
    assert shown <= known


@every_command
def test_page_has_every_subcommand(row: Command) -> None:
    page = plain(pages()[f"plog-{row.name}.1"])
    for parser in parsers_of(row)[1:]:
        assert f"\n.SS {parser.prog}\n" in page


def test_main_page_lists_every_command() -> None:
    page = plain(pages()["plog.1"])
    for row in COMMANDS:
        assert f"\n.BR plog-{row.name} (1)\n{row.summary}\n" in page


def test_short_names_refer_to_the_page_of_their_command() -> None:
    assert pages()["plog-tail.1"] == ".so man1/plog-console-consumer.1\n"


def test_text_that_looks_like_a_request_stays_text() -> None:
    """roff ignores a line that starts with an unknown request."""
    for page in pages().values():
        requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
        assert requests <= {
            *(".TH", ".SH", ".SS", ".TP", ".PP", ".RS", ".RE", ".EX", ".EE", ".B", ".BR"),
            *(".so", r".\""),
        }


def test_pages_are_written_into_a_new_folder(tmp_path: Path) -> None:
    write_pages(tmp_path / "man" / "man1")
    written = {file.name: file.read_text() for file in (tmp_path / "man" / "man1").iterdir()}
    assert written == pages()
