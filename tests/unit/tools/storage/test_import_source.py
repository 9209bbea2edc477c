"""plogd/tools/storage/import_source.py: locks, identity of directories, metadata, transactions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from struct import pack

import pytest

from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType
from plog.types import TopicPartition
from plogd.log import file_names
from plogd.os_files import OsFiles
from plogd.tools.storage.import_source import (
    SourceLocks,
    SourceUnusable,
    read_kraft_metadata,
    read_source_dir,
    unfinished_transactions,
)
from plogd.tools.storage.log_inspection import inspect_log
from tests.helpers.programs.kafka_data import KafkaData, control_batch, topic_id, values_batch
from tests.helpers.sim.sim_files import SimFiles

# Java uses POSIX locks. A process does not conflict with its own POSIX locks, so another one locks.
_LOCK_LIKE_JAVA = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def like_java(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory whose .lock another process holds as Kafka does."""
    command = [sys.executable, "-c", _LOCK_LIKE_JAVA, str(tmp_path / ".lock")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"locked\n"
    yield tmp_path
    process.communicate()


def test_directory_in_use_by_kafka_is_rejected(like_java: Path) -> None:
    with pytest.raises(SourceUnusable, match="a broker is running there"):
        SourceLocks([str(like_java)])


def test_directory_in_use_by_plog_is_rejected(tmp_path: Path) -> None:
    release = OsFiles().lock(str(tmp_path / ".lock"))
    with pytest.raises(SourceUnusable, match="a broker is running there"):
        SourceLocks([str(tmp_path)])
    release()
    SourceLocks([str(tmp_path)]).close()


def test_source_lock_keeps_brokers_out(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    locks = SourceLocks([str(tmp_path)])
    SourceLocks([str(tmp_path)]).close()  # Readers share the lock.
    with pytest.raises(BlockingIOError):
        OsFiles().lock(str(tmp_path / ".lock"))
    locks.close()


def test_lock_file_is_created_only_to_change_directory(tmp_path: Path) -> None:
    SourceLocks([str(tmp_path)]).close()
    assert os.listdir(tmp_path) == []
    SourceLocks([str(tmp_path)], to_change=True).close()
    assert os.listdir(tmp_path) == [".lock"]


def test_broker_start_is_detected_when_no_lock_file_existed(tmp_path: Path) -> None:
    (tmp_path / file_names.CLEAN_SHUTDOWN_FILE).touch()
    locks = SourceLocks([str(tmp_path)])
    locks.check_still()
    (tmp_path / file_names.CLEAN_SHUTDOWN_FILE).unlink()
    with pytest.raises(SourceUnusable, match="was started in"):
        locks.check_still()


# -- the directory -----------------------------------------------------------------------------


def test_source_dir_lists_identity_and_contents() -> None:
    data = KafkaData(SimFiles(["/kafka"]), "/kafka")
    data.log("clicks", 0, b"", end_offset=5)
    for name in ("clicks-1.0123-delete", "clicks-2.0123-future", "lost+found", "no-number"):
        data.files.mkdir(f"/kafka/{name}")
    data.write("file-7", b"no directory")
    data.stop()
    source = read_source_dir(data.files, "/kafka")
    assert source.identity.node_id == 7
    assert source.clean
    assert source.holds_metadata
    assert source.partitions == (TopicPartition("clicks", 0),)
    assert source.left_behind == ("clicks-1.0123-delete", "clicks-2.0123-future")
    high_watermarks = source.offsets[file_names.HIGH_WATERMARK_CHECKPOINT]
    assert high_watermarks == {TopicPartition("clicks", 0): 5}


def test_corrupt_checkpoint_counts_as_missing() -> None:
    data = KafkaData(SimFiles(["/kafka"]), "/kafka")
    data.write(file_names.HIGH_WATERMARK_CHECKPOINT, b"garbage")
    source = read_source_dir(data.files, "/kafka")
    assert source.offsets[file_names.HIGH_WATERMARK_CHECKPOINT] == {}
    assert not source.clean


def test_directory_without_valid_identity_is_rejected() -> None:
    files = SimFiles(["/home"])
    with pytest.raises(SourceUnusable, match="not a log directory of a Kafka broker"):
        read_source_dir(files, "/home")
    data = KafkaData(files, "/kafka")
    data.write("meta.properties", b"version=9\n")
    with pytest.raises(SourceUnusable, match="restore it"):
        read_source_dir(files, "/kafka")


# -- metadata ----------------------------------------------------------------------------------


def test_metadata_is_newest_complete_snapshot_and_later_log() -> None:
    data = KafkaData(SimFiles(["/kafka"]), "/kafka")
    data.topic("in-snapshot", topic_id(1))
    snapshot, data.metadata = data.metadata, []
    data.topic("in-log", topic_id(2))
    behind, data.metadata = data.metadata, []
    data.stop()
    folder = "__cluster_metadata-0"
    data.files.unlink(f"/kafka/{folder}/00000000000000000000.log")
    whole = (
        control_batch(ControlType.SNAPSHOT_HEADER, 0)
        + values_batch(snapshot, 1)
        + control_batch(ControlType.SNAPSHOT_FOOTER, 9)
    )
    data.write(f"{folder}/00000000000000000050-0000000002.checkpoint", whole)
    data.write(f"{folder}/00000000000000000040-0000000001.checkpoint", b"older: not read")
    data.write(f"{folder}/00000000000000000060-0000000002.checkpoint.part", b"not finished")
    data.write(f"{folder}/{30:020d}.log", values_batch([b"below the snapshot"] * 10, 30))
    data.write(
        f"{folder}/{40:020d}.log", values_batch([b"below"] * 10, 40) + values_batch(behind, 50)
    )
    state = read_kraft_metadata(data.files, "/kafka")
    assert sorted(state.topics) == ["in-log", "in-snapshot"]


# -- transactions ------------------------------------------------------------------------------


def _transaction(transactional_id: str, status: int | None) -> Record:
    name = transactional_id.encode()
    value = None if status is None else pack(">hqhib", 1, 4711, 0, 60_000, status) + b"rest"
    return Record(timestamp=0, key=pack(">hh", 0, len(name)) + name, value=value)


def test_last_record_decides_whether_transaction_is_finished() -> None:
    data = KafkaData(SimFiles(["/kafka"]), "/kafka")
    records = [
        _transaction("ongoing", 1),
        _transaction("preparing", 1),
        _transaction("preparing", 2),
        _transaction("done", 2),
        _transaction("done", 4),
        _transaction("forgotten", 1),
        _transaction("forgotten", None),
        _transaction("empty", 0),
    ]
    data.log("__transaction_state", 0, build_batch(records))
    data.log("clicks", 0, build_batch(records))
    logs = [
        inspect_log(data.files, "/kafka", key, clean=False, may_hold_old_formats=False)
        for key in (TopicPartition("__transaction_state", 0), TopicPartition("clicks", 0))
    ]
    assert unfinished_transactions(data.files, logs) == {
        "ongoing": "ongoing",
        "preparing": "being committed",
    }
