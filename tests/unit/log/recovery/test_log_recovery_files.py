"""Loading a log with missing or wrong indexes, epochs or snapshots, or with stray files."""

from __future__ import annotations

import errno

import pytest

from plog.records.batch import iter_batches, set_base_offset_and_epoch
from plogd.log import file_names
from plogd.log.disk.checkpoint_files import EpochEntry, write_leader_epochs
from plogd.log.log import Log
from tests.helpers.log.log_data import append, client_batch
from tests.helpers.log.log_site import (
    SUFFIXES,
    LogSite,
    base_offsets,
    batch_offsets,
    four_segments,
)

# -- missing or damaged files other than the records ------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [None, b"", b"\x77" * 13, b"\x77" * 24, bytes(96)])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_missing_or_damaged_index_is_rebuilt(
    suffix: str, damage: bytes | None, clean: bool
) -> None:
    site, log = four_segments()
    site.write_checkpoints()
    log.segments.active.on_become_inactive()
    content = site.contents(log)
    if clean:
        site.stop()
    for base in (0, 15):  # A sealed one, and the active one.
        path = site.path(log, base, suffix)
        if damage is None:
            site.files.unlink(path)
        else:
            site.files.overwrite(path, damage)
    site = site.kill()
    if (suffix, damage) != (".index", b""):  # An index without entries is valid, but slow.
        assert site.contents(site.log()) == content
    assert batch_offsets(site.log()) == list(range(17))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("batches", [0, 1, 17])
def test_log_is_loaded_while_no_file_can_be_created(batches: int, code: int) -> None:
    """New segments have no index files, and a broker that was killed must start without them."""
    site = LogSite().start()
    site.create("t-0")
    site.fill(site.log(), batches)
    site.settle()
    site.write_checkpoints()
    following = site.next_life()
    following.files.fail_when(
        lambda operation: operation.name == "create" and operation.path.endswith("index"), code
    )
    following.start()
    log = following.log()
    assert batch_offsets(log) == list(range(batches))
    following.fill(log, 3)
    following.settle()
    assert batch_offsets(log) == list(range(batches + 3))
    assert following.offline == []


@pytest.mark.parametrize("content", [b"\0\0\0", None])
def test_damaged_or_missing_epoch_file_is_rebuilt_from_the_batches(content: bytes | None) -> None:
    site = LogSite().start()
    site.create("t-0")
    for _ in range(3):
        site.fill(site.log(), 4)
        site.settle()
        site = site.kill()
    entries = site.log().leader_epochs.entries
    assert entries == ((0, 0), (1, 4), (2, 8))
    site.stop()
    path = f"/a/t-0/{file_names.LEADER_EPOCH_CHECKPOINT}"
    if content is None:
        site.files.unlink(path)
    else:
        site.files.overwrite(path, content)
    site = site.kill()
    assert site.log().leader_epochs.entries == entries
    assert "rebuilding the leader epochs" in site.reports[0]


def test_log_without_epochs_is_not_read_again_at_each_start() -> None:
    site, log = four_segments()
    for segment in log.segments:
        path = site.path(log, segment.base_offset)
        content = bytearray(site.files.read_file(path))
        for position, header in list(iter_batches(content)):
            set_base_offset_and_epoch(content, position, header.base_offset, -1)
        site.files.overwrite(path, bytes(content))
    site.stop()
    path = f"/a/t-0/{file_names.LEADER_EPOCH_CHECKPOINT}"
    site.files.unlink(path)
    site = site.kill()  # The next life, after the clean stop.
    assert site.log().leader_epochs.entries == ()
    assert "rebuilding the leader epochs" in site.reports[0]
    site = site.restart()
    assert site.files.exists(path)
    assert not [line for line in site.reports if "rebuilding" in line]


def test_epochs_survive_repeated_crashes() -> None:
    """Batches that recovery reads again do not move the start of their epoch."""
    site = LogSite().start()
    site.create("t-0")
    for _ in range(4):
        site.fill(site.log(), 4)
        site.settle()
        site.write_checkpoints()
        site = site.kill()
    assert site.log().leader_epochs.entries == ((0, 0), (1, 4), (2, 8), (3, 12))
    assert [site.log().leader_epochs.epoch_for_offset(offset) for offset in (0, 7, 8, 15)] == [
        0,
        1,
        2,
        3,
    ]


