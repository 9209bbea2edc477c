"""Loading a log: little is read after a clean stop; after a crash it is cut, mended and synced."""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from plog.errors import CorruptMessage
from plog.types import ZERO_UUID
from plogd.log import names
from plogd.log.checkpoints import EpochEntry, write_leader_epochs, write_topic_id
from plogd.log.log import Log
from plogd.log.recovery import topic_id_of
from tests.helpers.log_site import CONFIG, LogSite, base_offsets, batch_offsets, values
from tests.helpers.sim_files import SimCrash, SimFiles

SUFFIXES = (".log", ".index", ".timeindex")


def _site(batches: int = 17, **settings: Any) -> tuple[LogSite, Log]:
    """A log with segments at 0, 5, 10 and 15, all but the last sealed, all durable."""
    site = LogSite(**settings).start()
    log = site.create("t-0")
    site.fill(log, batches)
    site.settle()
    return site, log


def _contents(site: LogSite, log: Log) -> dict[str, bytes]:
    """Records and indexes, by file name."""
    return {
        name: site.files.read_file(f"{log.directory}/{name}")
        for name in site.files.listdir(log.directory)
        if name.endswith(SUFFIXES)
    }


def _forget(site: LogSite, *checkpoints: str) -> None:
    """Have recovery look at everything, or know nothing of what was replicated."""
    for name in checkpoints:
        if site.files.exists(f"/a/{name}"):
            site.files.unlink(f"/a/{name}")


def _checkpointed(site: LogSite) -> None:
    site.settle(site.manager.write_recovery_points())
    site.settle(site.manager.write_high_watermarks())


def _flip(site: LogSite, path: str, position: int) -> None:
    content = bytearray(site.files.read_file(path))
    content[position] ^= 0xFF
    site.files.overwrite(path, bytes(content))


# -- after a clean stop -----------------------------------------------------------------------


def test_a_clean_stop_leaves_nothing_to_recover() -> None:
    site, log = _site()
    before, content = values(log), _contents(site, log)
    site.stop()
    after = site.next_life()
    changed: list[str] = []
    after.files.on_operation = lambda operation: changed.append(operation.path)
    after.start()
    log = after.log()
    assert not any("t-0" in path for path in changed)
    assert values(log) == before
    assert _contents(after, log).keys() == content.keys()
    assert (log.durable_end_offset, log.log_end_offset, log.recovery_point) == (17, 17, 17)
    assert after.reports == []


def test_after_a_clean_stop_the_log_goes_on_where_it_was() -> None:
    site, _ = _site()
    site = site.restart()
    site.fill(site.log(), 7)
    site.settle()
    site = site.restart()
    assert batch_offsets(site.log()) == list(range(24))


def test_a_clean_start_with_a_damaged_end_recovers_the_active_segment() -> None:
    """Else new batches would be written behind bytes that nobody can get past."""
    site, log = _site()
    site.stop()
    path = site.path(log, 15)
    site.files.overwrite(path, site.files.read_file(path)[:-1] + b"\0" * 500)
    site = site.kill()
    log = site.log()
    assert any("cut " in report for report in site.reports)
    site.append(log, value=b"new")
    site.settle()
    assert values(log)[log.log_end_offset - 1] == b"new"
    assert batch_offsets(log) == [*range(16), *batch_offsets(log, 16)]


def test_a_clean_start_with_an_active_segment_of_garbage_recovers_it() -> None:
    site, log = _site()
    site.stop()
    site.files.overwrite(site.path(log, 15), b"\x99" * 300)
    site = site.kill()
    assert site.log().log_end_offset == 15
    assert site.files.read_file(site.path(log, 15)) == b""


# -- after a crash: what is torn is cut -------------------------------------------------------


def test_after_a_crash_indexes_are_the_same_as_they_would_have_been() -> None:
    site, log = _site()
    log.roll()
    site.fill(log, 3)
    site.settle()
    log.segments.active.on_become_inactive()
    content = _contents(site, log)
    for base in base_offsets(log):
        for suffix in (".index", ".timeindex"):
            site.files.overwrite(site.path(log, base, suffix), b"\x55" * 30)
    site = site.kill()
    assert _contents(site, site.log()) == content
    assert batch_offsets(site.log()) == list(range(20))


