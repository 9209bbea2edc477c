"""Each rule for what remains of a batch."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from plog.records.batch import (
    BatchHeader,
    Compression,
    CorruptRecords,
    TimestampType,
    crc_is_valid,
    parse_header,
)
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType
from plog.records.offset_map import OffsetMap
from plog.records.reader import read_records
from plogd.log.compaction.batch_filter import NO_DATA_OFFSET, BatchFilter, LastRecord
from plogd.log.compaction.cleaned_transactions import CleanedTransactions
from plogd.log.segment.transaction_index import AbortedTransaction
from tests.helpers.log.log_data import T0, marker_batch

NOW = T0 + 1_000_000
RETENTION_MS = 60_000
HORIZON = NOW + RETENTION_MS
END = 1000
"""The end of the cleaned range; no batch ends there unless a test says so."""

every_codec = pytest.mark.parametrize("codec", list(Compression))


def _filter(
    latest: Mapping[bytes, int] | None = None,
    *,
    aborted: list[AbortedTransaction] | None = None,
    producers: Mapping[int, LastRecord] | None = None,
    latest_end: int = END,
    end_offset: int = END,
    now_ms: int = NOW,
    max_decompressed_bytes: int = 1 << 20,
) -> BatchFilter:
    offsets = OffsetMap(max_bytes=1 << 16, load_factor=0.9)
    for key, offset in (latest or {}).items():
        assert offsets.put(key, offset)
    return BatchFilter(
        offsets,
        CleanedTransactions(aborted or []),
        producers or {},
        latest_end=latest_end,
        end_offset=end_offset,
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
        max_decompressed_bytes=max_decompressed_bytes,
    )


def _batch(*records: Record, base_offset: int | None = None, **fields: object) -> bytes:
    """Return a batch with these records, which have offsets."""
    base = records[0].offset if base_offset is None else base_offset
    return build_batch(records, base_offset=base, **fields)  # type: ignore[arg-type]


def _record(
    offset: int, key: bytes | None, value: bytes | None = b"v", timestamp: int = T0
) -> Record:
    return Record(offset, timestamp + offset, key, value, (("h", b"%d" % offset), ("n", None)))


def _run(batch_filter: BatchFilter, batch: bytes) -> bytes | None:
    """Return what remains of a batch, which must be consistent."""
    kept = batch_filter.filter(batch, parse_header(batch))
    if kept is None:
        return None
    header = parse_header(kept)
    assert header.size_bytes == len(kept)
    assert crc_is_valid(kept, 0, header)
    return batch if kept is batch else bytes(kept)


def _records(batch: bytes | None) -> list[Record]:
    assert batch is not None
    return read_records(batch, 0, parse_header(batch))


def _stable(header: BatchHeader) -> tuple[int, ...]:
    """Return the fields that compaction never changes."""
    return (
        header.base_offset, header.last_offset, header.partition_leader_epoch, header.magic,
        header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional,
        header.is_control, header.timestamp_type,
    )  # fmt: skip


# -- records --------------------------------------------------------------------------------------


@every_codec
def test_last_record_of_each_key_remains_unchanged(codec: Compression) -> None:
    records = [_record(number, b"k%d" % (number % 3)) for number in range(10, 19)]
    batch = _batch(
        *records,
        compression=codec,
        partition_leader_epoch=7,
        producer_id=5,
        producer_epoch=2,
        base_sequence=40,
    )
    kept = _run(_filter({b"k0": 18, b"k1": 16, b"k2": 90}), batch)
    assert _records(kept) == [records[6], records[8]]
    assert kept is not None
    before, after = parse_header(batch), parse_header(kept)
    assert _stable(after) == _stable(before)
    assert after.compression is codec
    assert after.delete_horizon_ms is None
    assert after.last_sequence == before.last_sequence
    assert after.max_timestamp == T0 + 18


@every_codec
def test_batch_whose_records_all_remain_is_the_same_object(codec: Compression) -> None:
    batch = _batch(_record(3, b"a"), _record(4, b"b"), compression=codec)
    assert _run(_filter({b"a": 3, b"b": 4}), batch) is batch
    assert _run(_filter(), batch) is batch, "keys of the clean part need not be in the map"


def test_batch_without_remaining_records_is_removed() -> None:
    batch = _batch(_record(3, b"a"), _record(4, b"a"))
    assert _run(_filter({b"a": 5}), batch) is None


def test_equal_keys_in_one_batch_leave_the_last() -> None:
    records = [_record(3, b"a"), _record(4, b"a"), _record(5, b"a")]
    assert _records(_run(_filter({b"a": 5}), _batch(*records))) == records[2:]


def test_empty_key_is_a_key() -> None:
    batch = _batch(_record(3, b""), _record(4, b""))
    assert _records(_run(_filter({b"": 4}), batch)) == [_record(4, b"")]


def test_empty_value_is_not_a_tombstone() -> None:
    batch = _batch(_record(3, b"a", b""))
    assert _run(_filter({b"a": 3}), batch) is batch


def test_records_without_a_key_are_removed_and_counted() -> None:
    batch_filter = _filter({b"a": 4})
    batch = _batch(_record(3, None), _record(4, b"a"), _record(5, None))
    assert _records(_run(batch_filter, batch)) == [_record(4, b"a")]
    assert _run(batch_filter, _batch(_record(6, None))) is None
    assert batch_filter.keyless_records == 3


def test_records_after_the_noted_part_remain() -> None:
    """They include records without a key, and older records of a noted key."""
    batch = _batch(_record(8, b"a"), _record(9, None), _record(10, None), _record(11, b"a"))
    kept = _run(_filter({b"a": 50}, latest_end=10), batch)
    assert _records(kept) == [_record(10, None), _record(11, b"a")]


def test_batch_that_was_compacted_before_is_compacted_again() -> None:
    records = [_record(number, b"k%d" % number) for number in range(10, 16)]
    batch = _batch(*records)
    once = _run(_filter({b"k10": 100, b"k15": 100, b"k12": 100}), batch)
    assert once is not None
    twice = _run(_filter({b"k11": 200}), once)
    assert _records(twice) == [records[3], records[4]]
    assert twice is not None
    assert _stable(parse_header(twice)) == _stable(parse_header(batch))
    assert _run(_filter({b"k13": 300, b"k14": 300}), twice) is None


# -- timestamps -----------------------------------------------------------------------------------


@every_codec
def test_records_with_append_time_keep_it(codec: Compression) -> None:
    records = [_record(3, b"a"), _record(4, b"b"), _record(5, b"c")]
    batch = _batch(*records, compression=codec, timestamp_type=TimestampType.LOG_APPEND_TIME)
    kept = _run(_filter({b"c": 9, b"a": 9}), batch)
    assert kept is not None
    header = parse_header(kept)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == T0 + 5, "the largest timestamp is that of every record"
    assert _records(kept) == [records[1]._replace(timestamp=T0 + 5)]


def test_tombstone_with_append_time_keeps_it() -> None:
    batch = _batch(
        _record(3, b"a", None), _record(4, b"b"), timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    kept = _run(_filter({b"a": 3, b"b": 4}), batch)
    assert kept is not None
    assert parse_header(kept).delete_horizon_ms == HORIZON
    assert [one.timestamp for one in _records(kept)] == [T0 + 4, T0 + 4]
    assert parse_header(kept).max_timestamp == T0 + 4


def test_maximum_timestamp_is_that_of_the_remaining_records() -> None:
    late = _record(3, b"a")._replace(timestamp=T0 + 500)
    kept = _run(_filter({b"a": 9}), _batch(late, _record(4, b"b"), _record(5, b"c")))
    assert kept is not None
    assert parse_header(kept).max_timestamp == T0 + 5


def test_records_without_a_timestamp_have_none_afterwards() -> None:
    bare = [Record(offset, -1, b"k%d" % offset, None) for offset in (3, 4)]
    kept = _run(_filter({b"k3": 9, b"k4": 4}), _batch(*bare))
    assert kept is not None
    header = parse_header(kept)
    assert (header.base_timestamp, header.max_timestamp) == (HORIZON, -1)
    assert _records(kept) == [bare[1]]
    again = _run(_filter(now_ms=HORIZON - 1), kept)
    assert again is kept


def test_timestamps_far_from_the_horizon_are_kept() -> None:
    times = (0, 2**62, T0, 2**63 - 1)
    records = [Record(n, time, b"k%d" % n, None) for n, time in enumerate(times)]
    assert _records(_run(_filter(), _batch(*records))) == records


# -- tombstones -----------------------------------------------------------------------------------


@every_codec
def test_tombstone_gets_a_horizon_when_it_is_first_compacted(codec: Compression) -> None:
    records = [_record(3, b"a", None), _record(4, b"b")]
    kept = _run(_filter({b"a": 3, b"b": 4}), _batch(*records, compression=codec))
    assert kept is not None
    header = parse_header(kept)
    assert header.delete_horizon_ms == HORIZON
    assert header.compression is codec
    assert header.max_timestamp == T0 + 4
    assert _records(kept) == records


@every_codec
def test_horizon_is_set_once_and_ends_the_tombstone_at_its_millisecond(codec: Compression) -> None:
    records = [_record(3, b"a", None), _record(4, b"b")]
    batch = _run(_filter(), _batch(*records, compression=codec))
    assert batch is not None
    for now_ms in (NOW, NOW + 1, HORIZON - 1):
        assert _run(_filter(now_ms=now_ms), batch) is batch
    for now_ms in (HORIZON, HORIZON + 1):
        kept = _run(_filter(now_ms=now_ms), batch)
        assert _records(kept) == records[1:]
        assert kept is not None
        assert parse_header(kept).delete_horizon_ms == HORIZON


def test_horizon_stays_when_another_record_is_removed() -> None:
    records = [_record(3, b"a", None), _record(4, b"b")]
    batch = _run(_filter(), _batch(*records))
    assert batch is not None
    kept = _run(_filter({b"b": 9}, now_ms=NOW + 7), batch)
    assert kept is not None
    assert parse_header(kept).delete_horizon_ms == HORIZON
    assert _records(kept) == records[:1]
    assert _run(_filter(now_ms=HORIZON), kept) is None


def test_outdated_tombstone_is_removed_before_its_horizon() -> None:
    batch = _batch(_record(3, b"a", None), _record(4, b"b"))
    kept = _run(_filter({b"a": 9}), batch)
    assert kept is not None
    assert parse_header(kept).delete_horizon_ms is None, "no tombstone needs it"
    assert _records(kept) == [_record(4, b"b")]


def test_tombstone_after_the_noted_part_gets_a_horizon_and_outlives_it() -> None:
    batch = _run(_filter(latest_end=2), _batch(_record(3, b"a", None)))
    assert batch is not None
    assert parse_header(batch).delete_horizon_ms == HORIZON
    assert _run(_filter(latest_end=2, now_ms=HORIZON), batch) is batch
    assert _run(_filter({b"a": 3}, latest_end=4, now_ms=HORIZON), batch) is None


# -- transactions ---------------------------------------------------------------------------------

TRANSACTION = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 0, "is_transactional": True}


def test_aborted_records_are_removed_even_if_they_are_the_last_of_their_key() -> None:
    aborted = [AbortedTransaction(7, 3, 5, 6)]
    batch = _batch(_record(3, b"a"), _record(4, b"b"), **TRANSACTION)
    assert _run(_filter({b"a": 3}, aborted=aborted), batch) is None
    assert _run(_filter({b"a": 3}, aborted=aborted, latest_end=1), batch) is None


def test_damaged_records_of_an_aborted_transaction_are_not_read() -> None:
    batch = bytearray(_batch(_record(3, b"a"), **TRANSACTION))
    batch[-8:] = b"\xff" * 8
    aborted = [AbortedTransaction(7, 3, 5, 6)]
    assert _filter(aborted=aborted).filter(batch, parse_header(batch)) is None


def test_marker_remains_while_a_batch_of_its_transaction_was_read() -> None:
    batch_filter = _filter({b"a": 90})
    assert _run(batch_filter, _batch(_record(3, b"a"), **TRANSACTION)) is None
    marker = marker_batch(4, epoch=3)
    assert _run(batch_filter, marker) is marker


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
@every_codec
def test_unused_marker_gets_a_horizon_and_is_removed_at_its_millisecond(
    kind: ControlType, codec: Compression
) -> None:
    marker = marker_batch(4, kind, epoch=3, compression=codec)
    noted = _run(_filter(), marker)
    assert noted is not None
    header = parse_header(noted)
    assert _stable(header) == _stable(parse_header(marker))
    assert (header.delete_horizon_ms, header.max_timestamp) == (HORIZON, T0)
    assert header.compression is codec
    assert _records(noted) == _records(marker)
    assert _run(_filter(now_ms=HORIZON - 1), noted) is noted
    assert _run(_filter(now_ms=HORIZON), noted) is None


def test_marker_with_a_horizon_remains_if_a_batch_was_read() -> None:
    """A later transaction must not lose its marker."""
    noted = _run(_filter(), marker_batch(4))
    assert noted is not None
    batch_filter = _filter(now_ms=HORIZON)
    _run(batch_filter, _batch(_record(3, b"a"), **TRANSACTION))
    assert _run(batch_filter, noted) is noted


def test_unused_marker_after_the_noted_part_gets_a_horizon() -> None:
    noted = _run(_filter(latest_end=0), marker_batch(4))
    assert noted is not None
    assert parse_header(noted).delete_horizon_ms == HORIZON


def test_other_control_records_remain() -> None:
    batch = marker_batch(4, ControlType.LEADER_CHANGE, value=b"")
    assert _run(_filter(), batch) is batch
    assert _run(_filter(now_ms=HORIZON * 2), batch) is batch


# -- batches without records ----------------------------------------------------------------------


def _assert_emptied(kept: bytes | None, batch: bytes) -> None:
    assert kept is not None
    before, after = parse_header(batch), parse_header(kept)
    assert _stable(after) == _stable(before)
    assert after.last_sequence == before.last_sequence
    assert after.max_timestamp == before.max_timestamp
    assert (after.records_count, len(kept), after.base_timestamp) == (0, 61, -1)
    assert (after.compression, after.delete_horizon_ms) == (Compression.NONE, None)


@every_codec
def test_last_batch_of_an_active_producer_remains_without_records(codec: Compression) -> None:
    fields = {"producer_id": 5, "producer_epoch": 2, "base_sequence": 40}
    batch = _batch(_record(3, b"a"), _record(4, b"a"), compression=codec, **fields)
    last = {5: LastRecord(2, 4)}
    kept = _run(_filter({b"a": 9}, producers=last), batch)
    _assert_emptied(kept, batch)
    assert kept is not None
    assert _run(_filter({b"a": 9}, producers=last), kept) is kept
    assert _run(_filter({b"a": 9}, producers={5: LastRecord(2, 30)}), kept) is None
    assert _run(_filter({b"a": 9}), kept) is None, "the producer is not active anymore"


@every_codec
def test_last_batch_of_the_range_remains_without_records(codec: Compression) -> None:
    batch = _batch(_record(3, b"a"), _record(4, b"a"), compression=codec)
    kept = _run(_filter({b"a": 9}, end_offset=5), batch)
    _assert_emptied(kept, batch)
    assert kept is not None
    assert _run(_filter(end_offset=5), kept) is kept
    assert _run(_filter(end_offset=6), kept) is None


def test_aborted_last_batch_of_a_producer_remains_without_records() -> None:
    batch = _batch(_record(3, b"a"), **TRANSACTION)
    aborted = [AbortedTransaction(7, 3, 5, 6)]
    batch_filter = _filter(aborted=aborted, producers={7: LastRecord(1, 3)})
    kept = _run(batch_filter, batch)
    _assert_emptied(kept, batch)
    marker = marker_batch(5, ControlType.ABORT)
    assert _run(batch_filter, marker) is marker
    assert batch_filter._transactions.take_kept() == aborted


def test_marker_remains_while_an_emptied_batch_of_its_transaction_remains() -> None:
    batch = _batch(_record(3, b"a"), **TRANSACTION)
    producers = {7: LastRecord(1, 3)}
    kept = _run(_filter({b"a": 9}, producers=producers), batch)
    assert kept is not None
    batch_filter = _filter(producers=producers, now_ms=HORIZON)
    assert _run(batch_filter, kept) is kept
    marker = marker_batch(4)
    assert _run(batch_filter, marker) is marker


def test_last_marker_of_a_producer_remains_without_its_record() -> None:
    """It has the last epoch of the producer, which fences older ones."""
    producers = {7: LastRecord(1, NO_DATA_OFFSET)}
    noted = _run(_filter(producers=producers), marker_batch(4))
    assert noted is not None
    kept = _run(_filter(producers=producers, now_ms=HORIZON), noted)
    assert kept is not None
    assert parse_header(kept).is_control
    _assert_emptied(kept, noted)
    assert _run(_filter(producers=producers, now_ms=HORIZON), kept) is kept
    assert _run(_filter(producers={7: LastRecord(2, NO_DATA_OFFSET)}), kept) is None
    assert _run(_filter(), kept) is None


def test_data_of_a_producer_whose_last_batch_was_a_marker_is_removed() -> None:
    batch = _batch(_record(3, b"a"), **TRANSACTION)
    producers = {7: LastRecord(1, NO_DATA_OFFSET)}
    assert _run(_filter({b"a": 9}, producers=producers), batch) is None


def test_batch_without_a_producer_is_not_the_last_of_one() -> None:
    batch = _batch(_record(3, b"a"))
    assert _run(_filter({b"a": 9}, producers={7: LastRecord(1, 3)}), batch) is None


def test_emptied_batch_with_append_time_keeps_the_time() -> None:
    batch = _batch(_record(3, b"a"), timestamp_type=TimestampType.LOG_APPEND_TIME)
    _assert_emptied(_run(_filter({b"a": 9}, end_offset=4), batch), batch)


def test_tombstone_whose_horizon_has_passed_leaves_an_empty_batch_without_a_horizon() -> None:
    noted = _run(_filter(end_offset=4), _batch(_record(3, b"a", None)))
    assert noted is not None
    _assert_emptied(_run(_filter(end_offset=4, now_ms=HORIZON), noted), noted)


# -- damage ---------------------------------------------------------------------------------------


def test_records_that_cannot_be_read_are_an_error() -> None:
    batch = bytearray(_batch(_record(3, b"a")))
    batch[-8:] = b"\xff" * 8
    with pytest.raises(CorruptRecords):
        _filter().filter(batch, parse_header(batch))


@pytest.mark.parametrize("codec", [one for one in Compression if one is not Compression.NONE])
def test_records_that_are_too_large_when_decompressed_are_an_error(codec: Compression) -> None:
    batch = _batch(_record(3, b"a", bytes(100_000)), compression=codec)
    with pytest.raises(CorruptRecords):
        _filter(max_decompressed_bytes=99_999).filter(batch, parse_header(batch))
