"""The cleaner chooses the log to compact, and obeys its settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plog.records.builder import build_batch
from plog.records.codec import Record
from plogd.config import BrokerConfig
from plogd.log.log import Log
from tests.helpers.log.compaction_site import (
    COMPACT,
    checkpointed_offset,
    compact,
    latest,
    put,
    stored,
)
from tests.helpers.log.log_site import CONFIG, LogSite

HALF = replace(COMPACT, min_cleanable_dirty_ratio=0.5)
LAG_MS = 60_000


def _create(site: LogSite, name: str, count: int = 20, config: Any = COMPACT) -> Log:
    log = site.create(name, config)
    _fill(site, log, count)
    return log


def _fill(site: LogSite, log: Log, count: int) -> None:
    """Append records with three keys in turn, six of which fit into a segment."""
    for _ in range(count):
        offset = log.log_end_offset
        put(site, log, b"k%d" % (offset % 3), b"%d" % offset)
    site.settle()


def _compacted(site: LogSite) -> list[str]:
    """Return the logs that the cleaner compacts, in order, until none is left."""
    before = len(site.reports)
    while compact(site):
        pass
    lines = [line for line in site.reports[before:] if line.startswith("compacted ")]
    return [line.split()[1] for line in lines]


def _offsets(log: Log) -> list[int]:
    return [one.offset for one in stored(log)]


# -- the choice of the log --------------------------------------------------------------------


def test_only_compacted_logs_are_chosen() -> None:
    site = LogSite().start()
    _create(site, "a-0", config=CONFIG)
    _create(site, "b-0", config=COMPACT)
    _create(site, "c-0", config=replace(COMPACT, cleanup_policy=("compact", "delete")))
    assert sorted(_compacted(site)) == ["b-0", "c-0"]
    assert _compacted(site) == []


def test_log_with_the_largest_dirty_share_is_first() -> None:
    site = LogSite().start()
    logs = {name: _create(site, name) for name in ("a-0", "b-0", "c-0")}
    _compacted(site)
    for name, count in (("a-0", 12), ("b-0", 36), ("c-0", 24)):
        _fill(site, logs[name], count)
    assert _compacted(site) == ["b-0", "c-0", "a-0"]


def test_log_waits_until_its_dirty_share_is_large_enough() -> None:
    site = LogSite().start()
    log = site.create("t-0", HALF)
    for number in range(40):
        put(site, log, b"%d" % number, b"value")
    site.settle()
    assert _compacted(site) == ["t-0"]
    for number in range(20):
        put(site, log, b"%d" % number, b"value")
    site.settle()
    assert _compacted(site) == []
    for number in range(30):
        put(site, log, b"%d" % number, b"value")
    site.settle()
    assert _compacted(site) == ["t-0"]


def test_log_without_a_sealed_segment_is_left_alone() -> None:
    site = LogSite().start()
    log = _create(site, "t-0", 3)
    assert len(log.segments) == 1
    assert not compact(site)
    assert _offsets(log) == [0, 1, 2]


def test_old_records_are_compacted_whatever_their_share() -> None:
    site = LogSite().start()
    config = replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=LAG_MS)
    _create(site, "t-0", config=config)
    assert not compact(site)
    site.ports.advance(LAG_MS - 1000)
    assert not compact(site)
    site.ports.advance(2000)
    assert _compacted(site) == ["t-0"]


def test_active_segment_is_compacted_after_the_lag_once_a_record_follows() -> None:
    """As in Kafka, time alone does not roll a segment."""
    site = LogSite().start()
    config = replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=LAG_MS)
    log = _create(site, "t-0", 3, config)
    put(site, log, b"k0", b"new")
    site.ports.advance(LAG_MS + 1000)
    assert not compact(site)
    assert len(log.segments) == 1
    put(site, log, b"k1", b"new")
    site.settle()
    assert _compacted(site) == ["t-0"]
    assert _offsets(log) == [1, 2, 3, 4]


def test_young_records_are_kept() -> None:
    site = LogSite().start()
    log = _create(site, "t-0", 30, replace(COMPACT, min_compaction_lag_ms=LAG_MS))
    assert not compact(site)
    site.ports.advance(LAG_MS + 1000)
    _fill(site, log, 10)
    young = [one for one in _offsets(log) if one >= 30]
    assert compact(site)
    assert [one for one in _offsets(log) if one >= 30] == young
    assert len(_offsets(log)) < 25


def test_records_above_the_high_watermark_are_kept() -> None:
    site = LogSite().start()
    site.leads = False
    log = _create(site, "t-0", 40)
    log.high_watermark = 20
    assert compact(site)
    assert (checkpointed_offset(site, log) or 99) <= 20
    log.high_watermark = 40
    assert _offsets(log)[-20:] == list(range(20, 40))


def test_records_after_the_begin_of_an_open_transaction_are_kept() -> None:
    site = LogSite().start()
    log = _create(site, "t-0", 20)
    put(
        site,
        log,
        b"k0",
        b"open",
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    _fill(site, log, 20)
    assert log.last_stable_offset == 20
    assert compact(site)
    assert _offsets(log)[-21:] == list(range(20, 41))


def test_next_compaction_begins_where_the_last_one_ended() -> None:
    site = LogSite().start()
    log = _create(site, "t-0", 30)
    assert compact(site)
    end = checkpointed_offset(site, log)
    assert end == log.segments.active.base_offset
    site = site.kill()
    assert checkpointed_offset(site, site.log()) == end
    assert not compact(site)


def test_new_topic_with_the_name_of_a_deleted_one_is_compacted_from_its_start() -> None:
    site = LogSite().start()
    _create(site, "t-0", 30)
    compact(site)
    site.delete("t-0")
    log = _create(site, "t-0", 40)
    assert checkpointed_offset(site, log) is None
    assert compact(site)
    assert len(_offsets(log)) < 12


def test_log_with_damage_is_not_compacted() -> None:
    site = LogSite().start()
    log = _create(site, "t-0", 30)
    site.flip(site.path(log, 0), 100)
    site.forget("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
    site = site.kill()
    assert site.log().segments.first.corrupt_ranges
    assert not compact(site)


# -- tombstones -------------------------------------------------------------------------------


def test_tombstone_stays_for_delete_retention_ms_after_its_first_compaction() -> None:
    site = LogSite().start()
    log = site.create("t-0", COMPACT)
    put(site, log, b"k0", b"value")
    put(site, log, b"k0", None)
    _fill_others(site, log)
    site.ports.advance(1_000_000)
    compact(site)
    assert [one.value for one in stored(log) if one.key == b"k0"] == [None]
    site.ports.advance(9_000)
    _fill_others(site, log)
    assert compact(site)
    assert [one.value for one in stored(log) if one.key == b"k0"] == [None]
    site.ports.advance(2_000)
    _fill_others(site, log)
    assert compact(site)
    assert [one for one in stored(log) if one.key == b"k0"] == []


def _fill_others(site: LogSite, log: Log) -> None:
    for number in range(12):
        put(site, log, b"other %d" % (number % 2), b"value")
    site.settle()


# -- settings ---------------------------------------------------------------------------------


def test_disabled_cleaner_compacts_nothing() -> None:
    site = LogSite(log_cleaner_enable=False).start()
    log = _create(site, "t-0")
    assert not compact(site)
    site.manager.update_config(replace(site.config, log_cleaner_enable=True))
    assert compact(site)
    assert len(_offsets(log)) < 12


def _update(site: LogSite, **settings: Any) -> BrokerConfig:
    config = replace(site.config, **settings)
    site.manager.update_config(config)
    return config


def test_rate_is_limited() -> None:
    site = LogSite(log_cleaner_io_max_bytes_per_second=100.0).start()
    log = _create(site, "t-0", 40)
    size_bytes = log.size_bytes
    later = site.manager.cleaner.run()
    site.settle()
    assert not later.done
    # The log is read once for its keys; it is then read again and partly written.
    site.ports.advance(size_bytes / 100 * 1000 * 0.9)
    assert not later.done
    site.ports.advance(size_bytes / 100 * 1000 * 3)
    assert later.done
    assert len(_offsets(log)) < 12


def test_cleaner_looks_for_work_after_its_backoff() -> None:
    site = LogSite(log_cleaner_backoff_ms=5000).start()
    log = _create(site, "t-0", 20)
    site.manager.cleaner.start()
    site.ports.advance(4000)
    assert len(_offsets(log)) == 20
    site.ports.advance(2000)
    assert len(_offsets(log)) < 12
    _fill(site, log, 20)
    site.ports.advance(6000)
    assert len(_offsets(log)) < 12


def test_full_key_table_leaves_the_rest_for_the_next_compaction() -> None:
    site = LogSite(log_cleaner_dedupe_buffer_size=24 * 8).start()
    log = site.create("t-0", COMPACT)
    for number in range(60):
        put(site, log, b"%d" % (number % 15), b"%d" % number)
    site.settle()
    expected = latest(log)
    runs = 0
    while compact(site):
        runs += 1
        assert latest(log) == expected
        assert runs < 60
    assert runs > 2
    assert checkpointed_offset(site, log) == log.segments.active.base_offset


def test_records_of_a_batch_are_removed_one_by_one() -> None:
    site = LogSite().start()
    log = site.create("t-0", COMPACT)
    records = [Record(timestamp=1, key=b"k%d" % number, value=b"v") for number in range(5)]
    batch = memoryview(bytearray(build_batch(records)))
    log.append_as_leader(batch, leader_epoch=0, now_ms=site.ports.clock.now_ms())
    _fill(site, log, 12)
    compact(site)
    assert [one for one in _offsets(log) if one < 5] == [3, 4]


@pytest.mark.parametrize("count", [0, 1, 6, 7, 13])
def test_compaction_of_any_number_of_records_keeps_the_last_ones(count: int) -> None:
    site = LogSite().start()
    log = _create(site, "t-0", count)
    expected = latest(log)
    compact(site)
    assert latest(log) == expected
    assert latest(site.kill().log()) == expected


def test_removed_records_without_a_key_are_reported() -> None:
    site = LogSite().start()
    log = site.create("t-0", replace(COMPACT, cleanup_policy=("delete",)))
    put(site, log, None, b"first")
    put(site, log, None, b"second")
    log.config = COMPACT
    for number in range(20):
        put(site, log, b"k%d" % (number % 3), b"v" * 50)
    site.settle()
    compact(site)
    assert [text for text in site.reports if "without a key" in text] == [
        "compaction removed 2 records without a key from t-0; they were written before"
        " cleanup.policy contained compact"
    ]
