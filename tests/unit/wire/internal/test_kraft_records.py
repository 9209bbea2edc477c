"""Records of Kafka's metadata log that plog never writes."""

from __future__ import annotations

import pytest

from plog.wire.internal.kraft_records import (
    KNOWN_RECORDS,
    KRAFT_RECORDS,
    BeginTransactionRecord,
    FenceBrokerRecord,
)
from plog.wire.internal.metadata_records import (
    METADATA_RECORDS,
    MetadataRecord,
    decode_known_record,
    decode_metadata_record,
    encode_metadata_record,
)
from plog.wire.schema import WireError
from tests.unit.wire.filled import every_version, filled


@every_version(KRAFT_RECORDS)
def test_record_and_version_survive_round_trip(
    message_type: type[MetadataRecord], version: int
) -> None:
    record = filled(message_type, version, 9)
    data = encode_metadata_record(record, version)
    assert decode_known_record(data, KNOWN_RECORDS) == (record, version)


@pytest.mark.parametrize(
    ("record", "encoded"),
    [
        (FenceBrokerRecord(id=1, epoch=2), "010700 00000001 0000000000000002 00"),
        (BeginTransactionRecord(name="x"), "011700 01 00 02 0278"),
        (BeginTransactionRecord(), "011700 00"),
    ],
)
def test_encoded_record_equals_kafkas(record: MetadataRecord, encoded: str) -> None:
    assert encode_metadata_record(record, 0) == bytes.fromhex(encoded)


def test_record_keys_are_unique() -> None:
    assert len(KNOWN_RECORDS) == len(METADATA_RECORDS) + len(KRAFT_RECORDS)


def test_decoder_of_plogs_own_log_rejects_them() -> None:
    with pytest.raises(WireError, match="key 20"):
        decode_metadata_record(bytes.fromhex("011400 00"))
