"""plogd/tools/metadata/shell.py: the files it reads, and its interactive and one-command modes."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from plog.cli.main import run_tool
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType, encode_control_key
from plog.wire.internal.metadata_records import TopicRecord, encode_metadata_record
from plogd.tools.metadata.shell import configure

SNAPSHOT = "00000000000000000002-0000000004.checkpoint"


def _topics(*names: str, base_offset: int = 0) -> bytes:
    records = [
        Record(
            timestamp=1_700_000_000_000,
            value=encode_metadata_record(
                TopicRecord(name=name, topic_id=name.encode().ljust(16, b"\x01")), 0
            ),
        )
        for name in names
    ]
    return build_batch(records, base_offset=base_offset, partition_leader_epoch=7)


def _control(kind: ControlType, base_offset: int) -> bytes:
    record = Record(timestamp=5, key=encode_control_key(kind), value=bytes(11))
    return build_batch([record], base_offset=base_offset, is_control=True)


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    """Return the metadata directory of a log directory; its log contains two topics."""
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(_topics("a", "b"))
    return directory


def _run(*arguments: object, code: int = 0) -> None:
    assert run_tool("metadata-shell", configure, [*map(str, arguments)]) == code


@pytest.mark.parametrize(
    "where", [".", "__cluster_metadata-0", f"__cluster_metadata-0/{0:020d}.log"]
)
def test_metadata_log_is_found_by_file_directory_or_log_directory(
    metadata: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = metadata.parent / where
    _run("--snapshot", path, "ls", "/image/topics/byName", "/image/topics/byName")
    assert capsys.readouterr().out.split() == ["byName:", "a", "b", "byName:", "a", "b"]
    _run("-s", path, "cat", "/image/provenance")
    assert capsys.readouterr().out == "offset 1, epoch 7, time 2023-11-14T22:13:20.000Z[UTC]\n"


def test_snapshot_replaces_records_before_it(
    metadata: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = (
        _control(ControlType.SNAPSHOT_HEADER, 0)
        + _topics("x", base_offset=1)
        + _control(ControlType.SNAPSHOT_FOOTER, 2)
    )
    (metadata / SNAPSHOT).write_bytes(snapshot)
    (metadata / f"{2:020d}.log").write_bytes(_topics("c", base_offset=2))
    _run("--snapshot", metadata, "ls", "/image/topics/byName")
    assert capsys.readouterr().out.split() == ["c", "x"]
    _run("--snapshot", metadata / SNAPSHOT, "ls", "/image/topics/byName")
    assert capsys.readouterr().out.split() == ["x"]
    _run("--snapshot", metadata / SNAPSHOT, "cat", "/image/provenance")
    assert capsys.readouterr().out.startswith("offset 1, ")


def test_damaged_snapshot_is_replaced_by_the_older_one_or_the_log(
    metadata: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (metadata / f"{2:020d}.log").write_bytes(_topics("c", base_offset=2))
    newest = metadata / "00000000000000000003-0000000007.checkpoint"
    newest.write_bytes(_control(ControlType.SNAPSHOT_HEADER, 0))
    _run("--snapshot", metadata, "ls", "/image/topics/byName")
    assert capsys.readouterr().out.split() == ["a", "b", "c"]
    (metadata / SNAPSHOT).write_bytes(
        _control(ControlType.SNAPSHOT_HEADER, 0)
        + _topics("x", base_offset=1)
        + _control(ControlType.SNAPSHOT_FOOTER, 2)
    )
    (metadata / f"{0:020d}.log").unlink()
    _run("--snapshot", metadata, "ls", "/image/topics/byName")
    assert capsys.readouterr().out.split() == ["c", "x"]
    (metadata / SNAPSHOT).unlink()
    _run("--snapshot", metadata, "ls", code=1)
    assert "it is incomplete and has no footer" in capsys.readouterr().err


def test_shell_runs_commands_until_exit_or_end_of_input(
    metadata: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "cd /image/topics\npwd\n\nls 'byName\nexit\npwd\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    _run("--snapshot", metadata)
    assert capsys.readouterr().out == (
        "/image/topics\ncannot parse the line: No closing quotation; close the quote\n"
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO("pwd\n"))
    _run("--snapshot", metadata)
    assert capsys.readouterr().out == "/\n"


def test_unreadable_metadata_is_reported(
    tmp_path: Path, metadata: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    _run("--snapshot", empty, "ls", code=1)
    assert f"cannot find metadata in {empty}: specify a log directory" in capsys.readouterr().err
    _run("--snapshot", tmp_path / "nowhere", "ls", code=1)
    assert "not found" in capsys.readouterr().err
    (metadata / f"{0:020d}.log").write_bytes(
        build_batch([Record(timestamp=1, value=b"\x01\x63\x00")])
    )
    _run("--snapshot", metadata, "ls", code=1)
    assert "cannot decode the metadata record at offset 0" in capsys.readouterr().err
    damaged = bytearray(_topics("a"))
    damaged[-3] ^= 1
    (metadata / f"{0:020d}.log").write_bytes(bytes(damaged))
    _run("--snapshot", metadata, "ls", code=1)
    assert "checksum" in capsys.readouterr().err