def test_a_batch_torn_at_any_byte_is_cut() -> None:
    site, log = _site(3)
    path = site.path(log, 0)
    whole = site.files.read_file(path)
    size = len(whole) // 3
    site = site.next_life()
    for torn in range(size + 1):
        site.files.overwrite(path, whole[: 2 * size + torn])
        site = site.next_life().start()
        log = site.log()
        kept = 3 if torn == size else 2
        assert (log.log_end_offset, log.durable_end_offset) == (kept, kept)
        assert site.files.read_file(path) == whole[: kept * size]
        assert len(site.reports) == (torn not in (0, size))
        site.append(log)
        assert batch_offsets(log, end_offset=kept + 1) == list(range(kept + 1))


TAILS: dict[str, bytes] = {
    "one zero": b"\0",
    "a header of zeros": bytes(61),
    "a page of zeros": bytes(4096),
    "two MiB of zeros": bytes(2 << 20),
    "ones": b"\xff" * 200,
    "noise": random.Random(1).randbytes(5000),
    "a length beyond the end": struct.pack(">qi", 3, 1 << 20) + bytes(100),
    "a negative length": struct.pack(">qi", 3, -5) + bytes(100),
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS.keys())
def test_a_tail_that_is_no_batch_is_cut(tail: bytes) -> None:
    site, log = _site(3)
    path = site.path(log, 0)
    whole = site.files.read_file(path)
    site.files.overwrite(path, whole + tail)
    site = site.kill()
    assert site.files.read_file(path) == whole
    assert site.reports[-1].startswith(f"cut {len(tail)} bytes of t-0 at offset 3: ")
    assert batch_offsets(site.log()) == [0, 1, 2]


def test_a_batch_with_a_wrong_checksum_and_all_behind_it_are_cut() -> None:
    site, log = _site(3)
    path = site.path(log, 0)
    size = len(site.files.read_file(path)) // 3
    _flip(site, path, 2 * size - 1)
    site = site.kill()
    assert site.log().log_end_offset == 1
    assert "checksum" in site.reports[-1]


