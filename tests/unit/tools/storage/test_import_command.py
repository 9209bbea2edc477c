"""plogd/tools/storage/import_command.py: the command line, on real files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from plog.cli.main import run_tool
from plogd.os_files import OsFiles
from plogd.tools.storage import import_command as storage_import
from plogd.tools.storage.command import configure
from tests.corpus import legacy
from tests.helpers.programs.kafka_data import KafkaData, batch, topic_id


def plog(*arguments: str | Path) -> int:
    return run_tool("storage", configure, ["import", *map(str, arguments)])


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    """Return the directory of a stopped broker with one topic."""
    data = KafkaData(OsFiles(), str(tmp_path / "kafka"))
    data.topic("clicks", topic_id(1))
    data.log("clicks", 0, batch([b"a", b"b"]), uuid=topic_id(1), end_offset=2)
    data.stop()
    return tmp_path / "kafka"


def _tree(path: Path) -> dict[str, bytes]:
    return {str(x.relative_to(path)): x.read_bytes() for x in path.rglob("*") if x.is_file()}


def test_import_prints_summary_and_start_command(
    kafka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _tree(kafka)
    assert plog(kafka, "--log-dirs", tmp_path / "new") == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("adopted 1 topics, 1 partitions, ")
    assert last == f"start the broker with: plog-broker -o log.dirs={tmp_path / 'new'} -o node.id=7"
    assert _tree(kafka) == before
    assert (tmp_path / "new/clicks-0/00000000000000000000.log").read_bytes() == batch([b"a", b"b"])


@pytest.mark.parametrize("way", [["--log-dirs", "new"], ["--in-place"]])
def test_dry_run_changes_nothing(
    way: list[str], kafka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    before = _tree(tmp_path)
    assert plog(kafka, *way, "--dry-run") == 0
    assert _tree(tmp_path) == before
    assert os.listdir(tmp_path) == ["kafka"]
    assert "would adopt 1 topics" in capsys.readouterr().out


def test_json_prints_summary(
    kafka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plog(kafka, "--log-dirs", tmp_path / "new", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["topics"] == {"clicks": 1}
    assert summary["settings"]["node.id"] == "7"
    assert summary["clean"]
    assert not summary["dry_run"]


def test_problems_are_printed_and_nothing_is_written(
    kafka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_transaction = batch(
        [b"a"], is_transactional=True, producer_id=4711, producer_epoch=0, base_sequence=0
    )
    (kafka / "clicks-0/00000000000000000000.log").write_bytes(open_transaction)
    assert plog(kafka, "--log-dirs", tmp_path / "new", "--json") == 1
    out, err = capsys.readouterr()
    assert len(json.loads(out)["problems"]) == 1
    assert [line[:6] for line in err.splitlines()] == ["plog: "]
    assert not (tmp_path / "new").exists()


def test_directory_of_no_broker_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plog(tmp_path, "--log-dirs", tmp_path.parent / "new") == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "not a log directory of a Kafka broker" in line


def test_kraft_broker_without_metadata_is_rejected(
    kafka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kafka / "__cluster_metadata-0").rename(tmp_path / "elsewhere")
    assert plog(kafka, "--log-dirs", tmp_path / "new") == 1
    assert "also specify Kafka's metadata.log.dir" in capsys.readouterr().err


def test_zookeeper_option_is_rejected_for_kraft_broker(
    kafka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plog(kafka, "--log-dirs", tmp_path / "new", "--zookeeper", "127.0.0.1:1") == 1
    assert "cannot use --zookeeper" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [[], ["--in-place", "--log-dirs", "new"], ["--log-dirs", "kafka/below"], ["--log-dirs", "."]],
)
def test_wrong_usage_exits_with_code_1(
    options: list[str], kafka: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        plog(kafka, *options)
    assert ended.value.code == 1
    assert os.listdir(tmp_path) == ["kafka"]


def test_target_defaults_to_log_dirs_of_config(kafka: Path, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path / 'new'}\nnode.id=7\n")
    assert plog(kafka, "--config", config) == 0
    assert (tmp_path / "new/__cluster_metadata-0").is_dir()


def test_missing_space_is_detected_before_copying(
    kafka: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=1 << 20))
    monkeypatch.setattr(storage_import, "can_clone", lambda *_: False)
    assert plog(kafka, "--log-dirs", tmp_path / "new") == 1
    assert "1 MiB are free, 64 MiB are needed" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_copy_needs_no_space_when_blocks_are_shared(
    kafka: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=1 << 20))
    monkeypatch.setattr(storage_import, "can_clone", lambda *_: True)
    assert plog(kafka, "--log-dirs", tmp_path / "new") == 0


def test_target_in_use_is_rejected(
    kafka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "new").mkdir()
    unlock = OsFiles().lock(str(tmp_path / "new/.lock"))
    assert plog(kafka, "--log-dirs", tmp_path / "new") == 1
    unlock()
    assert "in use by a broker or another import" in capsys.readouterr().err


def test_old_formats_are_converted_in_zookeeper_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = KafkaData(OsFiles(), str(tmp_path / "kafka"), kraft=False)
    data.log("old", 0, (1000, legacy.load("magic-0-none")), end_offset=1005)
    data.stop()
    log = "old-0/00000000000000001000.log"
    os.utime(tmp_path / "kafka" / log, (1000, 2000))
    assert plog(tmp_path / "kafka", "--log-dirs", tmp_path / "new") == 0
    assert (tmp_path / "new" / log).stat().st_mtime == 2000, "retention goes by it"
    out, err = capsys.readouterr()
    assert "converted 1 segments from older formats to magic 2" in out
    assert "topic settings are stored in ZooKeeper" in err
    damaged = bytearray(legacy.load("magic-0-none"))
    damaged[30] ^= 1
    data.log("old", 0, (1000, bytes(damaged)), end_offset=1005)
    assert plog(tmp_path / "kafka", "--log-dirs", tmp_path / "another") == 1
    error = capsys.readouterr().err
    assert "cannot convert the old messages in " in error
    assert "old-0/00000000000000001000.log: " in error
