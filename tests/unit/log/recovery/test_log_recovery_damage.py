"""Loading a log with gaps, with damage below the high watermark (R14), with a failed roll."""

from __future__ import annotations

import pytest

from plog.errors import CorruptMessage
from plog.records.batch import iter_batches
from plogd.log import file_names
from plogd.log.log import Log
from tests.helpers.log.log_site import (
    SUFFIXES,
    LogSite,
    base_offsets,
    batch_offsets,
    four_segments,
    values,
)

BATCH_BYTES = 173
"""The size of each of the logs' batches."""

# -- gaps and damage between valid records ----------------------------------------------------


def _unsealed() -> tuple[LogSite, Log]:
    """Four segments, none of which is known to have been durable."""
    site, log = four_segments()
    site.forget(file_names.RECOVERY_POINT_CHECKPOINT, file_names.HIGH_WATERMARK_CHECKPOINT)
    for offset in site.listing(log, ".snapshot"):
        site.files.unlink(site.path(log, offset, ".snapshot"))
    return site, log


def _strays(site: LogSite, log: Log) -> list[str]:
    return [name for name in site.files.listdir(log.directory) if name.endswith(".stray")]


def test_unacknowledged_segments_after_a_truncated_one_become_stray() -> None:
    """Later pages may reach the disk before earlier ones."""
    site, log = _unsealed()
    site.flip(site.path(log, 5), -1)
    rejected = {base: site.files.read_file(site.path(log, base)) for base in (10, 15)}
    site = site.kill()
    log = site.log()
    assert base_offsets(log) == site.listing(log) == [0, 5]
    assert log.log_end_offset == 9
    assert "removed 2 segments from t-0, starting at offset 10" in site.reports[-1]
    assert f"kept in /a/t-0 as *.stray: {10:020}.log.stray" in site.reports[-1]
    assert _strays(site, log) == [
        f"{base:020}{suffix}.stray"
        for base in (10, 15)
        for suffix in (".index", ".log", ".timeindex")
    ]
    for base, content in rejected.items():
        assert site.files.read_file(f"{site.path(log, base)}.stray") == content


def test_segments_after_a_lost_one_become_stray() -> None:
    """Of two segments never synced, a power loss may keep only the second."""
    site, log = _unsealed()
    site.files.overwrite(site.path(log, 0), b"")
    site = site.kill()
    log = site.log()
    assert base_offsets(log) == site.listing(log) == [0]
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert len(_strays(site, log)) == 9


def test_stray_segment_survives_starts_retention_and_a_namesake() -> None:
    site, log = _unsealed()
    site.flip(site.path(log, 5), -1)
    first = site.files.read_file(site.path(log, 10))
    site = site.kill()
    site.fill(site.log(), 8)
    site.settle()
    log = site.log()
    assert base_offsets(log) == [0, 5, 10, 15]
    for offset in site.listing(log, ".snapshot"):
        site.files.unlink(site.path(log, offset, ".snapshot"))
    second = site.files.read_file(site.path(log, 10))
    site.flip(site.path(log, 5), -1)
    site = site.kill()
    site.log().log_start_offset = 5
    site.log().apply_retention(site.ports.clock.now_ms())
    site.ports.advance(10_000)
    site = site.restart()
    path = site.path(log, 10)
    assert site.files.read_file(f"{path}.stray") == first
    assert site.files.read_file(f"{path}.2.stray") == second
    site.delete("t-0")
    site.ports.advance(10_000)
    assert not any(name.startswith("t-0") for name in site.files.listdir("/a"))


@pytest.mark.parametrize("base", [0, 5, 10])
@pytest.mark.parametrize("kept", [5, 10, 15])
def test_no_segment_below_a_snapshot_is_rejected_without_checkpoints(base: int, kept: int) -> None:
    """R14: sealing wrote the snapshot, so all segments before it were durable."""
    site, log = four_segments()
    site.forget(file_names.RECOVERY_POINT_CHECKPOINT, file_names.HIGH_WATERMARK_CHECKPOINT)
    for offset in {5, 10, 15} - {kept}:
        site.files.unlink(site.path(log, offset, ".snapshot"))
    site.flip(site.path(log, base), 2 * BATCH_BYTES + 100)
    site = site.kill()
    log = site.log()
    damaged = base + 2
    if damaged > kept:
        assert (base_offsets(log), log.log_end_offset) == ([*range(0, base + 1, 5)], damaged)
        return
    assert base_offsets(log) == [0, 5, 10, 15]
    assert (log.log_start_offset, log.log_end_offset) == (0, 17)
    assert _strays(site, log) == []
    with pytest.raises(CorruptMessage):
        log.read(damaged, 1000, end_offset=17)
    assert batch_offsets(log, damaged + 1) == list(range(damaged + 1, 17))
    assert f"cannot read offsets {damaged} to {damaged}," in "".join(site.reports)


