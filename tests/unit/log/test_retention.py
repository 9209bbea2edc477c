"""One log: which segments retention deletes, also on a full or failing disk."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from plogd.log.log import Log
from tests.helpers.log.log_data import T0
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets, batch_offsets, four_segments

HOUR_MS = 3_600_000


def _keeping(**limits: Any) -> tuple[LogSite, Log]:
    """A log of four segments whose records are a minute apart, all durable."""
    site = LogSite().start()
    log = site.create("t-0", replace(CONFIG, **limits))
    for number in range(17):
        site.append(log, timestamp=T0 + number * 60_000, value=b"v" * 95)
    site.settle()
    assert base_offsets(log) == [0, 5, 10, 15]
    return site, log


def test_segments_older_than_retention_ms_are_deleted() -> None:
    """The newest record decides, as recorded in the time index."""
    site, log = _keeping(retention_ms=HOUR_MS)
    assert log.apply_retention(T0 + 4 * 60_000 + HOUR_MS) == 0
    assert log.apply_retention(T0 + 4 * 60_000 + HOUR_MS + 1) == 1
    assert log.apply_retention(T0 + 14 * 60_000 + HOUR_MS + 1) == 2
    assert (log.log_start_offset, base_offsets(log)) == (15, [15])
    assert "deleted 2 segments from t-0; the log start offset is now 15" in site.reports
    assert batch_offsets(log) == [15, 16]


@pytest.mark.parametrize("clean", [True, False])
def test_retention_after_a_start_reads_no_file(clean: bool) -> None:
    """Retention runs on the reactor, over every segment of every log."""
    site, _ = _keeping(retention_ms=HOUR_MS)
    if clean:
        site.stop()
    site = site.kill()
    log = site.log()
    site.files.fail_when(lambda operation: operation.is_read, errno.EIO)
    log.config = replace(CONFIG, retention_ms=HOUR_MS)
    assert log.apply_retention(T0 + 14 * 60_000 + HOUR_MS + 1) == 3
    assert not log.offline


def test_oldest_segments_are_deleted_while_retention_bytes_is_exceeded() -> None:
    _, log = _keeping(retention_bytes=1100)
    size_bytes = [segment.size_bytes for segment in log.segments]
    assert log.apply_retention(T0) == 2
    assert log.size_bytes == sum(size_bytes[2:]) >= 1100
    assert log.apply_retention(T0) == 0


def test_segments_below_the_start_offset_are_always_deleted() -> None:
    for policy in ((), ("delete",), ("compact",)):
        _, log = _keeping(cleanup_policy=policy)
        log.log_start_offset = 12
        assert log.apply_retention(T0) == 2
        assert log.log_start_offset == 12
        assert base_offsets(log) == [10, 15]


def test_only_the_policy_delete_deletes_by_time_and_size() -> None:
    for policy in ((), ("compact",)):
        _, log = _keeping(cleanup_policy=policy, retention_ms=1, retention_bytes=0)
        assert log.apply_retention(T0 + HOUR_MS * 1000) == 0
        assert base_offsets(log) == [0, 5, 10, 15]


def test_expired_active_segment_is_rolled_and_deleted() -> None:
    site, log = _keeping(retention_ms=HOUR_MS)
    assert log.apply_retention(T0 + 100 * HOUR_MS) == 4
    assert base_offsets(log) == [17]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (17, 17, 17)
    site.settle()
    assert log.recovery_point == 17
    assert log.apply_retention(T0 + 200 * HOUR_MS) == 0
    site.append(log)
    site.ports.advance(CONFIG.file_delete_delay_ms)
    site = site.kill()
    assert batch_offsets(site.log()) == [17]


def test_active_segment_with_uncommitted_records_is_not_rolled() -> None:
    site, log = _keeping(retention_ms=HOUR_MS)
    site.append(log)
    assert log.apply_retention(T0 + 100 * HOUR_MS) == 3
    assert base_offsets(log) == [15]


def test_segments_above_the_high_watermark_are_kept() -> None:
    """KAFKA-5634."""
    _, log = _keeping(retention_ms=HOUR_MS)
    log.high_watermark = 9
    assert log.apply_retention(T0 + 100 * HOUR_MS) == 1
    assert log.log_start_offset == 5


def test_segment_without_timestamps_expires_by_file_time() -> None:
    site = LogSite().start()
    log = site.create("t-0", replace(CONFIG, retention_ms=HOUR_MS))
    for _ in range(6):
        site.append(log, timestamp=-1, value=b"v" * 100)
    site.settle()
    written_ms = site.ports.clock.now_ms()
    assert log.apply_retention(written_ms + HOUR_MS) == 0
    assert log.apply_retention(written_ms + HOUR_MS + 1) == 2


def test_epochs_begin_at_the_log_start() -> None:
    site, log = four_segments()
    site.epoch = 3
    site.fill(log, 1)
    log.log_start_offset = 15
    site.settle()
    log.apply_retention(T0)
    assert log.leader_epochs.entries == ((0, 15), (3, 17))


def test_recovery_point_is_never_below_the_first_segment() -> None:
    """Seals of deleted segments do not hold it back."""
    site, log = _keeping(retention_bytes=0)
    site.settle()
    log.roll()
    assert log.recovery_point == 15
    log.apply_retention(T0)
    assert (base_offsets(log), log.recovery_point) == ([17], 17)
    site.settle()
    assert log.recovery_point == 17


def test_deleted_segment_is_not_synced() -> None:
    site, log = _keeping()
    log.config = replace(CONFIG, flush_messages=1 << 60)
    site.fill(log, 6)
    site.settle()
    log.log_start_offset = 20
    log.apply_retention(T0)
    site.ports.advance(CONFIG.file_delete_delay_ms)
    log.request_sync()
    site.settle()
    assert site.offline == []
    assert log.durable_end_offset == 23


def test_retention_deletes_older_segments_when_a_roll_fails_on_a_full_disk() -> None:
    """Space is needed most on a full disk."""
    site, log = _keeping(retention_ms=HOUR_MS)
    site.files.fail_when(lambda operation: operation.name in ("create", "append"), errno.ENOSPC)
    assert log.apply_retention(T0 + 100 * HOUR_MS) == 3
    assert base_offsets(log) == [15]
    assert any("cannot roll a segment for retention: t-0" in report for report in site.reports)
    assert site.offline == []


def test_retention_deletes_nothing_when_the_disk_fails_at_the_roll() -> None:
    site, log = _keeping(retention_ms=HOUR_MS)
    site.files.fail_when(lambda operation: operation.name == "create", errno.EIO)
    assert log.apply_retention(T0 + 100 * HOUR_MS) == 0
    assert site.offline == ["/a"]
    assert site.listing(log) == [0, 5, 10, 15]


def test_closed_or_failed_log_deletes_nothing() -> None:
    _, log = _keeping(retention_ms=HOUR_MS)
    log.go_offline()
    assert log.apply_retention(T0 + 100 * HOUR_MS) == 0
    _, log = _keeping(retention_ms=HOUR_MS)
    log.close()
    assert log.apply_retention(T0 + 100 * HOUR_MS) == 0
    assert base_offsets(log) == [0, 5, 10, 15]
