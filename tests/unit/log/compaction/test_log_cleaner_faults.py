"""F6, F13, F31 and F35 with compaction: checkpoints, clocks, producers and transactions.

Also hostile contents of logs, and topics whose policy changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from plog.errors import OutOfOrderSequenceNumber
from plog.records.batch import Compression, iter_batches
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.offset_map import OffsetMap
from plogd.log import file_names
from plogd.log.housekeeping import RETRY_MS
from plogd.log.log import Log
from tests.helpers.log.compacted_log import CompactedLog
from tests.helpers.log.compaction_site import (
    COMPACT,
    compact,
    end_transaction,
    latest,
    put,
    step_compaction,
    stored,
)
from tests.helpers.log.log_site import LogSite, base_offsets

DAY_MS = 86_400_000
DELETE = replace(COMPACT, cleanup_policy=("delete",))
JUMPS = pytest.mark.parametrize("by_ms", [DAY_MS, -DAY_MS, 0], ids=["forward", "back", "frozen"])


def _fill(site: LogSite, log: Log, count: int = 12) -> None:
    """Append records of other keys, so that the ones before them are in sealed segments."""
    for number in range(count):
        put(site, log, b"other %d" % (number % 2), b"value")
    site.settle()


def _create(site: LogSite, name: str = "t-0") -> Log:
    log = site.create(name, COMPACT)
    for number in range(30):
        put(site, log, b"k%d" % (number % 3), b"%d" % number)
    site.settle()
    return log


# -- checkpoints ------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [False, True])
def test_damaged_cleaner_checkpoint_is_reported_and_the_log_is_compacted_again(
    clean: bool,
) -> None:
    """F6: without the checkpoint, the whole log counts as not compacted."""
    site = LogSite().start()
    log = _create(site)
    compact(site)
    put(site, log, b"k0", None)
    _fill(site, log)
    expected = latest(log)
    if clean:
        site.stop()
    path = f"/a/{file_names.CLEANER_OFFSET_CHECKPOINT}"
    original = site.files.read_file(path)
    for position in range(len(original)):
        rest = len(original) - position
        for content in (original[:position], original[:position] + bytes(rest)):
            site.files.overwrite(path, content)
            again = site._successor(site.files.kill()).start()
            assert [line for line in again.reports if path in line], (position, content)
            assert not [line for line in again.reports if "lost" in line]
            assert latest(again.log()) == expected
            assert compact(again)
            assert latest(again.log()) == expected
            site.files = again.files


@pytest.mark.parametrize("clean", [False, True])
def test_missing_cleaner_checkpoint_is_no_loss(clean: bool) -> None:
    site = LogSite().start()
    log = _create(site)
    compact(site)
    expected = latest(log)
    if clean:
        site.stop()
    site.files.unlink(f"/a/{file_names.CLEANER_OFFSET_CHECKPOINT}")
    site = site.kill()
    assert latest(site.log()) == expected
    assert not [line for line in site.reports if "lost" in line]
    _fill(site, site.log())
    expected = latest(site.log())
    assert compact(site)
    assert latest(site.log()) == expected


# -- the clock --------------------------------------------------------------------------------


def _jump(site: LogSite, by_ms: float) -> None:
    """Move the wall clock by `by_ms`; 0 stops it."""
    if by_ms:
        site.ports.clock.jump_wall(by_ms)
    else:
        frozen_ms = site.ports.clock.now_ms()
        site.ports.clock.now_ms = lambda: frozen_ms  # type: ignore[method-assign]


@JUMPS
def test_clock_changes_neither_last_records_nor_their_offsets(by_ms: float) -> None:
    site = LogSite().start()
    log = _create(site)
    put(site, log, b"gone", b"value")
    put(site, log, b"gone", None)
    _fill(site, log)
    compact(site)
    _jump(site, by_ms)
    for _ in range(3):
        _fill(site, log)
        expected = latest(log)
        compact(site)
        assert latest(log) == expected
        assert b"gone" not in expected
        site.ports.advance(COMPACT.delete_retention_ms)
    remaining = latest(log)
    site = site.kill()
    assert latest(site.log()) == remaining
    assert not [line for line in site.reports if "lost" in line]


def test_clock_that_goes_back_keeps_tombstones_longer() -> None:
    """A tombstone is kept until the wall clock has passed the time that was set for it."""
    site = LogSite().start()
    log = site.create("t-0", COMPACT)
    put(site, log, b"k", b"value")
    put(site, log, b"k", None)
    _fill(site, log)
    compact(site)
    _jump(site, -DAY_MS)
    for wait_ms, is_kept in ((COMPACT.delete_retention_ms + 1000, True), (DAY_MS, False)):
        site.ports.advance(wait_ms)
        _fill(site, log)
        compact(site)
        assert bool([one for one in stored(log) if one.key == b"k"]) == is_kept


@JUMPS
def test_failed_compaction_is_retried_after_a_minute_whatever_the_clock_shows(
    by_ms: float,
) -> None:
    site = LogSite().start()
    log = _create(site)
    site.files.fail_when(lambda one: one.path.endswith(".cleaned"), 28)
    compact(site)
    assert list(site.manager.cleaner.uncleanable) == [log]
    site.files.fail_no_more()
    _jump(site, by_ms)
    site.ports.advance(RETRY_MS - 1000)
    assert not compact(site)
    site.ports.advance(1000)
    assert compact(site)
    assert len(stored(log)) < 15


# -- producers and transactions ---------------------------------------------------------------


def _lives(site: LogSite) -> list[Callable[[], LogSite]]:
    def kill_without_snapshots() -> LogSite:
        for offset in site.listing(site.log(), file_names.SNAPSHOT_SUFFIX):
            site.files.unlink(site.path(site.log(), offset, file_names.SNAPSHOT_SUFFIX))
        site.forget(file_names.RECOVERY_POINT_CHECKPOINT)
        return site.kill()

    return [site.restart, site.kill, lambda: site.crash(1), kill_without_snapshots]


@pytest.mark.parametrize("number", range(4))
def test_producer_whose_records_were_compacted_continues(number: int) -> None:
    """F31: an empty batch keeps the producer's last sequence number, also without a snapshot."""
    site = LogSite().start()
    log = site.create("t-0", COMPACT)
    identity = {"producer_id": 7, "producer_epoch": 2}
    put(site, log, b"k", b"1", base_sequence=0, **identity)
    last = put(site, log, b"k", b"2", base_sequence=1, **identity)
    put(site, log, b"k", b"3")
    for _ in range(3):
        _fill(site, log)
        site.ports.advance(COMPACT.delete_retention_ms)
        assert compact(site)
    assert last not in [one.offset for one in stored(log)]
    site = _lives(site)[number]()
    log = site.log()
    assert put(site, log, b"k", b"2", base_sequence=1, **identity) == last
    with pytest.raises(OutOfOrderSequenceNumber):
        put(site, log, b"k", b"4", base_sequence=3, **identity)
    assert put(site, log, b"k", b"4", base_sequence=2, **identity) > last


