"""New logs: durable when created, and nothing left after a failure."""

from __future__ import annotations

import errno
import random

import pytest

from plog.types import TopicPartition
from plogd.log import creation, file_names
from plogd.log.creation import NewLog, create_logs
from plogd.log.disk.checkpoint_files import read_topic_id
from plogd.log.log_state import LogState
from plogd.log.recovery.load_request import LoadRequest
from plogd.log.recovery.log_discovery import topic_id_of
from plogd.log.recovery.log_recovery import load_log
from plogd.ports import File, Files, silence
from tests.helpers.injection import Faults, When
from tests.helpers.log.log_data import SMALL
from tests.helpers.log.log_site import spied
from tests.helpers.sim.sim_files import SimCrash, SimFiles

TOPIC_ID = bytes(range(16))
FILES_OF_A_LOG = [file_names.segment_file_name(0, ".log"), file_names.PARTITION_METADATA]


@pytest.fixture(autouse=True, params=["one sync for each", "together"])
def _made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to make logs durable; each test runs with both."""
    monkeypatch.setattr(creation, "_SYNC_FS_FROM", 1 if request.param == "together" else 1000)


class Spy(SimFiles):
    """Records every file that was opened for append."""

    opened: list[File]

    def open_append(self, path: str) -> File:
        file = super().open_append(path)
        self.opened.append(file)
        return file

    def still_open(self) -> list[str]:
        """Close the files that are still open and return their paths."""
        left = []
        for file in self.opened:
            try:
                file.close()
            except AssertionError:
                continue
            left.append(file.path)
        return left


def _files() -> Spy:
    files = Spy(["/a"])
    files.opened = []
    return files


def _new(topic: str = "t", partition: int = 0) -> NewLog:
    return NewLog(topic_partition=TopicPartition(topic, partition), topic_id=TOPIC_ID, config=SMALL)


def _create(files: SimFiles, *new_logs: NewLog) -> list[LogState]:
    return create_logs(files, "/a", new_logs or [_new()], producer_id_expiration_ms=1000)


def _load_request() -> LoadRequest:
    """Return the request to load the new log after an unclean stop."""
    return LoadRequest(
        topic_partition=TopicPartition("t", 0),
        topic_id=TOPIC_ID,
        directory="/a/t-0",
        log_dir="/a",
        config=SMALL,
        clean=False,
        recovery_point=0,
        high_watermark=0,
        log_start_offset=0,
        knows_log_start=False,
        producer_id_expiration_ms=1000,
        now_ms=0,
        monotonic_ms=0,
    )


def _create_and_use(files: SimFiles, new_log: NewLog | None = None) -> None:
    """Create one log and write to it."""
    [state] = _create(files, *([] if new_log is None else [new_log]))
    state.segments[0].records_file.append(b"something")


def test_new_log_is_empty_and_has_its_topic_id() -> None:
    files = _files()
    [state] = _create(files)
    assert state.directory == "/a/t-0"
    assert state.log_dir == "/a"
    assert (state.log_start_offset, state.high_watermark, state.log_end_offset) == (0, 0, 0)
    assert [segment.base_offset for segment in state.segments] == [0]
    assert files.listdir("/a/t-0") == FILES_OF_A_LOG
    assert read_topic_id(files, "/a/t-0") == TOPIC_ID
    assert state.producer_state.expiration_ms == 1000


def test_new_logs_survive_a_power_loss_as_soon_as_they_are_made() -> None:
    for seed in range(30):
        files = _files()
        _create(files, _new(partition=0), _new(partition=1))
        after = files.crash(random.Random(seed))
        for directory in ("/a/t-0", "/a/t-1"):
            assert after.listdir(directory) == FILES_OF_A_LOG
            assert read_topic_id(after, directory) == TOPIC_ID


def test_many_new_logs_cost_one_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    files = _files()
    syncs = spied(files, "sync", "sync_dir", "sync_fs")
    _create(files, *(_new(partition=number) for number in range(100)))
    assert syncs() == ["/a"]


def test_each_log_is_synced_without_reliable_syncfs() -> None:
    files = _files()
    files.sync_fs_supported = False
    syncs = spied(files, "sync", "sync_dir", "sync_fs")
    _create(files, _new())
    assert syncs() == [f"/a/t-0/{file_names.PARTITION_METADATA}", "/a/t-0", "/a"]


def test_topic_id_is_right_or_unreadable_after_any_crash() -> None:
    """Without a readable id, the next start takes the log for that of the topic with its name."""
    total = _files()
    _create(total)
    for number in range(1, total.operations + 1):
        files = _files()
        files.crash_at(number)
        with pytest.raises(SimCrash):
            _create(files)
        for seed in range(6):
            after = files.crash(random.Random(seed))
            if after.exists("/a/t-0"):
                assert topic_id_of(after, "/a/t-0") in (None, TOPIC_ID)
                state = load_log(after, _load_request(), silence)
                assert state.log_end_offset == 0


def test_topic_id_is_durable_once_a_log_is_loaded_after_a_kill_during_its_creation() -> None:
    """Otherwise, a later topic with the same name could get the records of this log."""
    total = _files()
    _create(total)
    loaded = 0
    for number in range(1, total.operations + 1):
        files = _files()
        files.crash_at(number)
        with pytest.raises(SimCrash):
            _create(files)
        after = files.kill()
        if not after.exists("/a/t-0") or topic_id_of(after, "/a/t-0") is None:
            continue  # The log's topic id is written again (log_loader.py).
        after.sync_dir("/a")  # As `LogDir.take_over` does.
        load_log(after, _load_request(), silence)
        loaded += 1
        for seed in range(6):
            lost = after.crash(random.Random(seed))
            assert lost.listdir("/a/t-0")[-1:] == [file_names.PARTITION_METADATA]
            assert read_topic_id(lost, "/a/t-0") == TOPIC_ID
    assert loaded


def test_existing_directory_is_renamed_as_stray() -> None:
    files = _files()
    _create_and_use(files)
    _create_and_use(files)
    stray = f"t-0.{TOPIC_ID.hex()}-stray"
    assert files.listdir("/a") == ["t-0", stray]
    assert files.listdir(f"/a/{stray}") == FILES_OF_A_LOG


def test_earlier_stray_directory_stays() -> None:
    files = _files()
    for _ in range(3):
        _create_and_use(files)
    stray = f"t-0.{TOPIC_ID.hex()}-stray"
    assert files.listdir("/a") == ["t-0", stray, stray.replace("-stray", "1-stray")]


def test_each_stray_directory_gets_a_unique_name() -> None:
    """Repeated crashes may leave a directory of the same name."""
    files = _files()
    for _ in range(4):
        _create_and_use(files)
    found = files.listdir("/a")
    assert len(found) == len(set(found)) == 4
    for name in found:
        assert files.listdir(f"/a/{name}") == FILES_OF_A_LOG
        assert file_names.parse_partition_dir_name(name) is not None


def test_stray_name_of_the_longest_topic_fits() -> None:
    files = _files()
    new = _new("t" * 249)
    _create_and_use(files, new)
    _create_and_use(files, new)
    stray = next(name for name in files.listdir("/a") if name.endswith("-stray"))
    assert len(stray) == 255
    parsed = file_names.parse_partition_dir_name(stray)
    assert parsed is not None
    assert parsed.state == file_names.STRAY_DIR_SUFFIX


def test_unused_existing_directory_is_removed() -> None:
    files = _files()
    for _ in range(3):
        _create(files)
    assert files.listdir("/a") == ["t-0"]
    assert files.listdir("/a/t-0") == FILES_OF_A_LOG


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_creation_that_fails_anywhere_leaves_nothing_behind(number: int) -> None:
    total = _files()
    _create(total, _new(partition=0), _new(partition=1))
    for operation in range(1, total.operations + 1):
        files = _files()
        files.fail_at(operation, number)
        with pytest.raises(OSError, match=r"No space|Input/output"):
            _create(files, _new(partition=0), _new(partition=1))
        assert files.listdir("/a") == []
        assert files.still_open() == []


@pytest.mark.parametrize("when", list(When))
def test_creation_that_meets_an_exception_anywhere_leaves_nothing_behind(when: When) -> None:
    number = 0
    while True:
        number += 1
        files, faults = _files(), Faults()
        faults.arm(number, when, MemoryError("injected"))
        if not _fails(faults.files(files)):
            break
        assert files.listdir("/a") == []
        assert files.still_open() == []
    assert number > 10


def _fails(files: Files) -> bool:
    new_logs = [_new(partition=0), _new(partition=1)]
    try:
        create_logs(files, "/a", new_logs, producer_id_expiration_ms=1000)
    except MemoryError:
        return True
    return False


def test_creation_can_be_retried_on_a_full_disk() -> None:
    files = _files()
    files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            _create(files)
    files.fail_no_more()
    _create(files)
    assert files.listdir("/a") == ["t-0"]


def test_remains_of_a_failed_creation_are_removed_by_the_next() -> None:
    files = _files()
    files.fail_when(lambda operation: operation.name in ("append", "unlink"), errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        _create(files)
    assert files.listdir("/a") == ["t-0"]
    files.fail_no_more()
    _create(files)
    assert files.listdir("/a") == ["t-0"]


def test_directory_that_cannot_be_renamed_is_not_removed() -> None:
    files = _files()
    _create_and_use(files)
    files.fail_when(lambda operation: operation.name == "rename", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        _create(files)
    assert files.listdir("/a/t-0") == FILES_OF_A_LOG