@pytest.mark.parametrize("clean", [True, False])
def test_clean_log_is_not_truncated_without_a_high_watermark(clean: bool) -> None:
    """The stop wrote a snapshot at the log's end; an index is missing, so recovery reads
    everything.
    """
    site, log = four_segments()
    site.stop()
    site.forget(file_names.HIGH_WATERMARK_CHECKPOINT, file_names.RECOVERY_POINT_CHECKPOINT)
    if not clean:
        site.files.unlink(f"/a/{file_names.CLEAN_SHUTDOWN_FILE}")
    site.files.unlink(site.path(log, 15, ".index"))
    site.flip(site.path(log, 15), 100)
    site = site.kill()
    assert site.log().log_end_offset == 17
    assert batch_offsets(site.log(), 16) == [16]


@pytest.mark.parametrize("high_watermark", [7, 8, 10, 11, 17])
def test_segments_after_damage_below_the_high_watermark_are_kept(high_watermark: int) -> None:
    """R14: the missing records were durable, so later ones may have been acknowledged."""
    site, log = _unsealed()
    log.high_watermark = high_watermark
    site.settle(site.manager.write_high_watermarks())
    site.files.overwrite(site.path(log, 5), site.files.read_file(site.path(log, 5))[:400])
    site = site.kill()
    expected = [0, 5] if high_watermark <= 7 else [0, 5, 10, 15]
    assert base_offsets(site.log()) == expected


# -- lost durable records ---------------------------------------------------------------------


def _shortened(keep_bytes: int, *, clean: bool) -> LogSite:
    """Start on a log of 17 records whose last file has only `keep_bytes` of two records left."""
    site, log = four_segments()
    site.write_checkpoints()
    if clean:
        site.stop()
    path = site.path(log, 15)
    site.files.overwrite(path, site.files.read_file(path)[:keep_bytes])
    return site.kill()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("keep_bytes", [0, 1, 60, 61, 172, 173, 174, 345])
def test_durable_offsets_are_never_reassigned(keep_bytes: int, clean: bool) -> None:
    """R14, a file truncated anywhere: consumers have seen the records after that (G2)."""
    site = _shortened(keep_bytes, clean=clean)
    log = site.log()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 17, 17)
    kept = 15 + keep_bytes // BATCH_BYTES
    assert batch_offsets(log, end_offset=kept) == list(range(kept))
    if keep_bytes % BATCH_BYTES:
        with pytest.raises(CorruptMessage, match=f"offsets {kept} to 16 are damaged on disk"):
            log.read(kept, 1000, end_offset=17)
    assert any(f"offsets {kept} to 16" in report for report in site.reports)
    site.append(log, value=b"new")
    site.settle()
    assert values(log, 17) == {17: b"new"}
    site.write_checkpoints()
    again = site.kill().log()
    assert (again.log_end_offset, values(again, 17)) == (18, {17: b"new"})


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", [[15], [10, 15], [0, 5, 10, 15]])
def test_offsets_of_removed_files_are_never_reassigned(lost: list[int], clean: bool) -> None:
    site, log = four_segments()
    site.write_checkpoints()
    if clean:
        site.stop()
    for base in lost:
        site.files.unlink(site.path(log, base))
    site = site.kill()
    log = site.log()
    assert log.log_end_offset == log.high_watermark == 17
    assert base_offsets(log) == [base for base in (0, 5, 10, 15) if base not in lost] + [17]
    assert f"has lost offsets {lost[0]} to 16, which were durable" in site.reports[-1]
    site.append(log, value=b"new")
    site.settle()
    site = site.kill()  # Before any checkpoint has the new record.
    assert values(site.log(), 17) == {17: b"new"}


def test_reader_in_a_lost_range_continues_after_it() -> None:
    site = _shortened(0, clean=False)
    log = site.log()
    assert log.read(15, 1000, end_offset=17).region is None
    site.append(log, value=b"new")
    site.settle()
    assert values(log, 15) == {17: b"new"}


