"""plog/cli/output.py: plain columns for scripts, tables for people, JSON for programs."""

from __future__ import annotations

import io
import json

import pytest

from plog.cli import output
from plog.cli.output import Table, fitted, progress, show, table_lines

TABLE = Table(("TOPIC", "LAG"), [("page-views", 7), ("orders", None)])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _shown(stream: io.StringIO, *, as_json: bool = False) -> str:
    show(
        lambda: ["plain 1", "plain 2"],
        lambda: [TABLE, TABLE],
        lambda: {"lag": 7, "name": "ä"},
        as_json=as_json,
        stream=stream,
    )
    return stream.getvalue()


def test_pipe_receives_kafkas_lines() -> None:
    assert _shown(io.StringIO()) == "plain 1\nplain 2\n"


def test_json_option_prints_json_even_on_a_terminal() -> None:
    text = _shown(Terminal(), as_json=True)
    assert json.loads(text) == {"lag": 7, "name": "ä"}
    assert "ä" in text


def test_terminal_receives_tables_with_a_bold_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = _shown(Terminal())
    assert text.startswith("\x1b[1mTOPIC       LAG\x1b[0m\npage-views    7\norders        -\n\n")


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_header_is_plain_without_color_support(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert "\x1b" not in _shown(Terminal())


def test_table_fits_the_terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    monkeypatch.setenv("NO_COLOR", "1")
    assert _shown(Terminal()).splitlines()[1] == "page-v…    7"
    assert all(len(line) <= 12 for line in table_lines(TABLE, 12))


def test_columns_keep_a_minimum_width() -> None:
    assert fitted([10, 10], 3) == [4, 4]
    assert fitted([3, 2], 80) == [3, 2]


def test_empty_table_is_only_a_header() -> None:
    assert list(table_lines(Table(("A", "B"), []), 80)) == ["A  B"]


def test_progress_is_shown_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress(10, "record") as advance:
        advance(10)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(output.sys, "stderr", Terminal())
    with progress(10, "record") as advance:
        advance(10)
    written = output.sys.stderr
    assert isinstance(written, Terminal)
    assert "10/10" in written.getvalue()
