"""plog/cli/completion.py: what a shell sources, and what it is offered."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plog.cli.commands import COMMANDS, Command
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


def _completed(line: str, tmp_path: Path) -> list[str]:
    """What a shell gets from `plog` itself, by argcomplete's protocol."""
    answer = tmp_path / "answer"
    environment = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    command = [sys.executable, "-m", "plog.cli"]
    subprocess.run(command, env=os.environ | environment, check=True, timeout=60)
    return answer.read_text().split("\n")


def test_a_shell_completes_an_option_to_its_end(tmp_path: Path) -> None:
    assert _completed("plog topics --boo", tmp_path) == ["--bootstrap-server "]


@pytest.mark.parametrize("row", [row for row in COMMANDS if row.is_installed], ids=lambda x: x.name)
def test_each_option_is_offered_once(row: Command) -> None:
    parser = argparse.ArgumentParser()
    row.load()(parser)
    for action in parser._actions:
        long = [one for one in action.option_strings if one.startswith("--")]
        if long and action.help != argparse.SUPPRESS:
            offered = _offered(f"plog {row.name} {long[0]}")
            assert long[0] in offered
            assert not set(long[1:]) & set(offered)


def test_older_spellings_are_understood_before_the_word_to_complete() -> None:
    assert _offered("plog topics --bootstrap-servers a:1 --descr") == ["--describe"]
