"""plog/cli/standard_streams.py: closed streams and warnings of the client."""

from __future__ import annotations

import logging
import os
import sys

import pytest

from plog.cli.main import main
from plog.cli.standard_streams import open_closed_streams, reader_has_closed, show_warnings


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_closed_stream_is_replaced_by_the_null_device(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, name, None)
    open_closed_streams()
    with getattr(sys, name) as stream:
        assert stream.name == os.devnull
        assert stream.readable() == (name == "stdin")


def test_tool_runs_without_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["storage", "random-uuid"]) == 0
    sys.stdout.close()


def test_client_warnings_are_printed_like_errors(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger("plog.client").handlers
    try:
        for _ in range(2):  # Repeated calls must not repeat the output.
            show_warnings()
        logging.getLogger("plog.client").warning("cannot connect to %s", "a:1")
        logging.getLogger("plog.client").info("all is well")
    finally:
        logging.getLogger("plog.client").handlers = before
    assert capsys.readouterr().err == "plog: cannot connect to a:1\n"


def test_reader_has_closed_when_the_read_end_is_closed() -> None:
    read_end, write_end = os.pipe()
    assert not reader_has_closed(write_end)
    os.close(read_end)
    assert reader_has_closed(write_end)
    os.close(write_end)
