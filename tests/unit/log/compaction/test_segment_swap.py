"""Compacted segments replace the old ones: crashes, readers and lookups during a swap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plog.records.batch import BatchHeader
from plogd.log.compaction import segment_swap
from plogd.log.compaction.cleaned_segment import CleanedSegment
from plogd.log.log import Log
from plogd.log.time_lookup import offset_for_timestamp
from plogd.os_files import OsFiles
from tests.helpers.log.compaction_site import (
    COMPACT,
    at_each_operation,
    batches,
    compact,
    end_transaction,
    latest,
    put,
    step_compaction,
    stored,
    unfinished_files,
)
from tests.helpers.log.log_data import client_batch
from tests.helpers.log.log_site import LogSite, base_offsets
from tests.helpers.sim.sim_files import SimCrash
from tests.helpers.steps import finished

SEGMENTS_THAT_FIT_TOGETHER = replace(COMPACT, segment_bytes=600)


def _new_site() -> tuple[LogSite, Log]:
    """Return a log with idempotent and transactional producers, in several segments and epochs."""
    site = LogSite().start()
    log = site.create("t-0", SEGMENTS_THAT_FIT_TOGETHER)
    sequences = {1: 0, 2: 0, 3: 0}

    def send(producer_id: int, key: bytes, value: bytes | None, **fields: bool) -> None:
        sequence = sequences[producer_id]
        sequences[producer_id] += 1
        put(
            site,
            log,
            key,
            value,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            **fields,
        )

    for number in range(4):
        site.epoch = number // 2
        key = b"k%d" % (number % 3)
        send(1, key, b"plain %d" % number)
        send(2, key, b"aborted %d" % number, is_transactional=True)
        send(3, b"t", b"committed %d" % number, is_transactional=True)
        end_transaction(site, log, 2, commit=False)
        end_transaction(site, log, 3, commit=True)
        if number == 2:
            send(1, b"gone", None)
    put(site, log, b"last", b"x" * 400)
    put(site, log, b"last", b"y" * 400)
    site.settle()
    site.write_checkpoints()
    return site, log


def _check(site: LogSite, log: Log, before: Facts, state: str) -> None:
    """Everything that must be true before, during and after a compaction."""
    assert latest(log, read_committed=True) == before.committed, state
    found = stored(log)
    assert set(found) <= before.records, state
    offsets = [one.offset for one in found]
    assert offsets == sorted(set(offsets)), state
    assert not [one for one in stored(log, read_committed=True) if b"aborted" in (one.value or b"")]
    assert log.leader_epochs.entries == before.epochs, state
    assert _producers(log) == before.producers, state
    assert log.log_end_offset == before.end_offset, state
    assert not [line for line in site.reports if "lost" in line or "damaged" in line], state


class Facts:
    """What a log contains before its compaction."""

    def __init__(self, log: Log) -> None:
        self.committed = latest(log, read_committed=True)
        self.records = set(stored(log))
        self.epochs = log.leader_epochs.entries
        self.producers = _producers(log)
        self.end_offset = log.log_end_offset


def _producers(log: Log) -> dict[int, tuple[int, int, int | None]]:
    return {
        one.producer_id: (one.producer_epoch, one.last_sequence, one.current_txn_first_offset)
        for one in log.producer_state.producers.values()
    }


# -- crashes ----------------------------------------------------------------------------------


def _crash_points(*, kill: bool) -> None:
    finished, number = False, 0
    while not finished:
        number += 1
        site, log = _new_site()
        before = Facts(log)
        site.files.crash_at(site.files.operations + number)
        try:
            compact(site)
            finished = True
        except SimCrash:
            pass
        state = f"operation {number}"
        site = site.kill() if kill else site.crash(number)
        log = site.log()
        _check(site, log, before, state)
        assert unfinished_files(site, log) == [], state
        compact(site)
        _check(site, log, before, f"{state}, compacted again")
        assert not [one for one in stored(log) if one.value == b"plain 0"], state
        site = site.crash(number)
        _check(site, site.log(), before, f"{state}, second crash")
        assert site.bugs == []
    assert number > 40


def test_kill_at_any_operation_loses_no_record() -> None:
    _crash_points(kill=True)


def test_power_loss_at_any_operation_loses_no_record() -> None:
    _crash_points(kill=False)


def test_compacted_log_is_loaded_after_a_clean_stop() -> None:
    site, log = _new_site()
    before = Facts(log)
    size_bytes = log.size_bytes
    assert compact(site)
    assert log.size_bytes < size_bytes * 0.8
    _check(site, log, before, "compacted")
    site = site.restart()
    _check(site, site.log(), before, "restarted")
    assert not compact(site)


def test_compaction_changes_no_remaining_batch_except_the_removed_records() -> None:
    site, log = _new_site()
    old = {header.base_offset: header for header, _ in batches(log)}
    compact(site)
    for header, _ in batches(log):
        before = old[header.base_offset]
        same = ("last_offset", "partition_leader_epoch", "producer_id", "producer_epoch")
        assert [getattr(header, name) for name in same] == [getattr(before, name) for name in same]
        assert header.base_sequence == before.base_sequence


def test_log_that_is_no_longer_compacted_reports_no_lost_records() -> None:
    for stop in (LogSite.kill, LogSite.restart):
        site, log = _new_site()
        compact(site)
        key = log.topic_partition
        topic_id, config = site.topics[key]
        site.topics[key] = (topic_id, replace(config, cleanup_policy=("delete",)))
        site = stop(site)
        assert not [line for line in site.reports if "lost" in line]


@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_unfinished_compaction_of_a_log_that_is_no_longer_compacted_is_no_loss(steps: int) -> None:
    site, log = _new_site()
    for _ in zip(range(steps), step_compaction(site), strict=False):
        pass
    key = log.topic_partition
    topic_id, config = site.topics[key]
    site.topics[key] = (topic_id, replace(config, cleanup_policy=("delete",)))
    site = site.kill()
    assert not [line for line in site.reports if "lost" in line]


# -- readers ----------------------------------------------------------------------------------


def test_log_is_the_same_at_each_operation_of_a_swap() -> None:
    site, log = _new_site()
    before = Facts(log)
    at_each_operation(site, lambda: _check(site, log, before, "during the compaction"))
    assert compact(site)


def test_reader_of_a_replaced_segment_finishes() -> None:
    site, log = _new_site()
    data = log.read(0, 10_000, end_offset=log.high_watermark)
    assert data.region is not None
    before = data.region.read()
    compact(site)
    assert data.region.read() == before
    data.region.close()


def test_time_lookup_finds_the_same_record_at_each_operation_of_a_swap() -> None:
    site, log = _new_site()
    last = latest(log)[b"last"]
    found = []
    at_each_operation(
        site, lambda: found.append(finished(offset_for_timestamp(log, last.timestamp)))
    )
    compact(site)
    assert len(found) > 40
    assert {one and one.offset for one in found} == {last.offset}
    assert [segment for segment in log.segments if segment.index_is_suspect] == []


def test_time_lookup_begun_before_a_swap_ends_after_it() -> None:
    site, log = _new_site()
    last = latest(log)[b"last"]
    steps = offset_for_timestamp(log, last.timestamp)
    compact(site)
    found = finished(steps)
    assert found is not None
    assert found.offset == last.offset


def test_replaced_segments_leave_no_open_file() -> None:
    site, log = _new_site()
    old = list(log.segments)
    compact(site)
    kept = set(log.segments)
    for segment in old:
        assert segment in kept or segment.records_file.is_closed  # type: ignore[attr-defined]


def test_small_segments_are_joined() -> None:
    site = LogSite().start()
    log = site.create("t-0", COMPACT)
    for number in range(60):
        put(site, log, b"k%d" % (number % 3), b"%d" % number)
    site.settle()
    count, expected = len(log.segments), latest(log)
    compact(site)
    for _ in range(12):
        put(site, log, b"last", b"z")
    site.settle()
    compact(site)
    assert len(log.segments) < count / 2
    assert site.listing(log) == base_offsets(log)
    assert site.listing(log, ".snapshot") == base_offsets(log)[1:]
    found = latest(log)
    assert {key: found[key] for key in expected} == expected


def test_records_stay_open_while_they_are_renamed(tmp_path: Path) -> None:
    """Otherwise, a read at this moment would reopen them by their old name, and fail."""

    class EvictingFiles(OsFiles):
        """Uses many other files after each rename, so that the pool closes what it can."""

        def rename(self, source: str, target: str) -> None:
            super().rename(source, target)
            for number in range(20):
                self.open_on_demand(f"{tmp_path}/other-{number}").append(b"x")
            if source.endswith(".log.swap"):
                found.append(new.records.header_at(0))

    found: list[BatchHeader | None] = []
    files, directory = EvictingFiles(), str(tmp_path)
    files.descriptors.set_limit(64, 1)
    cleaned = CleanedSegment(files, directory, 0, COMPACT)
    cleaned.append(client_batch(1))
    cleaned.finish([])
    new = segment_swap.commit(files, directory, 0, COMPACT)
    segment_swap.complete(files, directory, [], new)
    [header] = found
    assert header is not None
    assert new.records.header_at(0) == header
    new.close()
