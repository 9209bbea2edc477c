"""Deletion of segments and logs: renamed first, unlinked later, without gaps in a log."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence

import pytest

from plog.types import TopicPartition
from plogd.log import file_names
from plogd.log.deletion import lane_of, remove_tree
from plogd.log.disk.checkpoint_files import read_offsets
from plogd.log.housekeeping import RETRY_MS
from plogd.log.log import Log
from plogd.log.segment.log_segment import LogSegment
from tests.helpers.log.log_site import (
    CONFIG,
    LogSite,
    base_offsets,
    four_segments,
    partition_of,
    spied,
    values,
)
from tests.helpers.sim.sim_files import Operation, SimCrash, SimFiles

DELAY_MS = CONFIG.file_delete_delay_ms
KEY = TopicPartition("t", 0)


def _delete_below(site: LogSite, log: Log, offset: int) -> int:
    """Delete as DeleteRecords and retention do; return the number of deleted segments."""
    log.log_start_offset = offset
    return log.apply_retention(site.ports.clock.now_ms())


def _deleted(site: LogSite, log: Log) -> list[str]:
    return [name for name in site.files.listdir(log.directory) if name.endswith(".deleted")]


# -- segments ---------------------------------------------------------------------------------


def test_segments_are_renamed_immediately_and_unlinked_later() -> None:
    site, log = four_segments()
    assert _delete_below(site, log, 12) == 2
    assert base_offsets(log) == [10, 15]
    site.settle()
    expected = [
        file_names.segment_file_name(base, suffix, ".deleted")
        for base in (0, 5)
        for suffix in (".index", ".log", ".timeindex")
    ]
    assert _deleted(site, log) == expected
    site.ports.advance(DELAY_MS - 1)
    assert _deleted(site, log) == expected
    site.ports.advance(1)
    assert _deleted(site, log) == []
    assert site.listing(log) == [10, 15]


def test_snapshots_below_the_log_start_are_deleted_with_the_segments() -> None:
    site, log = four_segments()
    assert site.listing(log, ".snapshot") == [5, 10, 15]
    _delete_below(site, log, 10)
    site.ports.advance(DELAY_MS)
    assert site.listing(log, ".snapshot") == [10, 15]


def test_reader_of_a_deleted_segment_may_finish() -> None:
    site, log = four_segments()
    data = log.read(0, 1 << 20, end_offset=log.high_watermark)
    assert data.region is not None
    before = data.region.read()
    _delete_below(site, log, 10)
    site.ports.advance(DELAY_MS)
    assert data.region.read() == before
    data.region.close()
    with pytest.raises(AssertionError, match="closed"):
        data.region.read()


def test_log_start_is_on_disk_before_the_first_rename() -> None:
    site, log = four_segments()
    starts: list[int] = []

    def observe(operation: Operation) -> None:
        if operation.path.endswith(".log"):
            path = f"/a/{file_names.LOG_START_OFFSET_CHECKPOINT}"
            starts.append(read_offsets(site.files, path)[KEY])

    site.files.on_operation = observe
    _delete_below(site, log, 10)
    site.settle()
    assert starts == [10, 10]


def test_deletions_of_one_turn_share_one_write_of_log_starts() -> None:
    site, log = four_segments()
    other = site.create("u-0")
    site.fill(other, 7)
    site.settle()
    writes = spied(site.files, "append")
    for one in (log, other):
        assert _delete_below(site, one, 5) == 1
    site.settle()
    assert writes() == [f"/a/{file_names.LOG_START_OFFSET_CHECKPOINT}.tmp"]
    assert len(_deleted(site, log)) == len(_deleted(site, other)) == 3


@pytest.mark.parametrize("full", [False, True])
def test_crash_during_a_deletion_leaves_no_gap(full: bool) -> None:
    """With or without space for the checkpoint, the rest is contiguous, up to the end."""
    total, log = four_segments()
    before = total.files.operations
    _delete_below(total, log, 15)
    total.ports.advance(DELAY_MS)
    for number in range(before + 1, total.files.operations + 2):
        site, log = four_segments()
        kept = values(log)
        if full:
            site.files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)
        site.files.crash_at(number)
        try:
            _delete_below(site, log, 15)
            site.ports.advance(DELAY_MS)
        except SimCrash:
            pass
        for seed in range(3):
            after = site._successor(site.files.crash(random.Random(seed))).start()
            log = after.log()
            found = values(log)
            assert log.log_end_offset == 17
            assert log.log_start_offset in (0, 5, 10, 15)
            assert found == {offset: kept[offset] for offset in range(log.log_start_offset, 17)}
            after.stop()


def test_segments_are_renamed_one_by_one_on_a_full_disk() -> None:
    """Retention must free space even if a checkpoint does not fit."""
    site, log = four_segments()
    site.files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)
    operations: list[str] = []

    def observe(operation: Operation) -> None:
        if operation.name == "sync_dir" or operation.path.endswith(".log"):
            operations.append(operation.name)

    site.files.on_operation = observe
    _delete_below(site, log, 10)
    site.settle()
    assert operations == ["rename", "sync_dir", "rename", "sync_dir"]
    site.ports.advance(DELAY_MS)
    assert site.listing(log) == [10, 15]
    assert site.offline == []


def test_failed_checkpoint_stops_the_deletion() -> None:
    site, log = four_segments()
    site.files.fail_when(lambda operation: operation.path.startswith("/a/log-start"), errno.EIO)
    _delete_below(site, log, 10)
    site.ports.advance(DELAY_MS)
    assert site.offline == ["/a"]
    assert site.listing(log) == [0, 5, 10, 15]


@pytest.mark.parametrize("what", ["rename", "unlink"])
def test_disk_that_cannot_delete_goes_offline(what: str) -> None:
    site, log = four_segments()
    site.files.fail_when(
        lambda operation: operation.name == what and "t-0/" in operation.path, errno.EIO
    )
    _delete_below(site, log, 10)
    site.ports.advance(DELAY_MS)
    assert site.offline == ["/a"]


@pytest.mark.parametrize("partly", [False, True])
def test_refused_rename_is_retried(partly: bool) -> None:
    """Otherwise the files would stay open, and their space allocated, until the next start."""
    site, log = four_segments()
    retired = list(log.segments)[:2]
    refused = ".index" if partly else "t-0/"
    site.files.fail_when(
        lambda operation: operation.name == "rename" and refused in operation.path, errno.EDQUOT
    )
    _delete_below(site, log, 10)
    site.ports.advance(DELAY_MS)
    assert site.offline == []
    assert "deletion of t-0 failed" in site.reports[-1]
    site.files.fail_no_more()
    site.ports.advance(RETRY_MS + DELAY_MS)
    assert [name for name in site.files.listdir(log.directory) if name < f"{10:020}"] == []
    assert _all_closed(retired)
    assert values(log) == {offset: values(log)[offset] for offset in range(10, 17)}


@pytest.mark.parametrize("what", ["rename", "unlink"])
def test_segments_that_cannot_be_deleted_are_closed(what: str) -> None:
    """The next start deletes the files that a failed disk did not."""
    site, log = four_segments()
    retired = list(log.segments)[:3]
    site.files.fail_when(
        lambda operation: operation.name == what and "t-0/" in operation.path, errno.EIO
    )
    _delete_below(site, log, 15)
    site.ports.advance(DELAY_MS)
    assert site.offline == ["/a"]
    assert _all_closed(retired)
    site.files.fail_no_more()
    assert base_offsets(site.kill().log()) == [15]


def test_segments_of_a_directory_that_fails_meanwhile_are_closed_and_left() -> None:
    site, log = four_segments()
    retired = list(log.segments)[:2]
    _delete_below(site, log, 10)
    site.settle()
    site.manager.storage_failed("/a", OSError(errno.EIO, "broken"))
    before = site.files.operations
    site.ports.advance(DELAY_MS)
    assert site.files.operations == before
    assert _all_closed(retired)


def _all_closed(segments: Sequence[LogSegment]) -> bool:
    for segment in segments:
        with pytest.raises(OSError, match="closed"):
            segment.records_file.size()
    return True


# -- whole logs -------------------------------------------------------------------------------


def test_directory_of_a_deleted_log_is_renamed_when_the_deletion_completes() -> None:
    for seed in range(10):
        site, log = four_segments()
        site.delete("t-0")
        assert site.manager.get(KEY) is None
        assert log.closed
        [doomed] = [name for name in site.files.listdir("/a") if name.startswith("t-0")]
        assert doomed.endswith("-delete")
        after = site.files.crash(random.Random(seed))
        assert [name for name in after.listdir("/a") if name.startswith("t-0")] == [doomed]


def test_files_of_a_deleted_log_are_unlinked_later() -> None:
    site, _ = four_segments()
    site.delete("t-0")
    site.ports.advance(DELAY_MS - 1)
    assert any(name.startswith("t-0") for name in site.files.listdir("/a"))
    site.ports.advance(1)
    assert not any(name.startswith("t-0") for name in site.files.listdir("/a"))


def test_logs_of_a_topic_are_deleted_together() -> None:
    site = LogSite().start()
    names_of_logs = [f"big-{number}" for number in range(120)]
    for name in names_of_logs:
        site.create(name)
    syncs = spied(site.files, "sync_dir")
    site.settle(site.manager.delete(*map(partition_of, names_of_logs)))
    assert syncs() == ["/a"]
    assert sum(name.endswith("-delete") for name in site.files.listdir("/a")) == 120
    site.ports.advance(DELAY_MS)
    assert not any(name.startswith("big") for name in site.files.listdir("/a"))


def test_stray_logs_are_renamed_together_and_kept() -> None:
    site, _ = four_segments()
    site.create("u-0")
    site.create("u-1")
    syncs = spied(site.files, "sync_dir")
    site.settle(site.manager.remove_strays(KEY, TopicPartition("u", 1)))
    assert syncs() == ["/a"]
    assert list(site.manager.logs) == [TopicPartition("u", 0)]
    site.ports.advance(3 * DELAY_MS)
    strays = sorted(name for name in site.files.listdir("/a") if name.endswith("-stray"))
    assert [name[:4] for name in strays] == ["t-0.", "u-1."]
    assert "00000000000000000015.log" in site.files.listdir(f"/a/{strays[0]}")
    # The names are free again.
    site.fill(site.create("t-0"), 2)
    site.settle()
    assert list(values(site.log())) == [0, 1]


def test_next_start_removes_files_marked_for_deletion() -> None:
    site, _ = four_segments()
    site.delete("t-0")
    site = site.kill()
    assert not any(name.startswith("t-0") for name in site.files.listdir("/a"))


@pytest.mark.parametrize("at", ["rename", "unlink"])
def test_log_may_be_deleted_while_its_segments_wait(at: str) -> None:
    """Neither the directory, nor open files, nor a recreated log of the same name."""
    site, log = four_segments()
    retired = list(log.segments)[:2]
    _delete_below(site, log, 10)
    if at == "unlink":
        site.settle()
    site.delete("t-0")
    again = site.create("t-0")
    site.fill(again, 7)
    site.ports.advance(3 * DELAY_MS)
    assert site.offline == []
    assert list(values(site.log())) == list(range(7))
    for segment in retired:
        with pytest.raises(OSError, match="closed"):
            segment.records_file.size()


def test_log_may_be_deleted_during_its_first_round() -> None:
    """The round was to sync a directory that has been renamed."""
    site, log = four_segments()
    log.roll()
    site.append(log)
    site.ports.timers.run_due()
    del site.topics[KEY]
    deletion = site.manager.delete(KEY)
    while site.ports.jobs.waiting != ["sync:1"]:
        site.ports.jobs.run_one("dir:/a")
        site.ports.timers.run_due()
    site.settle(deletion)
    assert site.offline == []


def test_failed_rename_takes_the_directory_offline_and_completes_the_deletion() -> None:
    """The topic is no longer in the metadata; no request may wait forever."""
    site, _ = four_segments()
    site.files.fail_when(lambda operation: operation.name == "rename", errno.EIO)
    site.delete("t-0")
    assert site.offline == ["/a"]
    assert site.manager.get(KEY) is None


def test_failed_removal_takes_the_directory_offline() -> None:
    site, _ = four_segments()
    site.delete("t-0")
    site.files.fail_when(lambda operation: operation.name == "unlink", errno.EIO)
    site.ports.advance(DELAY_MS)
    assert site.offline == ["/a"]


def test_log_of_a_failed_directory_is_left_alone() -> None:
    site, log = four_segments()
    site.manager.storage_failed("/a", OSError(errno.EIO, "broken"))
    before = site.files.operations
    assert log.apply_retention(site.ports.clock.now_ms()) == 0
    site.delete("t-0")
    site.ports.advance(DELAY_MS)
    assert site.files.operations == before


def test_directory_that_fails_before_segments_are_renamed_is_left_alone() -> None:
    site, log = four_segments()
    _delete_below(site, log, 10)
    site.manager.storage_failed("/a", OSError(errno.EIO, "broken"))
    site.ports.advance(DELAY_MS)
    assert site.listing(log) == [0, 5, 10, 15]


def test_deletion_of_one_log_is_retried_after_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    site, log = four_segments()
    other = site.create("u-0")
    site.fill(other, 7)
    site.settle()
    rename = LogSegment.rename

    def die(segment: LogSegment, state: str) -> None:
        if "t-0" in segment.records_file.path:
            raise ValueError("a bug")
        rename(segment, state)

    monkeypatch.setattr(LogSegment, "rename", die)
    for one in (log, other):
        _delete_below(site, one, 5)
    site.ports.advance(DELAY_MS)
    assert (site.listing(log), site.listing(other)) == ([0, 5, 10, 15], [5])
    assert site.offline == []
    assert site.reports[-1] == "deletion of t-0 failed: ValueError('a bug'); it will be retried"
    assert site.manager.housekeeping.errors_by_task == {"deletion": 1}
    monkeypatch.undo()
    site.ports.advance(RETRY_MS + DELAY_MS)
    assert site.listing(log) == [5, 10, 15]


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "none left"), ValueError("a bug")])
def test_segment_that_cannot_be_unlinked_does_not_block_others(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, log = four_segments()
    unlink = SimFiles.unlink

    def refuse(files: SimFiles, path: str) -> None:
        if f"{5:020}.index" in path:
            raise error
        unlink(files, path)

    monkeypatch.setattr(SimFiles, "unlink", refuse)
    _delete_below(site, log, 15)
    site.ports.advance(DELAY_MS)
    assert {name[:20] for name in _deleted(site, log)} == {f"{5:020}"}
    assert site.offline == []
    monkeypatch.undo()
    site.ports.advance(RETRY_MS)
    assert _deleted(site, log) == []
    assert site.listing(log, ".snapshot") == [15]


def test_directory_that_cannot_be_renamed_does_not_block_others() -> None:
    """The operator has removed one of them."""
    site = LogSite().start()
    logs = [site.create(f"t-{number}") for number in range(3)]
    remove_tree(site.files, logs[0].directory)
    for number in range(3):
        del site.topics[partition_of(f"t-{number}")]
    site.settle(site.manager.delete(*(log.topic_partition for log in logs)))
    assert site.offline == []
    assert "deletion of /a/t-0 failed" in site.reports[-1]
    assert sum(name.endswith("-delete") for name in site.files.listdir("/a")) == 2
    site.ports.advance(DELAY_MS)
    assert not any(name.startswith("t-") for name in site.files.listdir("/a"))


def test_refused_removal_is_retried() -> None:
    site, _ = four_segments()
    site.delete("t-0")
    site.files.fail_when(lambda operation: operation.name == "listdir", errno.EMFILE)
    site.ports.advance(DELAY_MS)
    assert site.offline == []
    assert "-delete failed" in site.reports[-1]
    site.files.fail_no_more()
    site.ports.advance(RETRY_MS)
    assert not any(name.startswith("t-0") for name in site.files.listdir("/a"))


def test_directory_removed_by_hand_is_not_a_failure() -> None:
    site, _ = four_segments()
    site.delete("t-0")
    [doomed] = [name for name in site.files.listdir("/a") if name.endswith("-delete")]
    remove_tree(site.files, f"/a/{doomed}")
    before = site.reports[:]
    site.ports.advance(DELAY_MS + RETRY_MS)
    assert (site.offline, site.reports) == ([], before)


def test_tree_is_removed_with_all_it_holds() -> None:
    files = SimFiles(["/a/t-0.1-delete"])
    files.open_append("/a/t-0.1-delete/one").close()
    files.open_append("/a/t-0.1-delete/two").close()
    remove_tree(files, "/a/t-0.1-delete")
    assert files.listdir("/a") == []


def test_log_directory_has_one_lane_for_all_such_jobs() -> None:
    assert lane_of("/a") == "dir:/a"
