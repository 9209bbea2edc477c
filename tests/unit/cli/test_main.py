"""plog/cli/main.py: the frame of the `plog` command."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from plog.cli import main as main_module
from plog.cli.commands import Command, Configure
from plog.cli.main import FAILED, STOPPED, main, run, run_tool
from plog.errors import PlogError, UnknownTopicOrPartition

ACT = Command("act", "tests.unit.cli.test_main:configure", "Do what a test wants.", ("a",))
ELSEWHERE = Command("far", "no_such_package.far:configure", "Be somewhere else.")


def configure(parser: argparse.ArgumentParser) -> None:
    """Do what a test wants.

    More about it.
    """
    parser.add_argument("--code", type=int, default=0)
    parser.set_defaults(run=lambda arguments: arguments.code)


def _doing(act: Callable[[], int]) -> Configure:
    return lambda parser: parser.set_defaults(run=lambda arguments: act())


def _raise(error: BaseException) -> int:
    raise error


def _ended(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        run(arguments, (ACT, ELSEWHERE))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("name", ["act", "a"])
@pytest.mark.parametrize("code", [0, 1])
def test_the_exit_code_is_the_tools(name: str, code: int) -> None:
    assert run([name, "--code", str(code)], (ACT,)) == code


@pytest.mark.parametrize(
    "error",
    [
        PlogError("do this instead"),
        OSError(28, "do this instead"),
        UnknownTopicOrPartition("do this instead"),
    ],
)
def test_what_goes_wrong_is_one_line(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tool("act", _doing(lambda: _raise(error)), []) == FAILED
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("plog: ")
    assert "do this instead" in line


def test_an_error_without_a_text_tells_what_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tool("act", _doing(lambda: _raise(UnknownTopicOrPartition())), []) == FAILED
    assert "does not host the topic" in capsys.readouterr().err


def test_who_stops_it_gets_the_code_of_a_signal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tool("act", _doing(lambda: _raise(KeyboardInterrupt())), []) == STOPPED
    assert capsys.readouterr().err == "plog: stopped\n"


def test_a_bug_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run_tool("act", _doing(lambda: 1 // 0), [])


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--help"], 0, ""),
        (["act", "--help"], 0, ""),
        (["help"], 0, ""),
        (["help", "act"], 0, ""),
        (["help", "atc"], 1, "unknown command 'atc'; did you mean 'act'?"),
        ([], 1, "no command given"),
        (["atc"], 1, "unknown command 'atc'; did you mean 'act'?"),
        (["act", "--unknown"], 1, "--unknown"),
        (["act", "--code", "x"], 1, "--code"),
        (["far"], 1, "'far' requires no_such_package, which is not installed"),
    ],
)
def test_usage_ends_with_its_code_and_at_most_one_line(
    arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _ended(arguments) == code
    err = capsys.readouterr().err
    assert told in err
    assert len(err.splitlines()) == code


def test_help_lists_the_commands_that_are_installed(capsys: pytest.CaptureFixture[str]) -> None:
    _ended(["--help"])
    out = capsys.readouterr().out
    assert "act, a" in out
    assert "Do what a test wants." in out
    assert "Be somewhere else." not in out


def test_help_loads_no_tool(capsys: pytest.CaptureFixture[str]) -> None:
    broken = Command("broken", "tests.unit.cli.no_such_module:configure", "Break when loaded.")
    with pytest.raises(SystemExit):
        run(["--help"], (broken,))
    assert "Break when loaded." in capsys.readouterr().out


def test_a_name_that_is_not_ours_is_looked_up_among_entry_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = SimpleNamespace(name="theirs", load=lambda: _doing(lambda: 7))
    ours = SimpleNamespace(name="act", load=lambda: _doing(lambda: 8))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [ours, theirs])
    assert run(["theirs"], (ACT,)) == 7
    assert run(["act"], (ACT,)) == 0


def test_a_reader_that_has_seen_enough_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

        def fileno(self) -> int:
            return 1

    silenced = []
    monkeypatch.setattr(sys, "stdout", Closed())
    monkeypatch.setattr(main_module.os, "dup2", lambda _, descriptor: silenced.append(descriptor))
    monkeypatch.setattr(main_module, "run", lambda arguments: 1)
    assert main(["act"]) == 0
    assert silenced == [1]