def test_stale_bytes_of_an_earlier_life_are_no_batch() -> None:
    """A whole batch with a sound checksum, but not the offset that is next."""
    site, log = _site(3)
    path = site.path(log, 0)
    whole = site.files.read_file(path)
    site.files.overwrite(path, whole + whole[: len(whole) // 3])
    site = site.kill()
    assert site.log().log_end_offset == 3
    assert site.files.read_file(path) == whole


def test_what_recovery_kept_survives_the_next_power_loss() -> None:
    """R13: it may have been in the page cache only, and is served from now on."""
    for seed in range(10):
        site = LogSite().start()
        site.append(log := site.create("t-0"), 1)
        log.roll()
        site.fill(log, 8)  # Nothing of it is synced.
        site.ports.jobs.forget_all()
        site = site.kill()
        kept = values(site.log())
        assert len(kept) == site.log().durable_end_offset == 9
        site = site.crash(seed)
        assert values(site.log()) == kept


def test_pages_the_disk_refused_are_not_believed_after_a_restart() -> None:
    """R13: a failed sync leaves them in the page cache, clean, until it is dropped."""
    site, log = _site(3)
    site.fill(log, 2)
    site.files.fail_when(lambda operation: operation.name == "sync", errno.EIO)
    site.settle()
    assert site.offline == ["/a"]
    site.files.fail_no_more()
    site = site.kill()
    assert site.log().log_end_offset == 3


def test_sealed_segments_are_not_read_again() -> None:
    site, log = _site()
    _checkpointed(site)
    read: list[str] = []
    after = site.next_life()
    after.files.fail_when(lambda operation: bool(read.append(operation.path)), 0)
    for base in (0, 5, 10):
        after.files.overwrite(site.path(log, base), b"!" * 700)
    after.start()
    assert after.log().log_end_offset == 17
    assert (after.log().recovery_point, after.log().log_start_offset) == (15, 0)


def test_an_error_of_the_disk_is_raised() -> None:
    """The caller takes the directory offline."""
    site, log = _site()
    after = site.next_life()
    after.files.fail_when(
        lambda operation: operation.name == "pread" and "t-0" in operation.path, errno.EIO
    )
    after.start()
    assert after.offline == ["/a"]
    assert after.manager.get(log.topic_partition) is None


# -- what is missing or damaged beside the records --------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [None, b"", b"\x77" * 13, b"\x77" * 24, bytes(96)])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_or_damaged_index_is_rebuilt(
    suffix: str, damage: bytes | None, clean: bool
) -> None:
    site, log = _site()
    _checkpointed(site)
    log.segments.active.on_become_inactive()
    content = _contents(site, log)
    if clean:
        site.stop()
    for base in (0, 15):  # A sealed one, and the active one.
        path = site.path(log, base, suffix)
        if damage is None:
            site.files.unlink(path)
        else:
            site.files.overwrite(path, damage)
    site = site.kill()
    assert _contents(site, site.log()) == content
    assert batch_offsets(site.log()) == list(range(17))


def test_a_damaged_epoch_file_is_made_anew_from_the_batches() -> None:
    site = LogSite().start()
    site.create("t-0")
    for _ in range(3):
        site.fill(site.log(), 4)
        site.settle()
        site = site.kill()
    entries = site.log().leader_epochs.entries
    assert entries == ((0, 0), (1, 4), (2, 8))
    site.stop()
    site.files.overwrite(f"/a/t-0/{names.LEADER_EPOCH_CHECKPOINT}", b"\0\0\0")
    site = site.kill()
    assert site.log().leader_epochs.entries == entries
    assert "rebuilding the leader epochs" in site.reports[0]


def test_epochs_stay_what_they_are_from_crash_to_crash() -> None:
    """The batches that recovery reads again do not move the start of their epoch."""
    site = LogSite().start()
    site.create("t-0")
    for _ in range(4):
        site.fill(site.log(), 4)
        site.settle()
        _checkpointed(site)
        site = site.kill()
    assert site.log().leader_epochs.entries == ((0, 0), (1, 4), (2, 8), (3, 12))
    assert [site.log().leader_epochs.epoch_for_offset(offset) for offset in (0, 7, 8, 15)] == [
        0,
        1,
        2,
        3,
    ]


def test_epochs_of_batches_that_were_cut_go_with_them() -> None:
    site, log = _site(3)
    site = site.kill()
    site.append(site.log())
    site.settle()
    write_leader_epochs(site.files, log.directory, [EpochEntry(0, 0), EpochEntry(1, 3)])
    _flip(site, site.path(log, 0), -1)
    site = site.kill()
    assert site.log().leader_epochs.entries == ((0, 0),)


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
def test_producers_are_known_after_a_restart_as_before(clean: bool, snapshots: str) -> None:
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


def test_producers_of_batches_that_were_cut_are_as_if_they_had_not_come() -> None:
    site, log = _with_producers()
    active = site.path(log, base_offsets(log)[-1])
    _flip(site, active, -1)
    site = site.kill()
    again = site.append(site.log(), 2, producer_id=2, producer_epoch=1, base_sequence=6)
    assert (again.duplicate, again.first_offset) == (False, 22)


def test_a_silent_producer_is_forgotten_at_the_start() -> None:
    site, _ = _with_producers()
    site.ports.advance(site.config.producer_id_expiration_ms)
    site.append(site.log(), 1, producer_id=9, producer_epoch=0, base_sequence=0)
    site.settle()
    site = site.kill()
    assert list(site.log().producer_state.producers) == [9]


# -- what lies around in the directory --------------------------------------------------------


def test_files_on_their_way_out_and_indexes_without_records_are_removed() -> None:
    site, log = _site()
    site.stop()
    doomed = [
        names.segment_file_name(0, ".log", ".deleted"),
        names.segment_file_name(3, ".index", ".deleted"),
        names.segment_file_name(5, ".log", ".cleaned"),
        names.segment_file_name(7, ".index"),
        names.segment_file_name(7, ".timeindex"),
        names.segment_file_name(7, ".txnindex"),
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
def test_an_interrupted_deletion_is_finished(clean: bool) -> None:
    site, log = _site()
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


def test_a_log_without_segments_begins_at_its_start_offset() -> None:
    site, log = _site()
    log.log_start_offset = 12
    site.settle(site.manager.write_log_starts())
    for base in base_offsets(log):
        for suffix in SUFFIXES:
            site.files.unlink(site.path(log, base, suffix))
    site = site.kill()
    log = site.log()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (12, 12, 12)
    site.append(log)
    site.settle()
    assert batch_offsets(log) == [12]


def test_a_log_cut_below_its_start_offset_begins_anew_there() -> None:
    site, log = _site(4)
    log.log_start_offset = 3
    site.settle(site.manager.write_log_starts())
    site.files.overwrite(site.path(log, 0), site.files.read_file(site.path(log, 0))[:200])
    site = site.kill()
    log = site.log()
    assert base_offsets(log) == site.listing(log) == [3]
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_the_high_watermark_is_the_last_one_written_but_within_the_log() -> None:
    """KAFKA-3978 and others: never back to 0 because of a restart, never beyond the end."""
    for written, expected in [(0, 12), (13, 13), (17, 17), (99, 17)]:
        site, log = _site()
        log.log_start_offset = 12
        site.settle(site.manager.write_log_starts())
        log.high_watermark = written
        log.durable_end_offset = max(17, written)
        site.settle(site.manager.write_high_watermarks())
        heard: list[int] = []
        after = site.next_life()
        after._lead = lambda log: heard.append(log.high_watermark)  # type: ignore[method-assign]
        after.start()
        assert heard == [expected]


def test_the_topic_of_a_directory_is_told_by_its_metadata_file() -> None:
    files = SimFiles(["/a/t-0"])
    assert topic_id_of(files, "/a/t-0") == ZERO_UUID
    write_topic_id(files, "/a/t-0", b"\1" * 16)
    assert topic_id_of(files, "/a/t-0") == b"\1" * 16
    files.overwrite(f"/a/t-0/{names.PARTITION_METADATA}", b"version: 0\n")
    assert topic_id_of(files, "/a/t-0") == ZERO_UUID


# -- gaps and damage between what is there ----------------------------------------------------


def test_what_follows_a_cut_segment_is_dropped_if_nothing_of_it_was_acknowledged() -> None:
    """Later pages may reach the disk before earlier ones."""
    site, log = _site()
    _forget(site, names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT)
    _flip(site, site.path(log, 5), -1)
    site = site.kill()
    log = site.log()
    assert base_offsets(log) == site.listing(log) == [0, 5]
    assert log.log_end_offset == 9
    assert "dropped 2 segments of t-0 from offset 10 on" in site.reports[-1]
    assert site.listing(log, ".snapshot") == [5]


@pytest.mark.parametrize("high_watermark", [8, 10, 11, 17])
def test_no_segment_below_the_high_watermark_is_dropped(high_watermark: int) -> None:
    """R14: it was durable, so what is missing before it is the disk's doing."""
    site, log = _site()
    log.high_watermark = high_watermark
    site.settle(site.manager.write_high_watermarks())
    site.files.overwrite(site.path(log, 5), site.files.read_file(site.path(log, 5))[:400])
    site = site.kill()
    expected = [0, 5] if high_watermark <= 10 else [0, 5, 10, 15]
    assert base_offsets(site.log()) == expected


def _damaged(position: int, high_watermark: int) -> tuple[LogSite, Log]:
    """The log after a crash that finds one byte of the third batch of segment 0 wrong."""
    site, log = _site()
    log.high_watermark = high_watermark
    site.settle(site.manager.write_high_watermarks())
    path = site.path(log, 0)
    _flip(site, path, 2 * len(site.files.read_file(path)) // 5 + position)
    site = site.kill()
    return site, site.log()


@pytest.mark.parametrize("position", [0, 8, 16, 20, 61, 100])
def test_damage_below_the_high_watermark_is_kept_and_served_around(position: int) -> None:
    """R14: base offset, length, magic, checksum, records: whatever it hits."""
    site, log = _damaged(position, high_watermark=17)
    assert (log.log_start_offset, log.log_end_offset) == (0, 17)
    assert batch_offsets(log, 0, end_offset=2) == [0, 1]
    assert batch_offsets(log, 3) == list(range(3, 17))
    with pytest.raises(CorruptMessage, match="offsets 2 to 2 are damaged on disk"):
        log.read(2, 1000, end_offset=17)
    assert site.reports == [
        "t-0 is damaged on disk: offsets 2 to 2 cannot be read; the rest is served"
    ]


def test_a_read_that_begins_before_damage_ends_there() -> None:
    _, log = _damaged(100, high_watermark=17)
    data = log.read(0, 1 << 20, end_offset=17)
    assert data.nbytes == 2 * log.segments.first.size_bytes // 5


@pytest.mark.parametrize("position", [0, 8, 16, 20, 61, 100])
def test_damage_at_the_high_watermark_is_cut(position: int) -> None:
    _, log = _damaged(position, high_watermark=2)
    assert log.log_end_offset == 2
    assert batch_offsets(log) == [0, 1]


def test_the_log_goes_on_behind_damage_at_its_very_end() -> None:
    site, log = _site()
    _checkpointed(site)
    _flip(site, site.path(log, 15), -1)
    site = site.kill()
    log = site.log()
    assert log.log_end_offset == 17
    site.append(log, value=b"new")
    site.settle()
    assert values(log, 17) == {17: b"new"}
    with pytest.raises(CorruptMessage):
        log.read(16, 1000, end_offset=18)


# -- what a roll that failed leaves -----------------------------------------------------------


def _orphan(site: LogSite, log: Log, base_offset: int) -> None:
    for suffix in SUFFIXES:
        site.files.open_append(site.path(log, base_offset, suffix)).close()


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_segment_the_log_has_overtaken_is_removed(clean: bool) -> None:
    """It would be taken for the end of the log, and its offsets be given out twice."""
    site, log = _site(4)
    _checkpointed(site)
    if clean:
        site.stop()
    _orphan(site, log, 3)
    site = site.kill()
    log = site.log()
    assert base_offsets(log) == site.listing(log) == [0]
    assert log.log_end_offset == 4


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_segment_among_others_is_removed(clean: bool) -> None:
    site, log = _site()
    if clean:
        site.stop()
    _orphan(site, log, 12)
    site = site.kill()
    log = site.log()
    assert base_offsets(log) == site.listing(log) == [0, 5, 10, 15]
    assert batch_offsets(log) == list(range(17))


def test_the_segment_before_an_empty_one_is_looked_at_whatever_the_recovery_point() -> None:
    """After a clean stop at 3 the recovery point is 3; then a roll failed, and appends went on."""
    site, log = _site(3)
    site = site.restart()
    _checkpointed(site)
    log = site.log()
    assert log.recovery_point == 3
    site.append(log)
    _orphan(site, log, 3)
    path = site.path(log, 0)
    torn = site.files.read_file(path)[:-1]
    site.files.overwrite(path, torn)
    site = site.kill()
    assert site.log().log_end_offset == 3
    assert len(site.files.read_file(path)) < len(torn)
    site.append(site.log(), value=b"new")
    site.settle()
    assert batch_offsets(site.log()) == [0, 1, 2, 3]


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_active_segment_is_kept(clean: bool) -> None:
    site, log = _site(4)
    log.roll()
    site.settle()
    if clean:
        site.stop()
    site = site.kill()
    assert base_offsets(site.log()) == [0, 4]
    assert site.log().log_end_offset == 4


# -- crashes while recovering -----------------------------------------------------------------


def _crashed_at_random(seed: int) -> LogSite:
    """A power loss in the middle of appends, rolls, rounds and seals; not started again yet."""
    chance = random.Random(seed)
    site = LogSite().start()
    log = site.create("t-0")
    for _ in range(20):
        site.fill(log, 1, producer_id=-1)
        site.ports.timers.run_due()
        while site.ports.jobs.waiting and chance.randrange(2):
            site.ports.jobs.run_one()
    return site._successor(site.files.crash(chance))


@pytest.mark.parametrize("seed", range(4))
def test_a_crash_at_any_moment_of_recovery_only_makes_it_begin_again(seed: int) -> None:
    total = _crashed_at_random(seed).start()
    expected = values(total.log())
    for number in range(1, total.files.operations + 1):
        site = _crashed_at_random(seed)
        site.files.crash_at(number)
        with pytest.raises(SimCrash):
            site.start()
        after = site._successor(site.files.crash(random.Random(number))).start()
        assert values(after.log()) == expected


def _nothing_at_all(site: LogSite, log: Log) -> None:
    pass


@pytest.mark.parametrize(
    "damage",
    [
        _nothing_at_all,
        lambda site, log: site.files.overwrite(site.path(log, 0), b""),
        lambda site, log: site.files.unlink(site.path(log, 5)),
        lambda site, log: site.files.overwrite(site.path(log, 10, ".index"), b"\1" * 8),
        lambda site, log: site.files.unlink(f"/a/t-0/{names.LEADER_EPOCH_CHECKPOINT}"),
        lambda site, log: _forget(site, *map(str, site.files.listdir("/a"))[:0]),
    ],
)
@pytest.mark.parametrize("clean", [True, False])
def test_whatever_is_missing_a_log_can_be_loaded(
    damage: Callable[[LogSite, Log], None], clean: bool
) -> None:
    site, log = _site()
    if clean:
        site.stop()
    damage(site, log)
    site = site.kill()
    log = site.log()
    site.append(log, value=b"new")
    site.settle()
    assert values(log, log.log_end_offset - 1) == {log.log_end_offset - 1: b"new"}
    assert log.config is CONFIG
