"""plog/records/produced_batch.py: which batches it accepts, in both forms."""

from __future__ import annotations

import struct
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plog.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    parse_header,
)
from plog.records.crc32c import crc32c
from tests.helpers import codec_forms

MODULE = "plog.records.produced_batch"
NOW_MS = 1_700_000_000_000
PAYLOAD = bytes(range(30))
INT64_EDGES = (-(2**63), -1, 0, 1, 2**31, 2**62, 2**63 - 1)
INT32_EDGES = (-(2**31), -1, 0, 1, 4, 5, 2**31 - 1)
INT16_EDGES = (-(2**15), -1, 0, 1, 4, 5, 8, 16, 32, 64, 2**15 - 1)


@pytest.fixture(params=codec_forms.FORMS, scope="module")
def module(request: pytest.FixtureRequest) -> ModuleType:
    return codec_forms.need(request.param, MODULE)


def batch(payload: bytes = PAYLOAD, **fields: int) -> memoryview:
    """Return a batch of four records with a matching size and checksum."""
    header = BatchHeader(
        base_offset=0,
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload),
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=3,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=4,
    )._replace(**fields)
    data = bytearray(HEADER.pack(*header) + payload)
    struct.pack_into(">I", data, CRC_POSITION, crc32c(bytes(data[ATTRIBUTES_POSITION:])))
    return memoryview(data)


def check(module: ModuleType, data: memoryview, max_bytes: int = 1000) -> BatchHeader | None:
    found: BatchHeader | None = module.check_produced_batch(data, max_bytes, NOW_MS)
    return found


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"attributes": 4},
        {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0},
        {"max_timestamp": -1},
    ],
)
def test_valid_batch_is_accepted_with_its_header(
    module: ModuleType, fields: dict[str, int]
) -> None:
    data = batch(**fields)
    header = check(module, data)
    assert header == parse_header(data)
    assert isinstance(header, BatchHeader)


@pytest.mark.parametrize(
    "fields",
    [
        {"base_offset": 1},
        {"batch_length": 0},
        {"batch_length": 78},
        {"magic": 1},
        {"magic": 3},
        {"attributes": 5},
        {"attributes": 8},
        {"attributes": 16},
        {"attributes": 32},
        {"attributes": 64},
        {"attributes": -(2**15)},
        {"last_offset_delta": 4},
        {"last_offset_delta": -1, "records_count": 0},
        {"last_offset_delta": -2, "records_count": -1},
        {"last_offset_delta": 4, "records_count": 5},
        {"max_timestamp": NOW_MS + 1},
        {"producer_id": 7, "producer_epoch": -1, "base_sequence": 0},
        {"producer_id": 7, "producer_epoch": 0, "base_sequence": -1},
    ],
)
def test_other_batch_is_declined(module: ModuleType, fields: dict[str, int]) -> None:
    assert check(module, batch(**fields)) is None


def test_batch_without_records_is_declined(module: ModuleType) -> None:
    assert check(module, batch(payload=b"", attributes=1)) is None


def test_compressed_records_may_take_fewer_bytes_than_their_number(module: ModuleType) -> None:
    data = batch(payload=b"c", attributes=1, records_count=1000, last_offset_delta=999)
    assert check(module, data) == parse_header(data)


def test_batch_above_the_limit_is_declined(module: ModuleType) -> None:
    data = batch()
    assert check(module, data, max_bytes=len(data)) is not None
    assert check(module, data, max_bytes=len(data) - 1) is None


def test_batch_with_a_changed_byte_is_declined(module: ModuleType) -> None:
    whole = batch()
    # The leader epoch is the only field that neither a rule nor the checksum covers.
    for place in (*range(12), *range(16, len(whole))):
        data = bytearray(whole)
        data[place] ^= 0xFF
        assert check(module, memoryview(data)) is None, place


def test_incomplete_batch_is_declined(module: ModuleType) -> None:
    whole = batch()
    for end in range(len(whole)):
        assert check(module, whole[:end]) is None


@settings(max_examples=500)
@given(
    base_offset=st.sampled_from(INT64_EDGES) | st.just(0),
    attributes=st.sampled_from(INT16_EDGES) | st.just(0),
    last_offset_delta=st.sampled_from(INT32_EDGES) | st.just(3),
    max_timestamp=st.sampled_from((*INT64_EDGES, NOW_MS)),
    producer_id=st.sampled_from(INT64_EDGES),
    producer_epoch=st.sampled_from(INT16_EDGES),
    base_sequence=st.sampled_from(INT32_EDGES),
    records_count=st.sampled_from(INT32_EDGES) | st.just(4),
    payload=st.binary(max_size=40),
)
def test_both_forms_decide_alike(payload: bytes, **fields: int) -> None:
    compiled = codec_forms.need("compiled", MODULE)
    data = batch(payload, **fields)
    assert check(compiled, data) == check(codec_forms.interpreted(MODULE), data)
