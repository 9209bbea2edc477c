"""plog/cli/main.py: the frame of the `plog` command."""

from __future__ import annotations

import argparse
import configparser
import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import pytest

from plog.cli.main import GROUP, Configure, run
from plog.errors import PlogError

ROOT = Path(__file__).parents[3]


def _command(act: Callable[[], int]) -> dict[str, Configure]:
    def configure(parser: argparse.ArgumentParser) -> None:
        """Do what a test wants.

        More about it.
        """
        parser.set_defaults(run=lambda arguments: act())

    return {"act": configure}


def _raise(error: BaseException) -> int:
    raise error


def test_the_exit_code_is_the_commands() -> None:
    assert run(_command(lambda: 0), ["act"]) == 0
    assert run(_command(lambda: 1), ["act"]) == 1


@pytest.mark.parametrize(
    "error", [PlogError("do this instead"), OSError(28, "do this instead"), KeyboardInterrupt()]
)
def test_what_goes_wrong_is_one_line(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(_command(lambda: _raise(error)), ["act"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("plog: ")


def test_a_bug_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run(_command(lambda: 1 // 0), ["act"])


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), ([], 2), (["nothing"], 2)])
def test_usage_ends_with_its_code(arguments: list[str], code: int) -> None:
    with pytest.raises(SystemExit) as ended:
        run(_command(lambda: 0), arguments)
    assert ended.value.code == code


def test_help_lists_the_commands_by_their_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(_command(lambda: 0), ["--help"])
    out = capsys.readouterr().out
    assert "Do what a test wants." in out
    assert "More about it" not in out


def test_every_command_of_setup_cfg_can_be_loaded_and_has_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options.entry_points"][GROUP].strip().splitlines()
    for line in lines:
        name, _, value = (part.strip() for part in line.partition("="))
        configure = importlib.metadata.EntryPoint(name, value, GROUP).load()
        with pytest.raises(SystemExit) as ended:
            run({name: configure}, [name, "--help"])
        assert ended.value.code == 0
        assert f"usage: plog {name}" in capsys.readouterr().out
