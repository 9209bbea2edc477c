"""plog/cli/spark/pack.py: the command that writes the archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.cli.main import run_tool
from plog.cli.spark.archive import read_info
from plog.cli.spark.pack import configure, this_python
from plog.version import VERSION


def test_archive_is_for_this_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plog.cli.spark.packed_files.packed_files", lambda *_: {})
    path = tmp_path / "e.tar.gz"
    assert run_tool("pack", configure, [str(path)]) == 0
    assert read_info(path) == this_python()
    assert this_python().plog == VERSION


def test_next_step_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("plog.cli.spark.packed_files.packed_files", lambda *_: {})
    path = tmp_path / "e.tgz"
    run_tool("pack", configure, [str(path)])
    assert capsys.readouterr().out == (
        f"Wrote {path} (0 MiB); use it with --archives {path}#environment\n"
    )


def test_name_that_spark_does_not_unpack_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tool("pack", configure, [str(tmp_path / "e.tar")]) == 1
    assert "Spark unpacks only names that end with .tar.gz" in capsys.readouterr().err
