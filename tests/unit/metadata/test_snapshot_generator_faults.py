"""What is left of a snapshot that cannot be written, and what the next attempt does."""

from __future__ import annotations

import errno

import pytest

from plogd.fair_queue import SLICE
from plogd.log.disk.reserved_space import RECORDS_BYTES
from plogd.log.housekeeping import RETRY_MS
from plogd.metadata.snapshot_name import SnapshotName
from tests.helpers.injection import Faults, When
from tests.helpers.log.metadata_site import DIRECTORY, MetadataSite
from tests.helpers.sim.sim_files import Operation
from tests.unit.metadata.test_snapshot_generator import HOUR_MS


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("name", ["create", "append", "sync", "rename", "sync_dir"])
def test_failed_snapshot_is_abandoned_and_retried(name: str, error: int) -> None:
    site = MetadataSite(interval_ms=HOUR_MS)
    site.start()
    site.create("t")
    site.ports.advance(HOUR_MS)
    [first] = site.snapshots
    site.create("u")

    paths: list[str] = []

    def applies(operation: Operation) -> bool:
        # The sync of the directory that follows the rename of a snapshot.
        is_snapshot = ".checkpoint" in (paths[-1] if name == "sync_dir" else operation.path)
        paths.append(operation.path)
        return operation.name == name and is_snapshot

    site.files.fail_when(applies, error)
    site.ports.advance(HOUR_MS)
    site.files.fail_no_more()
    [report] = [text for text in site.ports.reports if text.startswith("metadata-snapshot of")]
    assert "it will be retried" in report
    assert site.store.has_failed is False
    assert site.parts == []
    assert site.snapshots[0] == first
    assert site.log.log_start_offset == 0
    assert site.manager.housekeeping.errors_by_task == {"metadata-snapshot": 1}
    expected = site.values
    site.ports.advance(RETRY_MS)
    assert len(site.snapshots) == 2
    assert site.log.log_start_offset == first.end_offset
    site.start(site.files.kill(), registers=False)
    assert site.values == expected


def test_full_disk_keeps_the_reserved_space_of_the_active_segment() -> None:
    site = MetadataSite(interval_ms=HOUR_MS)
    site.start()
    site.create("t")
    active = site.log.segments.active
    site.files.capacity_bytes = site.files.used_bytes + RECORDS_BYTES
    site.ports.advance(3 * HOUR_MS)
    assert site.log.segments.active is active
    assert site.snapshots == []
    assert any("No space left on device" in report for report in site.ports.reports)
    site.files.capacity_bytes = None
    site.ports.advance(RETRY_MS)
    assert len(site.snapshots) == 1


def test_repeated_attempts_roll_the_log_once() -> None:
    site = MetadataSite(interval_ms=HOUR_MS)
    site.start()
    site.files.fail_when(lambda operation: ".part" in operation.path, errno.EIO)
    site.ports.advance(HOUR_MS)
    for number in range(10):
        site.create(f"t{number}")
        site.ports.advance(RETRY_MS)
    assert len(site.log.segments) == 2
    assert site.manager.housekeeping.errors_by_task["metadata-snapshot"] >= 10
    site.files.fail_no_more()
    site.ports.advance(RETRY_MS)
    assert [name.end_offset for name in site.snapshots] == [site.log.log_end_offset]


def test_failed_log_directory_ends_the_snapshot_and_is_not_written_to() -> None:
    site = MetadataSite(interval_ms=HOUR_MS)
    site.start()
    site.create("t", 4 * SLICE)
    site.ports.clock.advance_to(site.ports.clock.monotonic_ms() + HOUR_MS)
    while not site.parts:
        assert site.ports.timers.run_due() or site.ports.jobs.run_all()
    site.manager.storage_failed("/d", OSError(errno.EIO, "broken"))
    written: list[str] = []
    site.files.on_operation = lambda operation: written.append(operation.name)
    site.ports.advance(10 * RETRY_MS)
    assert written == []
    assert len(site.parts) == 1


def test_start_removes_incomplete_snapshots() -> None:
    site = MetadataSite()
    site.start()
    site.files.open_append(f"{DIRECTORY}/{SnapshotName(1, 0).file_name}.part").append(b"x")
    site.restart()
    assert site.parts == []


def test_stop_ends_a_snapshot_and_the_next_start_removes_it() -> None:
    site = MetadataSite(interval_ms=HOUR_MS)
    site.start()
    site.create("t", 4 * SLICE)
    expected = site.values
    site.ports.clock.advance_to(site.ports.clock.monotonic_ms() + HOUR_MS)
    while not site.parts:
        assert site.ports.timers.run_due() or site.ports.jobs.run_all()
    site.stop()
    assert site.snapshots == []
    site.start(site.files.kill(), registers=False)
    assert site.values == expected
    assert site.parts == []


def test_slow_disk_rolls_the_log_in_a_job() -> None:
    site = MetadataSite(interval_ms=HOUR_MS)
    site.start()
    site.create("t")
    site.log._writes.took(50.0)
    site.ports.clock.advance_to(site.ports.clock.monotonic_ms() + HOUR_MS)
    rolling = False
    while not site.snapshots:
        rolling |= site.log.is_being_written
        if not site.ports.timers.run_due():
            site.ports.jobs.run_one()
    assert rolling
    [name] = site.snapshots
    site.create("u")
    assert site.log.segments.active.base_offset == name.end_offset
    expected = site.values
    site.start(site.files.kill(), registers=False)
    assert site.values == expected


def test_no_snapshot_contains_a_registration_that_is_not_on_disk() -> None:
    site = MetadataSite(interval_ms=HOUR_MS)
    site.start()
    files = site.files.kill()
    files.reserve_supported = False
    files.fail_when(lambda op: op.name == "append" and op.path.endswith(".log"), errno.ENOSPC)
    site.start(files)
    assert not site.store.is_registered
    site.ports.advance(HOUR_MS)
    assert site.snapshots == []
    files.fail_no_more()
    site.settle(site.store.retry_registration())
    site.ports.advance(HOUR_MS)
    [name] = site.snapshots
    assert (name.end_offset, name.epoch) == (site.log.log_end_offset, 1)


@pytest.mark.parametrize("when", When)
def test_exception_at_any_call_leaves_the_metadata_as_they_are(when: When) -> None:
    number = 0
    while True:
        number += 1
        faults = Faults()
        site = MetadataSite(interval_ms=HOUR_MS)
        site.start(faults=faults)
        site.create("t")
        site.ports.advance(HOUR_MS)
        site.create("u")
        expected = site.values
        faults.arm(faults.calls + number, when, MemoryError("injected"))
        site.ports.advance(HOUR_MS)
        if not faults.raised:
            break
        site.ports.advance(2 * RETRY_MS)
        if not site.store.has_failed:
            assert len(site.snapshots) == 2
            site.create("v")
            expected = site.values
        site.start(site.files.kill(), registers=False)
        assert site.values == expected, number
    assert number > 15