@pytest.mark.parametrize("is_full", [False, True])
def test_epoch_whose_segment_was_not_sealed_is_known_after_two_crashes(is_full: bool) -> None:
    site = LogSite().start()
    site.fill(site.create("t-0"), 3)
    site.settle()
    site = site.kill()
    site.fill(site.log(), 4)
    site.ports.timers.run_due()
    site.ports.jobs.run_one("sync:1")  # The new segment is durable, but the old one is not sealed.
    site = site.next_life()
    if is_full:
        site.files.fail_when(
            lambda operation: file_names.LEADER_EPOCH_CHECKPOINT in operation.path, errno.ENOSPC
        )
    site.start()
    site.files.fail_no_more()
    site.write_checkpoints()
    site = site.kill()
    assert site.log().leader_epochs.entries == ((0, 0), (1, 3))


def test_epochs_of_truncated_batches_are_removed() -> None:
    site, log = four_segments(3)
    site = site.kill()
    site.append(site.log())
    site.settle()
    write_leader_epochs(site.files, log.directory, [EpochEntry(0, 0), EpochEntry(1, 3)])
    site.flip(site.path(log, 0), -1)
    site = site.kill()
    assert site.log().leader_epochs.entries == ((0, 0),)


def test_batches_without_an_epoch_have_none() -> None:
    """Kafka wrote such batches before it had leader epochs."""
    site = LogSite().start()
    log = site.create("t-0")
    append(log.segments.active, client_batch(), 0, leader_epoch=-1)
    site = site.kill()
    assert site.log().log_end_offset == 1
    assert site.log().leader_epochs.entries == ()


def _states(log: Log) -> dict[int, tuple[int, int, int]]:
    return {
        state.producer_id: (state.producer_epoch, state.last_sequence, state.last_timestamp)
        for state in log.producer_state.producers.values()
    }


