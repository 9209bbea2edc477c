"""plogd/tools/storage/import_command.py: the command as people use it, on real files."""

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
from tests.helpers.kafka_data import KafkaData, batch, topic_id


def plog(*arguments: str | Path) -> int:
    return run_tool("storage", configure, ["import", *map(str, arguments)])


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    """A stopped broker's directory with one topic."""
    data = KafkaData(OsFiles(), str(tmp_path / "kafka"))
    data.topic("clicks", topic_id(1))
    data.log("clicks", 0, batch([b"a", b"b"]), uuid=topic_id(1), end_offset=2)
    data.stop()
    return tmp_path / "kafka"


def _tree(path: Path) -> dict[str, bytes]:
    return {str(x.relative_to(path)): x.read_bytes() for x in path.rglob("*") if x.is_file()}


def test_it_says_what_was_adopted_and_how_to_start(
    kafka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _tree(kafka)
    assert plog(kafka, "--log-dirs", tmp_path / "new") == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("adopted 1 topics, 1 partitions, ")
    assert last == f"start it with: plog-broker -o log.dirs={tmp_path / 'new'} -o node.id=7"
    assert _tree(kafka) == before
    assert (tmp_path / "new/clicks-0/00000000000000000000.log").read_bytes() == batch([b"a", b"b"])


@pytest.mark.parametrize("way", [["--log-dirs", "new"], ["--in-place"]])
def test_a_dry_run_changes_nothing(
    way: list[str], kafka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    before = _tree(tmp_path)
    assert plog(kafka, *way, "--dry-run") == 0
    assert _tree(tmp_path) == before
    assert os.listdir(tmp_path) == ["kafka"]
    assert "would adopt 1 topics" in capsys.readouterr().out


def test_the_summary_is_also_json(
    kafka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plog(kafka, "--log-dirs", tmp_path / "new", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["topics"] == {"clicks": 1}
    assert told["settings"]["node.id"] == "7"
    assert told["clean"]
    assert not told["dry_run"]


def test_refusals_are_lines_with_a_remedy_and_nothing_is_done(
    kafka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kafka / "clicks-0/00000000000000000000.txnindex").write_bytes(b"x")
    (kafka / "clicks-0/00000000000000000000.log.swap").write_bytes(b"x")
    assert plog(kafka, "--log-dirs", tmp_path / "new", "--json") == 1
    out, err = capsys.readouterr()
    assert len(json.loads(out)["problems"]) == 2
    assert [line[:6] for line in err.splitlines()] == ["plog: ", "plog: "]
    assert not (tmp_path / "new").exists()


def test_what_is_no_brokers_directory_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plog(tmp_path, "--log-dirs", tmp_path.parent / "new") == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "none of a Kafka broker's log.dirs" in line


def test_without_its_metadata_a_kraft_broker_is_refused(
    kafka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kafka / "__cluster_metadata-0").rename(tmp_path / "elsewhere")
    assert plog(kafka, "--log-dirs", tmp_path / "new") == 1
    assert "name Kafka's metadata.log.dir" in capsys.readouterr().err


def test_zookeeper_makes_no_sense_for_a_kraft_broker(
    kafka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plog(kafka, "--log-dirs", tmp_path / "new", "--zookeeper", "127.0.0.1:1") == 1
    assert "leave out --zookeeper" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [[], ["--in-place", "--log-dirs", "new"], ["--log-dirs", "kafka/below"], ["--log-dirs", "."]],
)
def test_wrong_usage_is_code_1(
    options: list[str], kafka: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        plog(kafka, *options)
    assert ended.value.code == 1
    assert os.listdir(tmp_path) == ["kafka"]


def test_the_target_may_come_from_the_config(kafka: Path, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path / 'new'}\nnode.id=7\n")
    assert plog(kafka, "--config", config) == 0
    assert (tmp_path / "new/__cluster_metadata-0").is_dir()


def test_a_full_disk_is_noticed_before_anything_is_copied(
    kafka: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=1 << 20))
    monkeypatch.setattr(storage_import, "can_clone", lambda *_: False)
    assert plog(kafka, "--log-dirs", tmp_path / "new") == 1
    assert "has room for 1 MiB, 64 MiB are needed" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_where_blocks_are_shared_a_copy_needs_no_room(
    kafka: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=1 << 20))
    monkeypatch.setattr(storage_import, "can_clone", lambda *_: True)
    assert plog(kafka, "--log-dirs", tmp_path / "new") == 0


def test_a_target_in_use_is_refused(
    kafka: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "new").mkdir()
    unlock = OsFiles().lock(str(tmp_path / "new/.lock"))
    assert plog(kafka, "--log-dirs", tmp_path / "new") == 1
    unlock()
    assert "is in use by a broker or another import" in capsys.readouterr().err


def test_in_zookeeper_mode_old_formats_are_converted_without_asking(
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
    assert "1 segments of old formats are written in magic 2" in out
    assert "settings of topics are in ZooKeeper" in err
    damaged = bytearray(legacy.load("magic-0-none"))
    damaged[30] ^= 1
    data.log("old", 0, (1000, bytes(damaged)), end_offset=1005)
    assert plog(tmp_path / "kafka", "--log-dirs", tmp_path / "another") == 1
    assert "old-0/00000000000000001000.log holds messages of an old format" in (
        capsys.readouterr().err
    )