def _damaged(position: int, high_watermark: int, *, sealed: bool = True) -> tuple[LogSite, Log]:
    """The log after a crash, when one byte of the third batch of segment 0 is wrong."""
    site, log = four_segments() if sealed else _unsealed()
    log.high_watermark = high_watermark
    site.settle(site.manager.write_high_watermarks())
    path = site.path(log, 0)
    site.flip(path, 2 * len(site.files.read_file(path)) // 5 + position)
    site = site.kill()
    return site, site.log()


@pytest.mark.parametrize("position", [0, 8, 16, 20, 61, 100])
def test_damage_below_the_high_watermark_is_kept_and_other_records_served(position: int) -> None:
    """R14: base offset, length, magic, checksum, records: wherever the damage is."""
    site, log = _damaged(position, high_watermark=17)
    assert (log.log_start_offset, log.log_end_offset) == (0, 17)
    assert batch_offsets(log, 3) == list(range(3, 17))
    with pytest.raises(CorruptMessage, match="offsets 2 to 2 are damaged on disk"):
        log.read(2, 1000, end_offset=17)
    [report] = site.reports
    path, batch = site.path(log, 0), site.files.read_file(site.path(log, 0))
    start, end = 2 * len(batch) // 5, 3 * len(batch) // 5 - 1
    assert f"cannot read offsets 2 to 2, bytes {start} to {end} of {path};" in report


def test_index_is_rebuilt_around_damage() -> None:
    site, log = _damaged(8, high_watermark=17)
    site.write_checkpoints()
    site.stop()
    site.files.unlink(site.path(log, 0, ".index"))
    site = site.kill()
    assert batch_offsets(site.log(), 3) == list(range(3, 17))
    with pytest.raises(CorruptMessage, match="offsets 2 to 2 are damaged on disk"):
        site.log().read(2, 1000, end_offset=17)


def test_producers_and_epochs_after_damage_are_known() -> None:
    """Otherwise a producer's next batch would be out of order, which is fatal for it."""
    site = LogSite().start()
    log = site.create("t-0")
    for number in range(4):
        site.append(log, producer_id=7, producer_epoch=0, base_sequence=number)
    site.settle()
    site = site.kill()
    site.append(site.log(), producer_id=7, producer_epoch=0, base_sequence=4)
    site.settle()
    site.write_checkpoints()
    path = site.path(site.log(), 0)
    for position in (8, 2 * len(site.files.read_file(path)) // 5 + 16):
        site.flip(path, position)
    site = site.kill()
    assert site.log().leader_epochs.entries[-1] == (1, 4)
    again = site.append(site.log(), producer_id=7, producer_epoch=0, base_sequence=4)
    assert (again.duplicate, again.first_offset) == (True, 4)
    new = site.append(site.log(), producer_id=7, producer_epoch=0, base_sequence=5)
    assert (new.duplicate, new.first_offset) == (False, 5)


def test_read_that_begins_before_damage_ends_there() -> None:
    _, log = _damaged(100, high_watermark=17)
    data = log.read(0, 1 << 20, end_offset=17)
    assert data.region is not None
    assert [header.base_offset for _, header in iter_batches(data.region.read())] == [0, 1]


@pytest.mark.parametrize("position", [0, 8, 16, 20, 61, 100])
def test_damage_at_the_high_watermark_is_truncated(position: int) -> None:
    _, log = _damaged(position, high_watermark=2, sealed=False)
    assert log.log_end_offset == 2
    assert batch_offsets(log) == [0, 1]


@pytest.mark.parametrize("position", [0, 8, 16, 20, 100])
def test_log_continues_in_a_segment_that_begins_with_damage(position: int) -> None:
    site, log = four_segments()
    site.write_checkpoints()
    site.flip(site.path(log, 15), position)
    site = site.kill()
    site.append(site.log())
    site.settle()
    assert batch_offsets(site.log(), 16) == [16, 17]


def test_log_continues_in_a_new_segment_after_damage_at_its_end() -> None:
    site, log = four_segments()
    site.write_checkpoints()
    site.flip(site.path(log, 15), -1)
    site = site.kill()
    log = site.log()
    assert log.log_end_offset == 17
    site.append(log, value=b"new")
    site.settle()
    assert values(log, 17) == {17: b"new"}
    with pytest.raises(CorruptMessage):
        log.read(16, 1000, end_offset=18)


# -- remains of a failed roll -----------------------------------------------------------------


def _orphan(site: LogSite, log: Log, base_offset: int) -> None:
    for suffix in SUFFIXES:
        site.files.open_append(site.path(log, base_offset, suffix)).close()


@pytest.mark.parametrize("clean", [True, False])
def test_overtaken_empty_segment_is_removed(clean: bool) -> None:
    """It would be taken for the log's end, and its offsets be assigned twice."""
    site, log = four_segments(4)
    site.write_checkpoints()
    if clean:
        site.stop()
    _orphan(site, log, 3)
    site = site.kill()
    log = site.log()
    assert base_offsets(log) == site.listing(log) == [0]
    assert log.log_end_offset == 4


@pytest.mark.parametrize("clean", [True, False])
def test_empty_segment_among_others_is_removed(clean: bool) -> None:
    site, log = four_segments()
    if clean:
        site.stop()
    _orphan(site, log, 12)
    site = site.kill()
    log = site.log()
    assert base_offsets(log) == site.listing(log) == [0, 5, 10, 15]
    assert batch_offsets(log) == list(range(17))


def test_segment_before_an_empty_one_is_always_recovered() -> None:
    """After a clean stop at 3 the recovery point is 3; then a roll failed and appends continued."""
    site, log = four_segments(3)
    site = site.restart()
    site.write_checkpoints()
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
def test_empty_active_segment_is_kept(clean: bool) -> None:
    site, log = four_segments(4)
    log.roll()
    site.settle()
    if clean:
        site.stop()
    site = site.kill()
    assert base_offsets(site.log()) == [0, 4]
    assert site.log().log_end_offset == 4
