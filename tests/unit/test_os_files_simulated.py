"""The fault model of the simulated file system: faults it must produce, and those it must not.

test_os_files.py checks its behavior without faults against the operating system.
"""

from __future__ import annotations

import copy
import errno
import random

import pytest

from tests.helpers.sim.sim_files import Operation, SimCrash, SimFiles
from tests.helpers.sim.sim_time import SimClock

SEEDS = range(200)


def _after_crashes(files: SimFiles) -> set[bytes]:
    """Return the possible contents of /d/a after a power loss; each crash uses a copy."""
    found = set()
    for seed in SEEDS:
        crashed = _copy(files).crash(random.Random(seed))
        found.add(crashed.read_file("/d/a"))
    return found


def _copy(files: SimFiles) -> SimFiles:
    return copy.deepcopy(files)


def _synced(content: bytes) -> SimFiles:
    files = SimFiles(["/d"])
    file = files.open_append("/d/a")
    file.append(content)
    file.sync()
    files.sync_dir("/d")
    return files


# -- power loss: content ----------------------------------------------------------------------


def test_synced_bytes_survive_a_crash() -> None:
    assert _after_crashes(_synced(b"durable")) == {b"durable"}


def test_unsynced_bytes_may_be_lost_whole_torn_or_zeroed() -> None:
    files = _synced(b"durable")
    files.open_append("/d/a").append(b"123456")
    found = _after_crashes(files)
    assert all(content.startswith(b"durable") for content in found)
    for expected in (b"durable", b"durable123456", b"durable123", b"durable123\0\0\0"):
        assert expected in found


def test_unsynced_sectors_may_arrive_in_any_order() -> None:
    files = _synced(b"")
    file = files.open_append("/d/a")
    file.append(b"1" * 4096 + b"2" * 4096)
    found = _after_crashes(files)
    assert bytes(4096) + b"2" * 4096 in found
    assert b"1" * 4096 + bytes(4096) in found


def test_unsynced_truncation_may_be_undone() -> None:
    files = _synced(b"durable")
    file = files.open_append("/d/a")
    file.truncate(3)
    assert {b"dur", b"durable"} <= _after_crashes(files)
    file.append(b"XYZ")
    found = _after_crashes(files)
    assert {b"durable", b"durXYZ", b"dur"} <= found
    file.sync()
    assert _after_crashes(files) == {b"durXYZ"}


def test_sync_fs_makes_content_and_names_durable() -> None:
    files = SimFiles(["/d"])
    files.open_append("/d/a").append(b"x")
    files.mkdir("/d/e/f")
    files.sync_fs("/d")
    for seed in SEEDS:
        crashed = _copy(files).crash(random.Random(seed))
        assert crashed.read_file("/d/a") == b"x"
        assert crashed.is_dir("/d/e/f")


def test_sync_fs_affects_only_its_own_device() -> None:
    files = SimFiles(device_by_path={"/one": 1, "/two": 2})
    for place in ("/one", "/two"):
        file = files.open_append(f"{place}/a")
        file.append(b"x")
        files.sync_dir(place)
    files.sync_fs("/one")
    crashed = [_copy(files).crash(random.Random(seed)) for seed in SEEDS]
    assert {after.read_file("/one/a") for after in crashed} == {b"x"}
    assert b"" in {after.read_file("/two/a") for after in crashed}
    with pytest.raises(OSError, match="cross-device"):
        files.rename("/one/a", "/two/b")


# -- power loss: names ------------------------------------------------------------------------


def _names_after_crashes(files: SimFiles) -> set[tuple[str, ...]]:
    return {tuple(_copy(files).crash(random.Random(seed)).listdir("/d")) for seed in SEEDS}


def test_unsynced_names_may_be_lost_in_any_combination() -> None:
    files = SimFiles(["/d"])
    for name in ("a", "b"):
        files.open_append(f"/d/{name}").sync()
    assert _names_after_crashes(files) == {(), ("a",), ("b",), ("a", "b")}
    files.sync_dir("/d")
    assert _names_after_crashes(files) == {("a", "b")}


def test_removed_names_may_come_back() -> None:
    files = _synced(b"x")
    files.unlink("/d/a")
    assert _names_after_crashes(files) == {(), ("a",)}
    files.sync_dir("/d")
    assert _names_after_crashes(files) == {()}