def _with_producers() -> tuple[LogSite, Log]:
    site = LogSite().start()
    log = site.create("t-0")
    for number in range(12):
        site.append(log, 2, producer_id=number % 3, producer_epoch=1, base_sequence=number // 3 * 2)
    site.settle()
    return site, log


@pytest.mark.parametrize("snapshots", ["kept", "newest damaged", "all damaged", "all missing"])
@pytest.mark.parametrize("clean", [True, False])
def test_producer_state_survives_a_restart(clean: bool, snapshots: str) -> None:
    site, log = _with_producers()
    before = _states(log)
    assert len(before) == 3
    if clean:
        site.stop()
    offsets = site.listing(log, ".snapshot")
    assert offsets
    for offset in offsets[-1:] if snapshots == "newest damaged" else offsets:
        if "damaged" in snapshots:
            site.files.overwrite(site.path(log, offset, ".snapshot"), b"\0\1garbage")
        elif snapshots == "all missing":
            site.files.unlink(site.path(log, offset, ".snapshot"))
    site = site.kill()
    assert _states(site.log()) == before
    again = site.append(site.log(), 2, producer_id=2, producer_epoch=1, base_sequence=6)
    assert (again.duplicate, again.first_offset) == (True, 22)


def test_truncated_batches_do_not_change_producer_state() -> None:
    site, log = _with_producers()
    active = site.path(log, base_offsets(log)[-1])
    site.flip(active, -1)
    site = site.kill()
    again = site.append(site.log(), 2, producer_id=2, producer_epoch=1, base_sequence=6)
    assert (again.duplicate, again.first_offset) == (False, 22)


def test_inactive_producer_expires_at_startup() -> None:
    """Inactivity counts from the modification time of the newest batch's segment."""
    site, log = _with_producers()
    log.roll()
    site.settle()
    site.ports.advance(site.config.producer_id_expiration_ms + 100)
    site.append(site.log(), 1, producer_id=9, producer_epoch=0, base_sequence=0)
    site.settle()
    site = site.kill()
    assert list(site.log().producer_state.producers) == [9]


def test_producer_of_recent_records_is_kept_whatever_the_file_date() -> None:
    """A backup may give a file any date, and Kafka uses only the timestamps of records."""
    site, log = _with_producers()
    before = _states(log)
    site.files._find(site.path(log, base_offsets(log)[-1])).modified_ms = 0
    site = site.kill()
    assert _states(site.log()) == before


# -- unexpected files in the directory --------------------------------------------------------


def test_deleted_files_and_orphaned_indexes_are_removed() -> None:
    site, log = four_segments()
    site.stop()
    doomed = [
        file_names.segment_file_name(0, ".log", ".deleted"),
        file_names.segment_file_name(3, ".index", ".deleted"),
        file_names.segment_file_name(5, ".log", ".cleaned"),
        file_names.segment_file_name(7, ".index"),
        file_names.segment_file_name(7, ".timeindex"),
        file_names.segment_file_name(7, ".txnindex"),
    ]
    for name in doomed:
        site.files.open_append(f"{log.directory}/{name}").close()
    site.files.open_append(f"{log.directory}/notes-of-an-operator").close()
    site = site.kill()
    left = site.files.listdir(log.directory)
    assert not set(doomed) & set(left)
    assert "notes-of-an-operator" in left
    assert batch_offsets(site.log()) == list(range(17))


@pytest.mark.parametrize("clean", [True, False])
def test_interrupted_deletion_is_finished(clean: bool) -> None:
    site, log = four_segments()
    log.log_start_offset = 12
    site.settle(site.manager.write_log_starts())
    log.log_start_offset = 0
    if clean:
        log.log_start_offset = 12
        site.stop()
    site = site.kill()
    log = site.log()
    assert base_offsets(log) == [10, 15]
    assert site.listing(log) == [10, 15]
    assert log.log_start_offset == 12
    assert batch_offsets(log) == [12, 13, 14, 15, 16]
    assert log.leader_epochs.entries == ((0, 12),)


def test_segment_that_was_kept_below_the_log_start_leaves_no_gap() -> None:
    """A start on a full disk kept it for its producers; retention deleted those after it."""
    site, log = four_segments()
    log.log_start_offset = 5
    site.settle(site.manager.write_log_starts())
    for base in (5, 10):
        for suffix in SUFFIXES:
            site.files.unlink(f"{log.directory}/{base:020}{suffix}")
    log = site.kill().log()
    assert base_offsets(log) == [15]
    assert log.log_start_offset == 15
    assert batch_offsets(log) == [15, 16]


@pytest.mark.parametrize(("snapshots", "begin"), [(False, 12), (True, 15)])
def test_log_without_segments_begins_at_its_last_known_end(snapshots: bool, begin: int) -> None:
    """A snapshot proves that there were records below its offset."""
    site, log = four_segments()
    log.log_start_offset = 12
    site.settle(site.manager.write_log_starts())
    for base in base_offsets(log):
        for suffix in SUFFIXES:
            site.files.unlink(site.path(log, base, suffix))
    for offset in site.listing(log, ".snapshot"):
        if not snapshots:
            site.files.unlink(site.path(log, offset, ".snapshot"))
    site = site.kill()
    log = site.log()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (begin,) * 3
    site.append(log)
    site.settle()
    assert batch_offsets(log) == [begin]


def test_log_truncated_below_its_start_offset_restarts_there() -> None:
    site, log = four_segments(4)
    log.log_start_offset = 3
    site.settle(site.manager.write_log_starts())
    site.files.overwrite(site.path(log, 0), site.files.read_file(site.path(log, 0))[:200])
    site = site.kill()
    log = site.log()
    assert base_offsets(log) == site.listing(log) == [3]
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_high_watermark_is_the_checkpointed_one_but_not_below_the_start() -> None:
    """KAFKA-3978 and others: a restart must not reset it to 0."""
    for written, expected in [(0, 12), (13, 13), (17, 17)]:
        site, log = four_segments()
        log.log_start_offset = 12
        site.settle(site.manager.write_log_starts())
        log.high_watermark = written
        log.durable_end_offset = max(17, written)
        site.settle(site.manager.write_high_watermarks())
        after = site.next_life()
        after.leads = False
        after.start()
        assert after.log().high_watermark == expected
