"""Sealing: a rolled segment is durable before recovery may skip it (R11, R12)."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from plogd.log import file_names
from plogd.log.disk.checkpoint_files import read_leader_epochs
from plogd.log.disk.slow_disk import UNSEALED_MAX
from plogd.log.housekeeping import RETRY_MS
from plogd.log.log import Log
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Later
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets
from tests.helpers.sim.sim_file import open_file
from tests.helpers.sim.sim_files import Operation, SimCrash


def _rolled(site: LogSite | None = None) -> tuple[LogSite, Log]:
    """A log whose second segment has just begun, with the round done and the seal pending."""
    site = site or LogSite().start()
    log = site.create("t-0")
    site.fill(log, 4)
    site.append(log, producer_id=7, producer_epoch=0, base_sequence=0)
    site.settle()
    log.roll()
    return site, log


def test_roll_seals_records_indexes_snapshot_and_epochs_in_a_job() -> None:
    site, log = _rolled()
    synced: list[str] = []

    def observe(operation: Operation) -> None:
        if operation.name == "sync":
            synced.append(operation.path)

    site.files.on_operation = observe
    assert (base_offsets(log), log.recovery_point) == ([0, 5], 0)
    assert site.ports.jobs.waiting == ["dir:/a"]
    site.settle()
    assert synced == [
        *(site.path(log, 0, suffix) for suffix in (".log", ".index", ".timeindex")),
        f"/a/t-0/{file_names.LEADER_EPOCH_CHECKPOINT}.tmp",
        site.path(log, 5, ".snapshot") + ".tmp",
    ]
    assert log.recovery_point == 5
    assert [entry.epoch for entry in read_leader_epochs(site.files, log.directory)] == [0]


def test_recovery_point_waits_for_the_oldest_seal() -> None:
    site, log = _rolled()
    site.append(log)
    log.roll()
    assert log.recovery_point == 0
    site.ports.jobs.run_one("dir:/a")
    assert log.recovery_point == 5
    site.ports.jobs.run_one("dir:/a")
    assert log.recovery_point == 6


def test_snapshot_has_the_state_at_the_roll() -> None:
    site, log = _rolled()
    site.append(log, producer_id=8, producer_epoch=0, base_sequence=0)
    site.settle()
    log.producer_state.load(0, 5)
    assert list(log.producer_state.producers) == [7]


def test_epoch_assigned_while_a_seal_writes_is_written_by_the_next() -> None:
    site, log = _rolled()
    site.epoch = 1
    site.append(log)
    site.settle()
    assert [entry.epoch for entry in read_leader_epochs(site.files, log.directory)] == [0]
    assert log.leader_epochs.is_dirty
    log.roll()
    site.settle()
    assert [entry.epoch for entry in read_leader_epochs(site.files, log.directory)] == [0, 1]


@pytest.mark.parametrize("what", [".index", ".timeindex", ".snapshot.tmp", "checkpoint.tmp"])
def test_failed_seal_takes_the_directory_offline(what: str) -> None:
    site, log = _rolled()
    site.files.fail_when(
        lambda operation: operation.name == "sync" and operation.path.endswith(what), errno.EIO
    )
    site.settle()
    assert site.offline == ["/a"]
    assert log.recovery_point == 0


@pytest.mark.parametrize("what", [".snapshot.tmp", "checkpoint.tmp"])
def test_seal_is_retried_when_the_disk_is_full(what: str) -> None:
    site, log = _rolled()
    site.files.fail_when(lambda operation: operation.path.endswith(what), errno.ENOSPC)
    site.settle()
    assert site.offline == []
    assert "seal of t-0 failed: [Errno 28]" in site.reports[-1]
    site.append(log)
    log.roll()
    site.settle()
    assert log.recovery_point == 0
    site.files.fail_no_more()
    site.ports.advance(RETRY_MS)
    assert log.recovery_point == 6
    assert [entry.epoch for entry in read_leader_epochs(site.files, log.directory)] == [0]


def test_sync_that_fails_on_a_full_disk_takes_the_directory_offline() -> None:
    """The kernel found no space for bytes it had accepted: they are lost (R15)."""
    site, log = _rolled()
    site.files.fail_when(
        lambda operation: operation.name == "sync" and operation.path.endswith(".index"),
        errno.ENOSPC,
    )
    site.settle()
    assert site.offline == ["/a"]
    assert log.recovery_point == 0


def test_seal_of_a_deleted_log_is_skipped() -> None:
    """Its directory has another name when the job writes the snapshot."""
    site, log = _rolled()
    log.close()
    site.files.rename(log.directory, f"{log.directory}.0-delete")
    site.settle()
    assert site.offline == []


@pytest.mark.parametrize("end", ["closed", "offline"])
def test_postponed_seal_is_dropped_when_the_log_is_deleted(end: str) -> None:
    site, log = _rolled()
    site.files.fail_when(lambda operation: operation.path.endswith(".tmp"), errno.ENOSPC)
    site.settle()
    site.files.fail_no_more()
    if end == "closed":
        log.close()
    else:
        site.manager.storage_failed("/a", OSError(errno.EIO, "broken"))
    before = site.reports[:]
    site.ports.advance(RETRY_MS)
    assert site.reports == before
    assert site.listing(log, ".snapshot") == []


def test_producer_snapshot_of_a_deleted_segment_is_written() -> None:
    site, log = _rolled()
    site.files.fail_when(lambda operation: operation.path.endswith(".tmp"), errno.ENOSPC)
    site.settle()
    log.log_start_offset = 5
    log.apply_retention(site.ports.clock.now_ms())
    for _ in range(2):
        assert site.listing(log, ".snapshot") == []
        site.ports.advance(RETRY_MS)
    site.files.fail_no_more()
    site.ports.advance(RETRY_MS)
    assert len(site.listing(log, ".snapshot")) == 1 and site.offline == []


@pytest.mark.parametrize("where", ["sync", "epochs", "snapshot"])
def test_seal_is_retried_after_a_bug(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site = LogSite().start()
    other = site.create("u-0")
    site, log = _rolled(site)
    site.fill(other, 6)

    def die(*arguments: object) -> None:
        raise ValueError("a bug")

    with monkeypatch.context() as patch:
        if where == "sync":
            patch.setattr(open_file(log.segments.first.records_file), "sync", die)
        elif where == "epochs":
            patch.setattr("plogd.log.leader_epochs.write_leader_epochs", die)
        else:
            patch.setattr("plogd.log.producer_snapshot.write_atomic", die)
        site.ports.jobs.run_one("dir:/a")
    site.settle()
    assert site.offline == []
    assert "seal of t-0 failed: ValueError('a bug'); it will be retried" in site.reports
    assert site.manager.housekeeping.errors_by_task == {"seal": 1}
    assert (log.recovery_point, other.recovery_point) == (0, 5)
    site.ports.advance(RETRY_MS)
    assert log.recovery_point == 5
    assert site.listing(log, ".snapshot") == [5]
    assert [entry.epoch for entry in read_leader_epochs(site.files, log.directory)] == [0]


@pytest.mark.parametrize("deleted_segment", [False, True])
def test_recreated_topic_does_not_get_the_old_snapshot(deleted_segment: bool) -> None:
    """The seal is postponed; before its retry, the topic is deleted and created again."""
    site, log = _rolled()
    site.files.fail_when(lambda operation: operation.path.endswith(".snapshot.tmp"), errno.ENOSPC)
    site.settle()
    if deleted_segment:
        log.log_start_offset = 5
        log.apply_retention(site.ports.clock.now_ms())
        site.ports.advance(RETRY_MS)
    site.files.fail_no_more()
    site.delete("t-0")
    again = site.create("t-0")
    site.append(again)
    site.ports.advance(3 * RETRY_MS)
    assert site.listing(again, ".snapshot") == []
    assert not again.producer_state.producers


def _put_off() -> tuple[LogSite, Log]:
    """A seal that a full disk has refused; meanwhile the pool has closed the indexes."""
    site, log = _rolled()
    site.files.fail_when(lambda operation: operation.path.endswith(".snapshot.tmp"), errno.ENOSPC)
    site.settle()
    site.files.fail_no_more()
    site.files.descriptors.set_limit(16, 1 << 31)
    for number in range(3):  # Their files replace the idle ones.
        site.create(f"u-{number}")
    assert [file.is_open for file in log.segments.first.sync_files()[1:]] == [False, False]
    return site, log


def test_seal_is_retried_when_descriptors_run_out() -> None:
    site, log = _put_off()
    records, index, _ = log.segments.first.sync_files()
    opened = open_file(records)
    holders = opened._holders
    site.files.fail_when(lambda operation: operation.path.endswith(".timeindex"), errno.EMFILE)
    synced: list[str] = []

    def note(operation: Operation) -> None:
        if operation.name == "sync" and "/t-0/" in operation.path:
            synced.append(operation.path)

    site.files.on_operation = note
    site.ports.advance(RETRY_MS)
    assert synced == [], "only a seal that has not begun may be retried"
    assert (site.offline, log.recovery_point) == ([], 0)
    assert "seal of t-0 failed: [Errno 24]" in site.reports[-1]
    assert (opened._holders, open_file(index)._holders) == (holders, 1), "1: the pool"
    opened_index = open_file(index)
    site.files.fail_no_more()
    site.ports.advance(RETRY_MS)
    assert (site.offline, log.recovery_point) == ([], 5)
    for number in range(3):  # The pool closes idle files, and nothing else retains them.
        site.create(f"v-{number}")
    assert not opened.is_open
    assert not opened_index.is_open


def test_seal_that_cannot_read_the_directory_of_its_indexes_takes_it_offline() -> None:
    site, log = _put_off()
    site.files.fail_when(lambda operation: operation.path.endswith(".timeindex"), errno.EIO)
    site.ports.advance(RETRY_MS)
    assert (site.offline, log.recovery_point) == (["/a"], 0)


def test_epochs_that_a_refused_seal_has_not_written_are_written_by_the_next() -> None:
    site, log = _put_off()
    site.files.fail_when(lambda operation: operation.path.endswith(".timeindex"), errno.EMFILE)
    log.leader_epochs.is_dirty = True
    site.ports.advance(RETRY_MS)
    assert log.leader_epochs.is_dirty
    site.files.fail_no_more()
    site.ports.advance(RETRY_MS)
    assert not log.leader_epochs.is_dirty


def test_files_are_closed_when_the_seal_job_is_rejected() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    site.fill(log, 4)
    site.settle()
    segment = log.segments.active
    seal: Later[OSError | None] = Later()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site.ports.jobs, "submit", lambda lane, function: seal)
        log.roll()
    files = [open_file(file) for file in segment.sync_files()]
    held = [file._holders for file in files]
    seal.fail(RuntimeError("jobs are rejected"))
    assert [file._holders for file in files] == [count - 1 for count in held]


def test_files_are_retained_until_the_seal_is_done() -> None:
    site, log = _rolled()
    files = [open_file(file) for file in log.segments.first.sync_files()]
    log.close()
    assert all(file.size() >= 0 for file in files)
    site.settle()
    assert not any(file.is_open for file in files)


def test_sealed_segment_is_left_out_of_the_next_sync_round() -> None:
    """It is durable, and may have been closed: a round on the reactor must not open it."""
    site = LogSite().start()
    site.files.sync_fs_supported = False
    log = site.create("t-0", TopicConfig(segment_bytes=1000, flush_messages=1000))
    site.fill(log, 7)
    site.settle()
    assert len(log.segments) == 2
    synced: list[str] = []

    def note(operation: Operation) -> None:
        if operation.name == "sync":
            synced.append(operation.path)

    site.files.on_operation = note
    log.request_sync()
    site.settle()
    assert synced == [log.segments.active.records_file.path]
    assert log.durable_end_offset == 7


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_snapshot_of_a_later_segment_is_not_written_before_an_earlier_seal_is_done(
    code: int,
) -> None:
    site, log = _rolled()
    site.append(log)
    log.roll()
    # The disk fails once: a sync, or the write of a snapshot for lack of space.
    failing = ".log" if code == errno.EIO else f"{5:020}.snapshot.tmp"
    attempts: list[Operation] = []

    def fails(operation: Operation) -> bool:
        is_it = operation.path.endswith(failing) and operation.name in ("sync", "append")
        attempts.extend([operation] * is_it)
        return is_it and len(attempts) == 1

    site.files.fail_when(fails, code)
    site.settle()
    assert attempts
    assert not site.files.exists(site.path(log, 6, ".snapshot"))
    assert log.recovery_point == 0
    assert log.offline == (code == errno.EIO)


def test_clean_stop_waits_for_sequential_seals() -> None:
    site, log = _rolled()
    site.append(log)
    log.roll()
    site.append(log)
    log.roll()
    # The second seal fails: the data that it should have synced may be lost.
    site.files.fail_when(
        lambda operation: operation.path.endswith(f"{6:020}.snapshot.tmp"), errno.EIO
    )
    stopped = site.manager.shutdown()
    site.settle()
    assert stopped.done
    assert site.offline == ["/a"]
    assert not site.files.exists("/a/.kafka_cleanshutdown")


class TestDeletionOfUnsealedSegments:
    """Retention deletes rolled segments whose seals are pending."""

    def three(self) -> tuple[LogSite, Log, list[LogSegment]]:
        """A log without records, and the segments with a producer's records that it had."""
        site = LogSite().start()
        log = site.create("t-0")
        for sequence in range(3):
            site.append(log, producer_id=7, producer_epoch=0, base_sequence=sequence)
            log.roll()
        while log.high_watermark < 3:
            site.ports.timers.run_due()
            site.ports.jobs.run_one("sync:1")
        removed = list(log.segments)[:-1]
        log.delete_records_before(3)
        assert (base_offsets(log), site.listing(log, ".snapshot")) == ([3], [])
        return site, log, removed

    def check_are_closed(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            with pytest.raises(OSError, match="closed"):
                segment.records_file.size()

    def test_files_are_renamed_after_their_producers_are_on_disk(self) -> None:
        site, log, _ = self.three()
        renamed: list[str] = []

        def note(operation: Operation) -> None:
            if operation.name == "rename" and operation.path.startswith(log.directory):
                renamed.append(operation.path)

        site.files.on_operation = note
        site.settle()
        snapshot = site.path(log, 3, ".snapshot") + ".tmp"
        assert renamed.index(snapshot) < renamed.index(site.path(log, 0))
        assert site.listing(log) == [3]

    def test_crash_loses_no_producer(self) -> None:
        total, _, _ = self.three()
        before = total.files.operations
        total.ports.advance(2 * CONFIG.file_delete_delay_ms)
        for number in range(before + 1, total.files.operations + 2):
            site, _, _ = self.three()
            site.files.crash_at(number)
            with suppress(SimCrash):
                site.ports.advance(2 * CONFIG.file_delete_delay_ms)
            for after in (site.kill(), *(site.crash(seed) for seed in range(3))):
                assert after.log().producer_state.producers[7].last_sequence == 2
                after.stop()

    def test_full_disk_does_not_delay_it(self) -> None:
        site, log, removed = self.three()
        site.files.fail_when(lambda operation: operation.path.endswith(".tmp"), errno.ENOSPC)
        site.settle()
        site.ports.advance(CONFIG.file_delete_delay_ms)
        assert site.listing(log) == [3]
        self.check_are_closed(removed)
        site.files.fail_no_more()
        site.ports.advance(3 * RETRY_MS)
        assert site.listing(log, ".snapshot")[-1] == 3

    @pytest.mark.parametrize("end", ["deleted", "offline"])
    def test_files_are_closed_when_the_log_ends_before(self, end: str) -> None:
        site, _, removed = self.three()
        if end == "deleted":
            site.delete("t-0")
        else:
            site.manager.storage_failed("/a", OSError(errno.EIO, "broken"))
        site.ports.advance(CONFIG.file_delete_delay_ms)
        self.check_are_closed(removed)

    def test_clean_stop_may_come_before(self) -> None:
        site, _, _ = self.three()
        after = site.restart()
        assert after.listing(after.log()) == [3]
        assert after.log().producer_state.producers[7].last_sequence == 2


# -- back-pressure ----------------------------------------------------------------------------


def test_appends_wait_behind_the_seals_while_many_segments_are_not_sealed() -> None:
    site = LogSite().start()
    logs = [site.create(f"t-{number}") for number in range(UNSEALED_MAX + 1)]
    for log in logs:
        site.append(log)
    site.settle()
    for log in logs:
        assert site.append(log).writing is None
        log.roll()
    assert site.append(logs[0]).writing is not None
    site.ports.jobs.run_one("dir:/a")
    assert (logs[0].log_end_offset, logs[0].recovery_point) == (2, 2), "only the seal has run"
    assert site.append(logs[1]).writing is None, "fewer segments wait"
    site.settle()
    assert [log.log_end_offset for log in logs[:3]] == [3, 3, 2]


@pytest.mark.parametrize("how", ["retention", "deletion", "truncation"])
def test_abandoned_seals_do_not_keep_appends_waiting(how: str) -> None:
    site = LogSite().start()
    log, other = site.create("t-0"), site.create("u-0")
    for _ in range(UNSEALED_MAX + 1):
        site.append(log)
        log.roll()
    assert site.manager.dirs.writes_of("/a").is_slow
    match how:
        case "retention":
            log.log_start_offset = log.log_end_offset
            site.manager.apply_retention(site.ports.clock.now_ms())
        case "deletion":
            site.manager.delete(log.topic_partition)
        case "truncation":
            log.truncate_to(1)
    site.settle()
    assert not site.manager.dirs.writes_of("/a").is_slow
    assert site.append(other).writing is None