def test_exchange_is_atomic() -> None:
    files = _synced(b"one")
    file = files.open_append("/d/b")
    file.append(b"two")
    file.sync()
    files.sync_dir("/d")
    files.exchange("/d/a", "/d/b")
    found = set()
    for seed in SEEDS:
        crashed = _copy(files).crash(random.Random(seed))
        found.add((crashed.read_file("/d/a"), crashed.read_file("/d/b")))
    assert found == {(b"one", b"two"), (b"two", b"one")}


def test_rename_is_atomic() -> None:
    files = _synced(b"old")
    file = files.open_append("/d/a.tmp")
    file.append(b"new")
    file.sync()
    files.sync_dir("/d")
    files.rename("/d/a.tmp", "/d/a")
    found = set()
    for seed in SEEDS:
        crashed = _copy(files).crash(random.Random(seed))
        found.add((tuple(crashed.listdir("/d")), crashed.read_file("/d/a")))
    assert found == {(("a",), b"new"), (("a", "a.tmp"), b"old")}


def test_directory_whose_name_is_lost_loses_its_content() -> None:
    files = SimFiles(["/d"])
    files.mkdir("/d/e")
    files.open_append("/d/e/a").sync()
    files.sync_dir("/d/e")
    assert _names_after_crashes(files) == {(), ("e",)}


# -- killed process ---------------------------------------------------------------------------


def test_kill_keeps_written_bytes_without_making_them_durable() -> None:
    files = _synced(b"durable")
    files.open_append("/d/a").append(b"123")
    survivor = files.kill()
    assert survivor.read_file("/d/a") == b"durable123"
    assert b"durable" in _after_crashes(survivor)
    with pytest.raises(SimCrash):
        files.listdir("/d")


def test_last_append_may_be_cut_by_a_kill() -> None:
    found = set()
    for seed in SEEDS:
        files = _synced(b"durable")
        files.open_append("/d/a").append(b"123")
        found.add(files.kill(random.Random(seed)).read_file("/d/a"))
    assert found == {b"durable", b"durable1", b"durable12", b"durable123"}


def test_locks_end_with_the_process() -> None:
    files = SimFiles(["/d"])
    files.lock("/d/.lock")
    files.kill().lock("/d/.lock")


# -- crash and errors at an operation ---------------------------------------------------------


def test_operations_are_counted_and_reported() -> None:
    files = SimFiles(["/d"])
    seen: list[Operation] = []
    files.on_operation = seen.append
    file = files.open_append("/d/a")
    file.append(b"x")
    file.truncate(0)
    file.sync()
    files.rename("/d/a", "/d/b")
    files.mkdir("/d/c")
    files.rmdir("/d/c")
    files.unlink("/d/b")
    files.sync_dir("/d")
    files.sync_fs("/d")
    assert [operation.name for operation in seen] == [
        "create",
        "append",
        "truncate",
        "sync",
        "rename",
        "mkdir",
        "rmdir",
        "unlink",
        "sync_dir",
        "sync_fs",
    ]
    assert [operation.number for operation in seen] == list(range(1, 11))
    assert files.operations == 10


def test_crash_stops_everything_at_its_operation() -> None:
    files = SimFiles(["/d"])
    files.crash_at(2)
    file = files.open_append("/d/a")
    with pytest.raises(SimCrash):
        file.append(b"x")
    with pytest.raises(SimCrash):
        files.listdir("/d")
    with pytest.raises(SimCrash):
        file.append(b"y")
    with pytest.raises(SimCrash):
        file.sync()
    file.close()


def test_interrupted_sync_guarantees_nothing() -> None:
    files = _synced(b"durable")
    file = files.open_append("/d/a")
    file.append(b"123")
    files.crash_at(files.operations + 1)
    with pytest.raises(SimCrash):
        file.sync()
    assert {b"durable", b"durable123"} <= _after_crashes(files)


