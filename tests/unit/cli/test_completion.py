"""plog/cli/completion.py: what a shell sources, and what it is offered."""

from __future__ import annotations

import argparse

import pytest

from plog.cli.completion import SHELLS, completion_parser, run

argcomplete = pytest.importorskip("argcomplete", reason="argcomplete is not installed")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_code_that_asks_plog(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argparse.Namespace(shell=shell)) == 0
    code = capsys.readouterr().out
    assert "plog" in code
    assert "_ARGCOMPLETE" in code
    assert ("bashcompinit" in code.splitlines()[0]) == (shell == "zsh")


def _offered(line: str) -> list[str]:
    finder = argcomplete.CompletionFinder(completion_parser(line))
    *words, beginning = line.split(" ")
    found: list[str] = finder._get_completions(words, beginning, "", None)
    return sorted(word.strip() for word in found)


def test_commands_are_offered_by_their_beginnings() -> None:
    assert _offered("plog dump") == ["dump-log"]
    assert {"storage", "metadata", "metadata-shell"} <= set(_offered("plog "))


def test_options_of_the_tool_are_offered() -> None:
    assert _offered("plog dump-log --print") == ["--print-data-log"]
    assert _offered("plog metadata --snap") == ["--snapshot"]


def test_an_open_quote_is_no_error() -> None:
    assert completion_parser("plog dump-log --files 'a").prog == "plog"
