"""plog/cli/standard_streams.py: tools whose streams were closed, and what the client warns of."""

from __future__ import annotations

import logging
import os
import sys

import pytest

from plog.cli.main import main
from plog.cli.standard_streams import open_closed_streams, reader_is_gone, show_warnings


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_a_closed_stream_is_the_null_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, name, None)
    open_closed_streams()
    with getattr(sys, name) as stream:
        assert stream.name == os.devnull
        assert stream.readable() == (name == "stdin")


def test_a_tool_runs_without_a_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["storage", "random-uuid"]) == 0
    sys.stdout.close()


def test_what_the_client_warns_of_is_a_line_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger("plog.client").handlers
    try:
        for _ in range(2):  # However often it is asked for.
            show_warnings()
        logging.getLogger("plog.client").warning("cannot connect to %s", "a:1")
        logging.getLogger("plog.client").info("all is well")
    finally:
        logging.getLogger("plog.client").handlers = before
    assert capsys.readouterr().err == "plog: cannot connect to a:1\n"


def test_a_pipe_is_read_until_its_other_end_is_closed() -> None:
    read_end, write_end = os.pipe()
    assert not reader_is_gone(write_end)
    os.close(read_end)
    assert reader_is_gone(write_end)
    os.close(write_end)