def test_injected_error_prevents_the_operation() -> None:
    files = SimFiles(["/d"])
    files.fail_at(1, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        files.open_append("/d/a")
    assert files.listdir("/d") == []
    files.open_append("/d/a")


def test_failed_append_leaves_half_of_its_bytes() -> None:
    files = SimFiles(["/d"])
    file = files.open_append("/d/a")
    files.fail_when(lambda operation: operation.name == "append", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.append(b"123456")
    assert file.pread(9, 0) == b"123"


def test_reads_can_fail() -> None:
    files = _synced(b"x")
    file = files.open_read("/d/a")
    files.fail_when(lambda operation: operation.name in ("pread", "read"), errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.pread(1, 0)
    with pytest.raises(OSError, match="Input/output"):
        files.read_file("/d/a")
    files.fail_no_more()
    assert file.pread(1, 0) == b"x"


def test_sync_after_a_failed_sync_proves_nothing() -> None:
    """As on Linux, the pages that could not be written are marked clean (fsyncgate)."""
    files = _synced(b"durable")
    file = files.open_append("/d/a")
    file.append(b"123")
    files.fail_when(lambda operation: operation.name == "sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    files.fail_no_more()
    with pytest.raises(OSError, match="an earlier sync failed"):
        file.sync()
    other = files.open_append("/d/a")
    other.sync()
    assert b"durable" in _after_crashes(files)
    assert file.pread(10, 0) == b"durable123"
    file.drop_cache()
    assert file.pread(10, 0) == b"durable\0\0\0"
    file.truncate(7)
    file.append(b"456")
    other.sync()
    assert _after_crashes(files) == {b"durable456"}


def test_failed_syncfs_may_lose_any_dirty_file() -> None:
    files = _synced(b"durable")
    file = files.open_append("/d/a")
    file.append(b"123")
    files.fail_when(lambda operation: operation.name == "sync_fs", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        files.sync_fs("/d")
    file.sync()
    assert b"durable" in _after_crashes(files)


def test_full_disk_refuses_writes_until_space_is_freed() -> None:
    files = SimFiles(["/d"])
    files.capacity_bytes = 10
    one, two = files.open_append("/d/a"), files.open_append("/d/b")
    one.append(b"12345678")
    with pytest.raises(OSError, match="No space"):
        two.append(b"1234")
    two.truncate(0)
    two.append(b"12")
    with pytest.raises(OSError, match="No space"):
        two.append(b"3")
    files.unlink("/d/a")
    two.append(b"4567")


def test_free_space_is_capacity_minus_file_sizes() -> None:
    files = SimFiles(["/d"])
    files.open_append("/d/a").append(b"12345678")
    assert files.space("/d") == (1 << 40, (1 << 40) - 8)
    files.capacity_bytes = 10
    assert files.space("/d") == (10, 2)
    files.capacity_bytes = 5
    assert files.space("/d") == (5, 0)


def test_overwritten_content_is_durable() -> None:
    files = _synced(b"durable")
    files.overwrite("/d/a", b"damaged and longer")
    assert _after_crashes(files) == {b"damaged and longer"}


def test_modification_time_comes_from_the_clock() -> None:
    clock = SimClock(1000)
    files = SimFiles(["/d"], clock=clock)
    file = files.open_append("/d/a")
    clock.advance_to(500)
    file.append(b"x")
    assert files.modified_ms("/d/a") == files.modified_ms("/d") + 500 == 1500
    clock.advance_to(700)
    file.truncate(0)
    files.rename("/d/a", "/d/b")
    assert files.modified_ms("/d/b") == files.modified_ms("/d") == 1700
    assert files.crash(random.Random(1)) is not files


def test_relative_paths_are_supported() -> None:
    files = SimFiles()
    files.mkdir("./data/x")
    assert files.listdir("/data") == files.listdir("data") == ["x"]


# -- another disk -----------------------------------------------------------------------------


def test_emptied_directory_stays_empty_after_a_power_loss() -> None:
    files = _synced(b"durable")
    files.rename("/d/a", "/d/b")
    files.mkdir("/d/inner")
    files.empty("/d")
    assert files.listdir("/d") == []
    for seed in SEEDS:
        assert _copy(files).crash(random.Random(seed)).listdir("/d") == []


def test_snapshot_contains_unsynced_bytes_and_names_durably() -> None:
    files = _synced(b"durable")
    files.open_append("/d/a").append(b" and more")
    files.open_append("/d/b").append(b"new")
    snapshot = files.snapshot()
    files.open_append("/d/a").truncate(0)
    restored = files.restored(snapshot)
    assert files.is_dead
    for seed in SEEDS:
        crashed = _copy(restored).crash(random.Random(seed))
        assert crashed.read_file("/d/a") == b"durable and more"
        assert crashed.read_file("/d/b") == b"new"


def test_durable_bytes_are_those_below_a_durable_name() -> None:
    files = SimFiles(["/d"])
    file = files.open_append("/d/a")
    file.append(b"12345")
    file.sync()
    assert files.durable_bytes("/d/a") == 0
    files.sync_dir("/d")
    file.append(b"67")
    assert files.durable_bytes("/d/a") == 5
    file.truncate(3)
    assert files.durable_bytes("/d/a") == 3
