"""Batches whose records must be read: limits, steps, checks, and when that takes a job."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from plog.errors import InvalidRecord, MessageTooLarge
from plog.records.batch import HEADER_SIZE, Compression
from plogd.log.batch_validator import (
    FAR_TOO_MANY,
    MAX_CHECKED_RECORDS,
    AppendOrigin,
    BatchRules,
    DecompressedTooLarge,
    RecordReading,
    ValidatedBatch,
    bytes_to_read,
    validate_batch,
)
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_data import T0, client_batch
from tests.unit.log.test_batch_validator import CODECS, LOOKED_INTO, PLAIN, _with_header

DEFAULT = RecordReading()


def validate(
    batch: memoryview,
    config: TopicConfig = PLAIN,
    *,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    reading: RecordReading = DEFAULT,
) -> ValidatedBatch:
    rules = BatchRules.of(config)
    return validate_batch(batch, rules=rules, now_ms=T0, origin=origin, reading=reading)


@pytest.mark.parametrize("setting", LOOKED_INTO)
def test_decompressed_bytes_have_a_limit_at_any_max_message_bytes(setting: str) -> None:
    batch = client_batch(2, value=bytes(3 << 19), timestamp=T0, compression=Compression.ZSTD)
    config = replace(LOOKED_INTO[setting], max_message_bytes=(1 << 31) - 1)
    validate(batch, config, reading=RecordReading(max_decompressed_bytes=4 << 20))
    with pytest.raises(DecompressedTooLarge, match=r"plog\.decompressed\.batch\.max\.bytes"):
        validate(batch, config, reading=RecordReading(max_decompressed_bytes=2 << 20))


def test_conversion_ends_as_soon_as_its_result_is_too_large() -> None:
    value = random.Random(1).randbytes(2 << 20)
    batch = client_batch(value=value, timestamp=T0, compression=Compression.NONE)
    steps: list[None] = []
    config = replace(PLAIN, compression_type="gzip", max_message_bytes=200_000)
    # As if the limit had just been lowered.
    rules = BatchRules.of(config)._replace(max_bytes=1 << 30)
    with pytest.raises(MessageTooLarge, match=r"max\.message\.bytes=200000"):
        validate_batch(
            batch,
            rules=rules,
            now_ms=T0,
            origin=AppendOrigin.CLIENT,
            reading=RecordReading(on_step=lambda: steps.append(None)),
        )
    assert 0 < len(steps) < 6


def test_validation_can_be_aborted_between_steps() -> None:
    def stop() -> None:
        raise InterruptedError

    batch = client_batch(value=bytes(1 << 20), timestamp=T0, compression=Compression.ZSTD)
    with pytest.raises(InterruptedError):
        validate(
            batch, replace(PLAIN, compression_type="gzip"), reading=RecordReading(on_step=stop)
        )


def test_each_record_is_checked_by_the_topics_record_check() -> None:
    checked: list[tuple[bytes | None, bytes | None]] = []
    reading = RecordReading(check_record=lambda key, value: checked.append((key, value)))
    validate(client_batch(2, key=b"k", value=b"v"), reading=reading)
    assert checked == [(b"k", b"v")] * 2

    def refuse(key: bytes | None, value: bytes | None) -> None:
        raise InvalidRecord("not this one")

    with pytest.raises(InvalidRecord, match="not this one"):
        validate(client_batch(2), reading=RecordReading(check_record=refuse))
    batch = client_batch(2, compression=Compression.ZSTD)
    count = MAX_CHECKED_RECORDS + 1
    batch = _with_header(batch, records_count=count, last_offset_delta=count - 1)
    with pytest.raises(MessageTooLarge):
        validate(batch, reading=reading)


@pytest.mark.parametrize("compression", CODECS)
def test_bytes_to_read_decides_whether_a_job_is_needed(compression: Compression) -> None:
    batch = client_batch(2, timestamp=T0, compression=compression)
    size = len(batch) - HEADER_SIZE if compression is Compression.NONE else FAR_TOO_MANY
    assert bytes_to_read(batch, BatchRules.of(PLAIN), T0) == 0
    assert bytes_to_read(batch, BatchRules.of(LOOKED_INTO["keys"]), T0) == size
    assert bytes_to_read(batch, BatchRules.of(LOOKED_INTO["age"]), T0) == size
    for name in ("gzip", "lz4", "uncompressed"):
        rules = BatchRules.of(replace(PLAIN, compression_type=name))
        expected = 0 if rules.target == compression else size
        assert bytes_to_read(batch, rules, T0) == expected
    append_time = replace(PLAIN, message_timestamp_type="LogAppendTime")
    assert bytes_to_read(batch, BatchRules.of(append_time), T0) == 0
    assert bytes_to_read(batch[:HEADER_SIZE], BatchRules.of(LOOKED_INTO["keys"]), T0) == 0


def test_coordinators_batches_keep_their_codec_and_are_not_read() -> None:
    batch = client_batch(3, value=bytes(9000), timestamp=T0, key=None)
    config = replace(PLAIN, compression_type="gzip", cleanup_policy=("compact",))
    validated = validate(batch, config, origin=AppendOrigin.COORDINATOR)
    assert validated.header.compression is Compression.NONE
