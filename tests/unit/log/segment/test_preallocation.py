"""Segments reserve disk space ahead of their appends, and release it when they are closed."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from plog.errors import KafkaStorageError
from plogd.log.log import Log
from plogd.os_files import OsFiles
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets, batch_offsets

LARGE = replace(CONFIG, segment_bytes=1 << 30)


def site_of(preallocate_bytes: int = 2_000) -> tuple[LogSite, Log]:
    site = LogSite(plog_log_preallocate_bytes=preallocate_bytes).start()
    return site, site.create("t-0", LARGE)


def fill_to(site: LogSite, log: Log, size_bytes: int) -> None:
    """Append until the active segment has at least `size_bytes`, and run the jobs."""
    while log.segments.active.size_bytes < size_bytes:
        site.fill(log, 1)
        site.settle()


def reserved(site: LogSite, log: Log, base_offset: int = 0) -> int:
    """Return the number of reserved bytes after the end of a segment."""
    return site.files.reserved_bytes(site.path(log, base_offset))


def test_segment_reserves_space_from_its_first_limit() -> None:
    site, log = site_of()
    fill_to(site, log, 1_500)
    assert reserved(site, log) == 0
    fill_to(site, log, 2_000)
    assert 1_500 < reserved(site, log) <= 2_000


def test_space_is_reserved_again_when_half_of_it_is_used() -> None:
    site, log = site_of()
    fill_to(site, log, 2_000)
    for size_bytes in range(2_200, 20_000, 200):
        fill_to(site, log, size_bytes)
        assert 500 < reserved(site, log) <= 2_000


def test_segment_does_not_reserve_more_than_it_has() -> None:
    site, log = site_of(64 << 20)
    site.fill(log, 4, value_bytes=(1 << 20) - 200)
    site.settle()
    assert reserved(site, log) == 0
    site.fill(log, 1, value_bytes=1 << 10)
    site.settle()
    assert reserved(site, log) == log.segments.active.size_bytes


def test_nothing_is_reserved_when_it_is_disabled() -> None:
    site, log = site_of(0)
    fill_to(site, log, 10_000)
    assert reserved(site, log) == 0


def test_size_of_the_log_does_not_include_reserved_space() -> None:
    site, log = site_of()
    fill_to(site, log, 3_000)
    assert reserved(site, log)
    assert log.size_bytes == len(site.files.read_file(site.path(log, 0)))


def test_sealed_segment_releases_its_space() -> None:
    site, log = site_of()
    fill_to(site, log, 3_000)
    assert reserved(site, log)
    log.roll()
    site.settle()
    assert reserved(site, log) == 0
    assert batch_offsets(log) == list(range(log.log_end_offset))


def test_clean_stop_releases_the_space() -> None:
    site, log = site_of()
    fill_to(site, log, 3_000)
    assert reserved(site, log)
    site = site.restart()
    assert reserved(site, site.log()) == 0


@pytest.mark.parametrize("seed", range(5))
def test_recovery_releases_the_space(seed: int) -> None:
    site, log = site_of()
    fill_to(site, log, 3_000)
    assert reserved(site, log)
    end = log.log_end_offset
    killed = site.kill() if seed == 0 else site.crash(seed)
    assert reserved(killed, killed.log()) == 0
    assert batch_offsets(killed.log()) == list(range(end))
    fill_to(killed, killed.log(), 6_000)
    assert reserved(killed, killed.log())


@pytest.mark.parametrize("supported", [False, True])
def test_appends_continue_when_space_cannot_be_reserved(supported: bool) -> None:
    site, log = site_of()
    site.files.reserve_supported = supported
    if supported:
        # Enough for the appends, but not sixteen times what a segment reserves.
        site.files.capacity_bytes = site.files.used_bytes + 30_000
    fill_to(site, log, 10_000)
    assert reserved(site, log) == 0
    assert not site.offline
    # There is space now, or the file system was remounted.
    site.files.reserve_supported = True
    site.files.capacity_bytes = None
    fill_to(site, log, 14_000)
    assert reserved(site, log)


def test_failed_disk_is_reported_by_the_append() -> None:
    site, log = site_of()
    fill_to(site, log, 1_900)
    site.files.fail_when(lambda operation: operation.name == "space", errno.EIO)
    fill_to(site, log, 3_000)
    assert not site.offline
    site.files.fail_when(lambda operation: operation.name == "append", errno.EIO)
    with pytest.raises(KafkaStorageError):
        site.fill(log, 1)
    assert site.offline == ["/a"]


def test_segment_is_deleted_while_space_is_reserved_for_it() -> None:
    site, log = site_of()
    while log.segments.active.size_bytes < 2_000:
        site.fill(log, 1)
    # The job of the reservation has not run yet.
    log.roll()
    site.delete("t-0")
    site.ports.timers.advance(60_000)
    site.settle()
    assert site.bugs == []
    assert site.files.used_bytes < 2_000


def test_rejected_append_keeps_the_log_usable_with_reserved_space() -> None:
    site, log = site_of()
    fill_to(site, log, 3_000)
    before = site.state(log)
    site.files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        site.fill(log, 1)
    site.files.fail_no_more()
    assert site.state(log) == before
    fill_to(site, log, 20_000)
    assert reserved(site, log)
    assert base_offsets(log) == [0]


def test_space_is_not_reserved_beyond_the_size_of_a_segment() -> None:
    site = LogSite(plog_log_preallocate_bytes=2_000).start()
    log = site.create("t-0", replace(CONFIG, segment_bytes=4_000))
    fill_to(site, log, 3_000)
    segment = log.segments.active
    assert 0 < segment.size_bytes + reserved(site, log) <= 4_000


def test_full_disk_releases_the_space_of_all_logs() -> None:
    site, log = site_of()
    fill_to(site, log, 3_000)
    held = reserved(site, log)
    other = site.create("u-0", LARGE)
    site.files.capacity_bytes = site.files.used_bytes + 100
    with pytest.raises(KafkaStorageError):
        site.fill(other, 1)
    site.settle()
    assert (held > 0, reserved(site, log)) == (True, 0)
    site.fill(other, 1)
    fill_to(site, log, 3_500)
    assert reserved(site, log) == 0


def test_release_of_reserved_space_keeps_file_and_time(tmp_path: Path) -> None:
    path = tmp_path / "a"
    file = OsFiles().open_append(str(path))
    file.append(bytes(5_000))
    file.sync()
    used_blocks = path.stat().st_blocks
    assert file.reserve(1 << 20)
    assert path.stat().st_blocks >= used_blocks + (1 << 20) // 512
    file.release()
    assert path.stat().st_blocks <= used_blocks
    assert path.stat().st_size == 5_000
    os.utime(path, (1, 1))
    file.release()
    assert path.stat().st_mtime == 1
    file.close()