@pytest.mark.parametrize("number", range(4))
def test_open_transaction_and_markers_survive_compaction_and_restart(number: int) -> None:
    """F35: nothing from the last stable offset on changes; a marker is kept for its time."""
    site = LogSite().start()
    log = site.create("t-0", COMPACT)
    for producer_id in (1, 2, 3):
        for sequence in range(2):
            key = b"k%d" % producer_id
            put(
                site,
                log,
                key,
                b"%d" % sequence,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
        if producer_id < 3:
            end_transaction(site, log, producer_id, commit=producer_id == 2)
    site.settle()
    first_undecided = log.last_stable_offset
    assert first_undecided == 6
    _fill(site, log, 24)
    undecided = [one for one in stored(log) if one.offset >= first_undecided]
    compact(site)
    site = _lives(site)[number]()
    log = site.log()
    assert log.last_stable_offset == first_undecided
    assert [one for one in stored(log) if one.offset >= first_undecided] == undecided
    committed = latest(log, read_committed=True)
    assert list(committed) == [b"k2"]
    assert committed[b"k2"].value == b"1"

    end_transaction(site, log, 3, commit=False)
    _fill(site, log)
    assert compact(site)
    read = latest(log, read_committed=True)
    assert read[b"k2"] == committed[b"k2"]
    assert b"k1" not in read
    assert b"k3" not in read
    assert len(_markers(log)) == 3, "for delete.retention.ms"
    # The last batch of a producer, without its records, keeps its marker until it expires.
    for _ in range(2):
        site.settle(site.manager.expire_producers(site.ports.clock.monotonic_ms()))
        site.ports.advance(DAY_MS + 1)
    for _ in range(3):
        site.ports.advance(COMPACT.delete_retention_ms + 1)
        _fill(site, log)
        assert compact(site)
    assert latest(log, read_committed=True)[b"k2"] == committed[b"k2"]
    assert _markers(log) == [5], "only that of the transaction whose record remains"


def _markers(log: Log) -> list[int]:
    """Return the offsets of the control batches that have a record."""
    found = []
    for segment in log.segments:
        content = segment.records.read(0, segment.size_bytes)
        for _, header in iter_batches(content):
            if header.is_control and header.records_count:
                found.append(header.base_offset)
    return found


# -- policies ---------------------------------------------------------------------------------


def test_policy_changes_at_any_step_of_a_compaction_and_back() -> None:
    """Delete, then compact, then delete, with a kill after each change."""
    number = 0
    while True:
        site = LogSite().start()
        log = site.create("t-0", DELETE)
        for count in range(30):
            put(site, log, b"k%d" % (count % 3), b"%d" % count)
        site.settle()
        assert not compact(site)
        log.config = COMPACT
        expected = latest(log)
        steps = step_compaction(site)
        if sum(1 for _ in zip(range(number), steps, strict=False)) < number:
            break
        number += 1
        log.config = DELETE
        site.settle()
        assert latest(log) == expected
        site.topics[log.topic_partition] = (log.topic_id, DELETE)
        site = site.kill()
        log = site.log()
        assert latest(log) == expected
        assert not [line for line in site.reports if "lost" in line or "cannot read" in line]
        assert not compact(site)
        # Retention applies to the segments as they are.
        log.config = replace(DELETE, retention_bytes=0)
        log.apply_retention(site.ports.clock.now_ms())
        site.ports.advance(DELETE.file_delete_delay_ms)
        site.settle()
        assert len(base_offsets(log)) == 1
        kept = {key: one for key, one in expected.items() if one.offset >= log.log_start_offset}
        assert latest(log) == kept
        site = site.kill()
        assert latest(site.log()) == kept
    assert number > 12


# -- contents ---------------------------------------------------------------------------------


def test_batch_with_too_many_keys_for_the_buffer_is_named_and_other_logs_are_compacted() -> None:
    site = LogSite(log_cleaner_dedupe_buffer_size=24 * 4).start()
    log, other = site.create("t-0", COMPACT), _create(site, "u-0")
    records = [Record(timestamp=1, key=b"%d" % number, value=b"v") for number in range(50)]
    batch = memoryview(bytearray(build_batch(records)))
    log.append_as_leader(batch, leader_epoch=0, now_ms=site.ports.clock.now_ms())
    for _ in range(2):
        put(site, log, b"0", bytes(500))
    site.settle()
    expected = latest(log)
    while compact(site):
        assert len(site.manager.cleaner.uncleanable) <= 1
    assert list(site.manager.cleaner.uncleanable) == [log]
    [line] = [one for one in site.reports if one.startswith("compaction of t-0 failed")]
    assert "log.cleaner.dedupe.buffer.size=96" in line
    assert latest(log) == expected
    assert len(stored(other)) < 20
    # With a larger buffer, the next attempt succeeds.
    config = replace(site.config, log_cleaner_dedupe_buffer_size=1 << 20)
    site.manager.update_config(config)
    site.ports.advance(RETRY_MS)
    assert compact(site)
    assert site.manager.cleaner.uncleanable == {}
    assert latest(log) == expected


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_decompression_bomb_is_named_and_other_logs_are_compacted(
    codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plogd.log.compaction.log_cleaner._DECOMPRESSED_BYTES", 1 << 16)
    site = LogSite().start()
    log, other = site.create("t-0", COMPACT), _create(site, "u-0")
    bomb = build_batch([Record(timestamp=1, key=b"k", value=bytes(1 << 20))], compression=codec)
    assert len(bomb) < 5000
    log.config = replace(COMPACT, segment_bytes=1 << 20)
    log.append_as_follower(memoryview(bomb), leader_epoch=0, now_ms=site.ports.clock.now_ms())
    site.settle()
    log.roll()
    site.settle()
    while compact(site):
        pass
    assert list(site.manager.cleaner.uncleanable) == [log]
    assert [one for one in site.reports if one.startswith("compaction of t-0 failed")]
    assert len(stored(other)) < 20
    assert log.log_end_offset == 1


def test_table_for_a_segment_with_many_keys_does_not_exceed_the_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run ends where the buffer is full; the next one compacts the rest."""
    count, max_bytes = 20_000, 200_000
    log = CompactedLog(config=replace(COMPACT, segment_bytes=1 << 30))
    for start in range(0, count, 1000):
        log.append(*[(b"%d" % number, b"v") for number in range(start, start + 1000)])
    log.append(*[(b"%d" % number, b"w") for number in range(1000)])
    log.roll()
    maps: list[OffsetMap] = []

    def make(**bounds: Any) -> OffsetMap:
        maps.append(OffsetMap(**bounds))
        return maps[-1]

    monkeypatch.setattr("plogd.log.compaction.cleaning.OffsetMap", make)
    runs = 0
    while log.first_dirty_offset < log.end_offset:
        before = log.first_dirty_offset
        log.compact(max_map_bytes=max_bytes)
        assert log.first_dirty_offset > before
        runs += 1
    assert 2 <= runs < 10
    assert len(maps) == runs
    assert max(one.size_bytes for one in maps) <= max_bytes
    records = log.records()
    assert len(records) == count
    assert {one.value for one in records if int(one.key or b"0") < 1000} == {b"w"}
