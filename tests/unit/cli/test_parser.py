"""plog/cli/parser.py: one-line errors, and help that ends with examples."""

from __future__ import annotations

import argparse

import pytest

import plog.records
from plog.cli.parser import Parser, add_examples, examples_of, tool_parser
from plog.version import VERSION


def _configure(parser: argparse.ArgumentParser) -> None:
    """Do something."""
    for number in range(8):
        parser.add_argument(f"--option-{number}")
    parser.add_argument("thing")
    add_examples(parser, ("two of them", "plog x --option-1 a b"), ("one", "plog x c"))


def test_abbreviated_option_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    parser = tool_parser("x", _configure)
    with pytest.raises(SystemExit) as raised:
        parser.parse_args(["thing", "--option"])
    assert raised.value.code == 1
    assert capsys.readouterr().err == (
        "plog: unrecognized arguments: --option; did you mean --option-7?; see 'plog x --help'\n"
    )


def test_subcommand_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser(prog="plog x")
    parser.add_subparsers().add_parser("y").add_argument("--n", type=int)
    with pytest.raises(SystemExit) as raised:
        parser.parse_args(["y", "--n", "many"])
    assert raised.value.code == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("plog: argument --n: ")
    assert line.endswith("see 'plog x y --help'")


def test_help_ends_with_examples() -> None:
    parser = tool_parser("x", _configure)
    text = parser.format_help()
    assert text.endswith("    plog x --option-1 a b\n  one:\n    plog x c\n")
    assert examples_of(parser) == ["plog x --option-1 a b", "plog x c"]


def test_usage_line_omits_many_options() -> None:
    text = tool_parser("x", _configure).format_help()
    assert text.startswith("usage: plog x [OPTION]... thing\n")
    assert text.count("--option-5") == 1


@pytest.mark.parametrize(("is_compiled", "form"), [(True, "compiled"), (False, "interpreted")])
def test_version_option_prints_version_and_codec(
    is_compiled: bool,
    form: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plog.records, "codec_is_compiled", lambda: is_compiled)
    with pytest.raises(SystemExit) as raised:
        tool_parser("x", _configure).parse_args(["--version"])
    assert raised.value.code == 0
    assert capsys.readouterr().out == f"plog {VERSION} ({form} codec)\n"
