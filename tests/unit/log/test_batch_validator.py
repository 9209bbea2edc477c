"""The batches that a log accepts or refuses, with which error, and their conversion."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plog.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from plog.records.batch import (
    HEADER,
    HEADER_SIZE,
    BatchHeader,
    Compression,
    TimestampType,
    crc_is_valid,
    parse_header,
)
from plog.records.crc32c import crc32c
from plog.records.reader import read_records
from plogd.log.batch_validator import (
    MAX_WALKED_RECORDS,
    AppendOrigin,
    BatchRules,
    ValidatedBatch,
    validate_batch,
)
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_data import T0, client_batch

PLAIN = TopicConfig()
HOUR_MS = 3_600_000
CODECS = list(Compression)


def _validate(
    batch: memoryview,
    config: TopicConfig = PLAIN,
    *,
    now_ms: int = T0,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> ValidatedBatch:
    rules = BatchRules.of(config)
    validated = validate_batch(batch, rules=rules, now_ms=now_ms, origin=origin)
    assert crc_is_valid(validated.view, 0, validated.header)
    assert validated.header == parse_header(validated.view)
    assert len(validated.view) == validated.header.size_bytes
    assert validated.max_timestamp_offset_delta == validated.header.last_offset_delta
    return validated


def _with_header(batch: memoryview, **fields: int) -> memoryview:
    """Return the batch with other header fields and a matching checksum."""
    header = parse_header(batch)._replace(**fields)
    changed = bytearray(batch)
    HEADER.pack_into(changed, 0, *header)
    crc = crc32c(bytes(changed[21:]))
    HEADER.pack_into(changed, 0, *header._replace(crc=crc))
    return memoryview(changed)


# -- accepted unchanged -----------------------------------------------------------------------


@pytest.mark.parametrize("compression", CODECS)
def test_plain_batch_is_accepted_without_a_copy(compression: Compression) -> None:
    batch = client_batch(timestamps=[T0 - 5, T0 - 1, T0 - 3], compression=compression)
    before = bytes(batch)
    validated = _validate(batch)
    assert validated.view.obj is batch.obj
    assert bytes(batch) == before
    assert (validated.max_timestamp, validated.log_append_time_ms) == (T0 - 1, -1)
    assert validated.max_timestamp_offset_delta == 2


def test_records_without_timestamps_are_accepted() -> None:
    config = replace(PLAIN, message_timestamp_before_max_ms=HOUR_MS)
    assert _validate(client_batch(timestamp=-1), config).max_timestamp == -1
    assert _validate(client_batch(timestamps=[-1, T0]), config).max_timestamp == T0


def test_idempotent_batch_is_accepted() -> None:
    batch = client_batch(3, producer_id=5, producer_epoch=0, base_sequence=2**31 - 1)
    assert _validate(batch).header.last_sequence == 1


# -- refused ----------------------------------------------------------------------------------


def _refuse(
    error: type[KafkaError],
    batch: memoryview | bytes | bytearray,
    config: TopicConfig = PLAIN,
    *,
    now_ms: int = T0,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> None:
    data = memoryview(bytearray(batch))
    with pytest.raises(error) as caught:
        validate_batch(data, rules=BatchRules.of(config), now_ms=now_ms, origin=origin)
    assert caught.value.code is error.code


def test_empty_data_is_refused() -> None:
    _refuse(InvalidRecord, b"")


def test_truncated_batch_is_corrupt() -> None:
    batch = bytes(client_batch())
    for end in range(1, len(batch)):
        _refuse(CorruptMessage, batch[:end])


@settings(deadline=None)
@given(st.integers(0, len(client_batch(3)) * 8 - 1))
def test_flipped_bit_is_detected_outside_fields_that_the_broker_sets(bit: int) -> None:
    batch = client_batch(3)
    batch[bit // 8] ^= 1 << bit % 8
    if 12 <= bit // 8 < 16:
        _validate(batch)  # The broker sets the leader epoch.
    else:
        with pytest.raises(KafkaError):
            _validate(batch)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_refused_with_an_error_for_the_client(data: bytes) -> None:
    with pytest.raises(KafkaError):
        _validate(memoryview(bytearray(data)))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [17, 30, 100])
def test_old_message_formats_are_refused(magic: int, size: int) -> None:
    message = bytearray(size)
    message[16] = magic
    _refuse(UnsupportedForMessageFormat, message)


@pytest.mark.parametrize("magic", [3, -1])
def test_unknown_magic_is_corrupt(magic: int) -> None:
    _refuse(CorruptMessage, _with_header(client_batch(), magic=magic))


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1, -(2**31)])
def test_wrong_length_is_corrupt(length: int) -> None:
    _refuse(CorruptMessage, _with_header(client_batch(), batch_length=length))


def test_batch_above_max_message_bytes_is_refused_before_its_checksum() -> None:
    batch = client_batch(value=b"v" * 1000)
    _validate(batch, replace(PLAIN, max_message_bytes=len(batch)))
    batch[-1] ^= 1
    _refuse(MessageTooLarge, batch, replace(PLAIN, max_message_bytes=len(batch) - 1))


def test_two_batches_are_refused() -> None:
    _refuse(InvalidRecord, bytes(client_batch()) * 2)
    _refuse(InvalidRecord, bytes(client_batch()) + b"x")


@pytest.mark.parametrize(
    "fields",
    [
        {"base_offset": 1},
        {"base_offset": -1},
        {"records_count": 0},
        {"records_count": -1, "last_offset_delta": -2},
        {"records_count": 4},
        {"last_offset_delta": 3},
        {"records_count": 100, "last_offset_delta": 99},
        {"records_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
        {"attributes": 0x20},
        {"attributes": 0x40},
        {"producer_id": 5},
        {"producer_id": 5, "producer_epoch": 0},
        {"producer_id": 5, "base_sequence": 0},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": -2},
    ],
)
def test_inconsistent_headers_are_refused(fields: dict[str, int]) -> None:
    _refuse(InvalidRecord, _with_header(client_batch(3), **fields))


def test_records_without_bytes_are_refused() -> None:
    batch = client_batch()[:HEADER_SIZE]
    for attributes in (0, Compression.GZIP):
        _refuse(
            InvalidRecord,
            _with_header(batch, batch_length=HEADER_SIZE - 12, attributes=attributes),
        )


def test_log_append_time_of_a_client_is_refused() -> None:
    _refuse(InvalidTimestamp, _with_header(client_batch(), attributes=0x08))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_refused(codec: int) -> None:
    _refuse(UnsupportedCompressionType, _with_header(client_batch(), attributes=codec))


# -- time -------------------------------------------------------------------------------------


def test_timestamps_in_the_future_are_refused() -> None:
    config = replace(PLAIN, message_timestamp_after_max_ms=HOUR_MS)
    _validate(client_batch(timestamp=T0 + HOUR_MS), config)
    _refuse(InvalidTimestamp, client_batch(timestamp=T0 + HOUR_MS + 1), config)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("older", [[-HOUR_MS - 1], [0, -HOUR_MS - 1], [-HOUR_MS - 1, 0]])
def test_timestamps_in_the_past_are_refused_even_in_the_middle_of_a_batch(
    compression: Compression, older: list[int]
) -> None:
    config = replace(PLAIN, message_timestamp_before_max_ms=HOUR_MS)
    just_right = [T0 + max(step, -HOUR_MS) for step in older]
    _validate(client_batch(timestamps=just_right, compression=compression), config)
    too_old = client_batch(timestamps=[T0 + step for step in older], compression=compression)
    _refuse(InvalidTimestamp, too_old, config)


def test_records_are_not_read_without_a_lower_timestamp_bound() -> None:
    config = replace(PLAIN, message_timestamp_before_max_ms=T0)
    damaged = client_batch(3)
    damaged[-1] ^= 1  # With a matching checksum, only a walk would detect it.
    _validate(_with_header(damaged), config)


@pytest.mark.parametrize("compression", CODECS)
def test_log_append_time_applies_to_the_whole_batch(compression: Compression) -> None:
    config = replace(
        PLAIN,
        message_timestamp_type="LogAppendTime",
        message_timestamp_before_max_ms=1,
        message_timestamp_after_max_ms=1,
    )
    batch = client_batch(timestamps=[5, 10**15], compression=compression)
    validated = _validate(batch, config)
    assert (validated.max_timestamp, validated.log_append_time_ms) == (T0, T0)
    assert validated.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    records = read_records(validated.view, 0, validated.header)
    assert [record.timestamp for record in records] == [T0, T0]


# -- compacted topics -------------------------------------------------------------------------


@pytest.mark.parametrize("compression", CODECS)
def test_compacted_topic_requires_keys(compression: Compression) -> None:
    for policy in (("compact",), ("delete", "compact")):
        config = replace(PLAIN, cleanup_policy=policy)
        _validate(client_batch(3, compression=compression), config)
        _validate(client_batch(key=b"", compression=compression), config)
        _refuse(InvalidRecord, client_batch(3, key=None, compression=compression), config)


def test_compacted_topic_with_log_append_time_requires_keys() -> None:
    config = replace(PLAIN, cleanup_policy=("compact",), message_timestamp_type="LogAppendTime")
    _validate(client_batch(timestamp=5), config)
    _refuse(InvalidRecord, client_batch(key=None), config)


def test_unreadable_records_are_refused_when_they_must_be_read() -> None:
    config = replace(PLAIN, cleanup_policy=("compact",))
    for compression in CODECS:
        batch = client_batch(3, compression=compression)
        batch[-4:] = b"\xff\xff\xff\xff"
        with pytest.raises(CorruptMessage) as caught:
            _validate(_with_header(batch), config)
        assert caught.value.code == InvalidRecord.code


# -- another codec ----------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", CODECS)
def test_batch_is_recompressed_with_the_topics_codec(source: Compression, target: str) -> None:
    wanted = Compression.NONE if target == "uncompressed" else Compression[target.upper()]
    batch = client_batch(
        timestamps=[T0 - 9, T0 - 3, T0 - 5],
        value=b"v" * 200,
        compression=source,
        producer_id=5,
        producer_epoch=2,
        base_sequence=11,
        is_transactional=True,
    )
    before = parse_header(batch)
    validated = _validate(batch, replace(PLAIN, compression_type=target))
    header = validated.header
    assert header.compression is wanted
    assert not validated.view.readonly
    assert read_records(validated.view, 0, header) == read_records(batch, 0, before)

    def essence(of: BatchHeader) -> BatchHeader:
        return of._replace(batch_length=0, crc=0, attributes=of.attributes & ~7)

    assert essence(header) == essence(before)
    assert (source is wanted) == (validated.view.obj is batch.obj)


def test_batch_that_grows_too_large_in_another_codec_is_refused() -> None:
    batch = client_batch(value=b"v" * 5000, compression=Compression.ZSTD)
    config = replace(PLAIN, compression_type="uncompressed", max_message_bytes=1000)
    _refuse(MessageTooLarge, batch, config)


def test_recompression_and_log_append_time_can_be_combined() -> None:
    config = replace(PLAIN, compression_type="gzip", message_timestamp_type="LogAppendTime")
    validated = _validate(client_batch(timestamp=5), config)
    assert validated.header.compression is Compression.GZIP
    assert validated.max_timestamp == T0


LOOKED_INTO = {
    "keys": replace(PLAIN, cleanup_policy=("compact",)),
    "codec": replace(PLAIN, compression_type="lz4"),
    "age": replace(PLAIN, message_timestamp_before_max_ms=HOUR_MS),
}


@pytest.mark.parametrize("setting", LOOKED_INTO)
@pytest.mark.parametrize("compression", CODECS[1:])
def test_decompression_bomb_is_refused_when_it_must_be_read(
    setting: str, compression: Compression
) -> None:
    batch = client_batch(2, value=bytes(1 << 20), timestamp=T0, compression=compression)
    assert len(batch) < 100_000
    config = replace(LOOKED_INTO[setting], max_message_bytes=100_000)
    if setting == "codec":
        config = replace(config, compression_type="gzip" if compression != 1 else "lz4")
    tracemalloc.start()
    try:
        _refuse(MessageTooLarge, batch, config)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 16 * config.max_message_bytes
    _validate(batch, replace(config, max_message_bytes=(2 << 20) // 16 + 100))
    # The broker does not read this one.
    _validate(batch, replace(PLAIN, max_message_bytes=100_000))


def test_batch_of_too_many_records_is_refused_when_each_is_read() -> None:
    count = MAX_WALKED_RECORDS + 1
    batch = client_batch(2, compression=Compression.ZSTD)
    batch = _with_header(batch, records_count=count, last_offset_delta=count - 1)
    for config in LOOKED_INTO.values():
        _refuse(MessageTooLarge, batch, config)


# -- other origins ----------------------------------------------------------------------------


def test_brokers_own_writers_may_write_control_batches() -> None:
    batch = client_batch(producer_id=5, producer_epoch=0, is_control=True, is_transactional=True)
    config = replace(PLAIN, compression_type="gzip", cleanup_policy=("compact",))
    for origin in (AppendOrigin.COORDINATOR, AppendOrigin.RAFT_LEADER):
        validated = _validate(batch, config, origin=origin)
        assert validated.header.compression is Compression.NONE
    _refuse(InvalidRecord, batch, config)


def test_metadata_batches_may_be_of_any_size() -> None:
    config = replace(PLAIN, max_message_bytes=10)
    _validate(client_batch(), config, origin=AppendOrigin.RAFT_LEADER)
    _refuse(MessageTooLarge, client_batch(), config, origin=AppendOrigin.COORDINATOR)


# -- properties -------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.integers(1, 5),
    st.sampled_from(CODECS),
    st.dictionaries(
        st.sampled_from(["attributes", "records_count", "last_offset_delta", "base_sequence"]),
        st.integers(-(2**15), 2**15 - 1),
    ),
    st.sampled_from([("delete",), ("compact",)]),
)
def test_any_header_results_in_a_batch_or_a_client_error(
    count: int, compression: Compression, fields: dict[str, int], policy: tuple[str, ...]
) -> None:
    batch = _with_header(client_batch(count, compression=compression), **fields)
    try:
        validated = _validate(batch, replace(PLAIN, cleanup_policy=policy))
    except KafkaError:
        return
    header = validated.header
    assert header.records_count == header.last_offset_delta + 1 >= 1
    assert not header.is_control
