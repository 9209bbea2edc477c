"""plog/cli/completion.py: the shell code and the completions."""

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
def test_shell_code_calls_plog(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argparse.Namespace(shell=shell)) == 0
    code = capsys.readouterr().out
    assert "plog" in code
    assert "_ARGCOMPLETE" in code
    assert ("bashcompinit" in code.splitlines()[0]) == (shell == "zsh")


def _completions(line: str) -> list[str]:
    finder = argcomplete.CompletionFinder(completion_parser(line))
    *words, prefix = line.split(" ")
    found: list[str] = finder._get_completions(words, prefix, "", None)
    return sorted(word.strip() for word in found)


def test_commands_are_completed() -> None:
    assert _completions("plog dump") == ["dump-log"]
    assert {"storage", "metadata", "metadata-shell"} <= set(_completions("plog "))


def test_options_of_the_tool_are_completed() -> None:
    assert _completions("plog dump-log --print") == ["--print-data-log"]
    assert _completions("plog metadata --snap") == ["--snapshot"]


def test_open_quote_is_accepted() -> None:
    assert completion_parser("plog dump-log --files 'a").prog == "plog"


def _completed(line: str, tmp_path: Path) -> list[str]:
    """Return the completions that `plog` itself writes in argcomplete's protocol."""
    output = tmp_path / "output"
    environment = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(output),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    command = [sys.executable, "-m", "plog.cli"]
    subprocess.run(command, env=os.environ | environment, check=True, timeout=60)
    return output.read_text().split("\n")


def test_option_with_several_spellings_is_completed(tmp_path: Path) -> None:
    assert _completed("plog topics --boo", tmp_path) == ["--bootstrap-server "]


@pytest.mark.parametrize("row", [row for row in COMMANDS if row.is_installed], ids=lambda x: x.name)
def test_only_the_current_spelling_is_completed(row: Command) -> None:
    parser = argparse.ArgumentParser()
    row.load()(parser)
    for action in parser._actions:
        long = [name for name in action.option_strings if name.startswith("--")]
        if long and action.help != argparse.SUPPRESS:
            completions = _completions(f"plog {row.name} {long[0]}")
            assert long[0] in completions
            assert not set(long[1:]) & set(completions)


def test_older_spellings_are_accepted_before_the_word_to_complete() -> None:
    assert _completions("plog topics --bootstrap-servers a:1 --descr") == ["--describe"]
