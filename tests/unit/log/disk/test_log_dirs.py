"""Several log directories: their identity, state and file systems."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from plogd.config import BrokerConfig
from plogd.log.disk.checkpoint_files import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from plogd.log.disk.log_dir import LogDir, LogDirUnusable
from plogd.log.disk.log_dirs import LogDirs
from plogd.ports import Later, spawn
from tests.helpers.sim.sim_files import Operation, SimFiles
from tests.helpers.sim.sim_ports import SimPorts, settled

PATHS = ("/a", "/b")


def _dirs(
    files: SimFiles, paths: Sequence[str] = PATHS, *, seed: int = 0, **settings: Any
) -> tuple[SimPorts, LogDirs]:
    ports = SimPorts(seed, files=files)
    config = BrokerConfig(log_dirs=tuple(paths), **{"node_id": 1, **settings})
    log_dirs = LogDirs(
        config,
        [LogDir(path, files, ports.report) for path in paths],
        ports.bundle(),
        on_failure=lambda log_dirs, error: None,
    )
    return ports, log_dirs


def _open(files: SimFiles, paths: Sequence[str] = PATHS, **settings: Any) -> LogDirs:
    ports, log_dirs = _dirs(files, paths, **settings)
    settled(ports, spawn(log_dirs.open()))
    return log_dirs


def _released(log_dirs: LogDirs) -> LogDirs:
    for log_dir in log_dirs:
        log_dir.release()
    return log_dirs


def _belongs_to(files: SimFiles, path: str, cluster_id: str, node_id: int = 1) -> None:
    write_meta_properties(files, path, MetaProperties(cluster_id=cluster_id, node_id=node_id))


def _fails(path: str, name: str = "") -> Callable[[Operation], bool]:
    return lambda operation: operation.path.startswith(path) and operation.name.startswith(name)


# -- identity ---------------------------------------------------------------------------------


def test_new_directories_get_one_cluster_id_and_each_its_own_directory_id() -> None:
    files = SimFiles(PATHS)
    log_dirs = _open(files)
    a, b = (read_meta_properties(files, path) for path in PATHS)
    assert a is not None
    assert b is not None
    assert a.cluster_id == b.cluster_id == log_dirs.cluster_id
    assert len(log_dirs.cluster_id) == 22
    assert (a.node_id, b.node_id) == (1, 1)
    assert a.directory_id != b.directory_id


ZOOKEEPER = {"plog_metadata_store": "zookeeper"}


def test_directories_of_a_cluster_in_zookeeper_have_the_form_of_kafka_3() -> None:
    files = SimFiles(PATHS)
    log_dirs = _released(_open(files, **ZOOKEEPER))
    expected = MetaProperties(cluster_id=log_dirs.cluster_id, node_id=1, version=0)
    assert [read_meta_properties(files, path) for path in PATHS] == [expected] * 2
    assert _open(files, **ZOOKEEPER).cluster_id == log_dirs.cluster_id


def test_directory_id_that_kafka_has_written_is_kept() -> None:
    files = SimFiles(["/a"])
    identity = MetaProperties(cluster_id="x", node_id=1, version=0, directory_id="d" * 22)
    write_meta_properties(files, "/a", identity)
    _open(files, ["/a"], **ZOOKEEPER)
    assert read_meta_properties(files, "/a") == identity


@pytest.mark.parametrize("has_identity", [False, True])
def test_directory_of_an_embedded_store_is_refused_with_zookeeper(has_identity: bool) -> None:
    files = SimFiles(PATHS)
    if has_identity:
        _belongs_to(files, "/b", "x")
    else:
        files.mkdir("/b/__cluster_metadata-0")
    with pytest.raises(LogDirUnusable, match=r"^/b belongs to .* not in ZooKeeper"):
        _open(files, **ZOOKEEPER)
    _released(_open(files))


def test_directory_of_zookeeper_mode_is_refused_by_an_embedded_broker() -> None:
    files = SimFiles(PATHS)
    identity = MetaProperties(cluster_id="x", node_id=1, version=0)
    write_meta_properties(files, "/b", identity)
    with pytest.raises(LogDirUnusable, match=r"^/b belongs to .* metadata is in ZooKeeper"):
        _open(files)
    assert read_meta_properties(files, "/b") == identity
    # As it is after an import of the metadata.
    files.mkdir("/a/__cluster_metadata-0")
    assert _open(files).cluster_id == "x"


def test_cluster_can_refuse_the_directories() -> None:
    files = SimFiles(PATHS)
    _belongs_to(files, "/a", "x")
    asked: list[tuple[str, str]] = []

    def refuse(known: str, new: str) -> Later[str]:
        asked.append((known, new))
        later: Later[str] = Later()
        later.fail(LogDirUnusable("another cluster"))
        return later

    ports, log_dirs = _dirs(files)
    with pytest.raises(LogDirUnusable, match="another cluster"):
        settled(ports, spawn(log_dirs.open(refuse)))
    assert asked == [("x", "")]
    assert read_meta_properties(files, "/b") is None
    _released(_open(files))


def test_identity_stays_the_same_across_starts() -> None:
    files = SimFiles(PATHS)
    first = _released(_open(files))
    before = [read_meta_properties(files, path) for path in PATHS]
    assert _open(files, seed=7).cluster_id == first.cluster_id
    assert [read_meta_properties(files, path) for path in PATHS] == before


def test_new_directory_joins_the_cluster_of_the_others() -> None:
    files = SimFiles((*PATHS, "/c"))
    first = _released(_open(files))
    assert _open(files, ("/c", *PATHS)).cluster_id == first.cluster_id
    added = read_meta_properties(files, "/c")
    assert added is not None
    assert added.cluster_id == first.cluster_id


def test_directory_of_another_cluster_is_refused() -> None:
    files = SimFiles(PATHS)
    _belongs_to(files, "/a", "one")
    _belongs_to(files, "/b", "two")
    with pytest.raises(LogDirUnusable, match="/b belongs to cluster two, but /a belongs to one"):
        _open(files)


def test_directory_of_another_broker_is_refused() -> None:
    files = SimFiles(PATHS)
    _belongs_to(files, "/b", "one", node_id=5)
    with pytest.raises(LogDirUnusable, match=r"/b belongs to broker 5, but node\.id is 1; set"):
        _open(files)


def test_refused_start_changes_nothing_and_holds_no_lock() -> None:
    """In particular, the clean shutdown file stays: a wrong setting must not cause recovery."""
    files = SimFiles(PATHS)
    for log_dir in _open(files):
        log_dir.close(clean=True)
    before = [(path, files.listdir(path)) for path in PATHS]
    with pytest.raises(LogDirUnusable, match="belongs to broker 1"):
        _open(files, node_id=2)
    assert [(path, files.listdir(path)) for path in PATHS] == before
    assert all(log_dir.was_clean for log_dir in _open(files))


def test_start_is_refused_and_locks_released_when_a_directory_is_in_use() -> None:
    files = SimFiles(PATHS)
    holder = LogDir("/b", files, lambda message, **fields: None)
    holder.open()
    with pytest.raises(LogDirUnusable, match="cannot lock /b: in use by another broker"):
        _open(files)
    holder.release()
    assert [log_dir.path for log_dir in _open(files).online] == ["/a", "/b"]


# -- state ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["", "rename", "sync", "append"])
def test_directory_that_cannot_be_used_is_offline_from_the_start(what: str) -> None:
    files = SimFiles(PATHS)
    _belongs_to(files, "/a", "one")
    ports, log_dirs = _dirs(files)
    files.fail_when(_fails("/b", what), errno.EIO)
    settled(ports, spawn(log_dirs.open()))
    assert [log_dir.path for log_dir in log_dirs.online] == ["/a"]
    assert log_dirs.offline_paths == ["/b"]
    assert len(ports.reports) == 1
    assert ports.reports[0].startswith("cannot use log directory /b: [Errno 5] Input/output error")
    assert len(log_dirs.sync_rounds) == 1


def test_start_is_refused_without_any_usable_directory() -> None:
    files = SimFiles(PATHS)
    files.fail_when(lambda operation: True, errno.EROFS)
    with pytest.raises(LogDirUnusable, match=r"any directory in log\.dirs: /a: .*, /b: .*only"):
        _open(files)


def test_error_of_a_directory_includes_its_remedy() -> None:
    files = SimFiles(PATHS)
    _belongs_to(files, "/a", "one")
    files.fail_when(_fails("/b"), errno.EROFS)
    ports, log_dirs = _dirs(files)
    log_dirs.remedy = lambda log_dir, error: f"remount {log_dir}"
    settled(ports, spawn(log_dirs.open()))
    assert [report.rpartition("; ")[2] for report in ports.reports] == ["remount /b"]


def test_default_remedy_is_used_only_if_no_other_is_known() -> None:
    _, log_dirs = _dirs(SimFiles(PATHS))
    broken, full = OSError(errno.EIO, "broken"), OSError(errno.ENOSPC, "full")
    assert log_dirs.explain("/a", broken, "repair it") == "[Errno 5] broken; repair it"
    assert log_dirs.explain("/a", full, "repair it") == "[Errno 28] full; free space on the disk"
    log_dirs.remedy = lambda log_dir, error: "chown it"
    assert log_dirs.explain("/a", broken, "repair it") == "[Errno 5] broken; chown it"


def test_start_is_refused_when_the_last_directory_fails() -> None:
    files = SimFiles(["/a"])
    files.fail_when(_fails("/a", "sync"), errno.EIO)
    with pytest.raises(LogDirUnusable, match=r"cannot use any directory in log\.dirs: /a"):
        _open(files, ["/a"])


def test_cluster_id_is_not_generated_while_a_directory_is_offline() -> None:
    """The new id would be written, and later contradict the repaired directory."""
    files = SimFiles(PATHS)
    _belongs_to(files, "/a", "one")
    files.fail_when(_fails("/a"), errno.EIO)
    with pytest.raises(LogDirUnusable, match="and /a cannot be used; repair"):
        _open(files)
    files.fail_no_more()
    assert _open(files).cluster_id == "one"


# -- file systems -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device_by_path", "expected"),
    [({}, 1), ({"/a": 7, "/b": 7}, 1), ({"/b": 2}, 2)],
)
def test_directories_of_one_file_system_share_their_sync_rounds(
    device_by_path: Mapping[str, int], expected: int
) -> None:
    log_dirs = _open(SimFiles(PATHS, device_by_path=device_by_path))
    assert len(log_dirs.sync_rounds) == expected
    assert (log_dirs.rounds_of("/a") is log_dirs.rounds_of("/b")) == (expected == 1)


def test_syncfs_is_not_used_when_disabled() -> None:
    allowed = _open(SimFiles(PATHS)).sync_rounds[0]
    forbidden = _open(SimFiles(PATHS), plog_flush_syncfs="never").sync_rounds[0]
    assert allowed._may_sync_fs
    assert not forbidden._may_sync_fs


def test_directories_are_found_by_path_in_the_order_of_the_setting() -> None:
    log_dirs = _open(SimFiles(PATHS), ("/b", "/a"))
    assert [log_dir.path for log_dir in log_dirs] == ["/b", "/a"]
    assert log_dirs["/a"].path == "/a"
