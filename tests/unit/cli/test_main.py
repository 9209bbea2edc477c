"""plog/cli/main.py: dispatch, exit codes and errors of the `plog` command."""

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

ACT = Command("act", "tests.unit.cli.test_main:configure", "Run a test.", ("a",))
NOT_INSTALLED = Command(
    "far", "no_such_package.far:configure", "Belong to a package that is missing."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Run a test.

    This line is not part of the summary.
    """
    parser.add_argument("--code", type=int, default=0)
    parser.set_defaults(run=lambda arguments: arguments.code)


def _tool_that_calls(act: Callable[[], int]) -> Configure:
    return lambda parser: parser.set_defaults(run=lambda arguments: act())


def _raise(error: BaseException) -> int:
    raise error


def _exit_code(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as raised:
        run(arguments, (ACT, NOT_INSTALLED))
    assert isinstance(raised.value.code, int)
    return raised.value.code


@pytest.mark.parametrize("name", ["act", "a"])
@pytest.mark.parametrize("code", [0, 1])
def test_exit_code_is_that_of_the_tool(name: str, code: int) -> None:
    assert run([name, "--code", str(code)], (ACT,)) == code


@pytest.mark.parametrize(
    "error",
    [
        PlogError("do this instead"),
        OSError(28, "do this instead"),
        UnknownTopicOrPartition("do this instead"),
    ],
)
def test_expected_error_is_printed_on_one_line(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tool("act", _tool_that_calls(lambda: _raise(error)), []) == FAILED
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("plog: ")
    assert "do this instead" in line


def test_error_without_message_prints_its_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run_tool("act", _tool_that_calls(lambda: _raise(UnknownTopicOrPartition())), []) == FAILED
    )
    assert "does not host the topic" in capsys.readouterr().err


def test_keyboard_interrupt_exits_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tool("act", _tool_that_calls(lambda: _raise(KeyboardInterrupt())), []) == STOPPED
    assert capsys.readouterr().err == "plog: stopped\n"


def test_unexpected_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        run_tool("act", _tool_that_calls(lambda: 1 // 0), [])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--help"], 0, ""),
        (["act", "--help"], 0, ""),
        (["help"], 0, ""),
        (["help", "act"], 0, ""),
        (["help", "atc"], 1, "unknown command 'atc'; did you mean 'act'?"),
        ([], 1, "no command specified"),
        (["atc"], 1, "unknown command 'atc'; did you mean 'act'?"),
        (["act", "--unknown"], 1, "--unknown"),
        (["act", "--code", "x"], 1, "--code"),
        (["far"], 1, "'far' requires no_such_package, which is not installed"),
    ],
)
def test_usage_error_is_one_line_and_help_exits_with_0(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _exit_code(arguments) == code
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == code


def test_help_lists_only_installed_commands(capsys: pytest.CaptureFixture[str]) -> None:
    _exit_code(["--help"])
    out = capsys.readouterr().out
    assert "act, a" in out
    assert "Run a test." in out
    assert "Belong to a package that is missing." not in out


def test_help_imports_no_tool(capsys: pytest.CaptureFixture[str]) -> None:
    broken = Command("broken", "tests.unit.cli.no_such_module:configure", "Break when loaded.")
    with pytest.raises(SystemExit):
        run(["--help"], (broken,))
    assert "Break when loaded." in capsys.readouterr().out


def test_unknown_name_is_looked_up_among_entry_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    foreign = SimpleNamespace(name="foreign", load=lambda: _tool_that_calls(lambda: 7))
    own = SimpleNamespace(name="act", load=lambda: _tool_that_calls(lambda: 8))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [own, foreign])
    assert run(["foreign"], (ACT,)) == 7
    assert run(["act"], (ACT,)) == 0


def test_closed_output_pipe_exits_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

        def fileno(self) -> int:
            return 1

    redirected = []
    monkeypatch.setattr(sys, "stdout", Closed())
    monkeypatch.setattr(main_module.os, "dup2", lambda _, descriptor: redirected.append(descriptor))
    monkeypatch.setattr(main_module, "run", lambda arguments: 1)
    assert main(["act"]) == 0
    assert redirected == [1]
