"""plog/records/control.py: valid and invalid control records."""

from __future__ import annotations

import pytest

from plog.records.batch import CorruptRecords, parse_header
from plog.records.control import (
    ControlType,
    decode_control_key,
    decode_end_txn_value,
    encode_control_key,
    encode_end_txn_value,
)
from plog.records.reader import read_records
from tests.corpus.records import load


@pytest.mark.parametrize(
    ("name", "control_type"),
    [("kafka-4.3.1-commit", ControlType.COMMIT), ("kafka-4.3.1-abort", ControlType.ABORT)],
)
def test_kafkas_transaction_markers_are_decoded(name: str, control_type: ControlType) -> None:
    data = load(name)
    header = parse_header(data)
    assert header.is_control
    (record,) = read_records(data, 0, header)
    assert decode_control_key(record.key) is control_type
    assert decode_end_txn_value(record.value) == 0
    assert (record.key, record.value) == (encode_control_key(control_type), encode_end_txn_value(0))


def test_control_type_of_later_kafka_is_unknown() -> None:
    assert decode_control_key(b"\0\0\0\x63") is ControlType.UNKNOWN


def test_fields_of_later_version_are_ignored() -> None:
    assert decode_control_key(b"\0\x01\0\x01more") is ControlType.COMMIT
    assert decode_end_txn_value(encode_end_txn_value(9) + b"more") == 9


@pytest.mark.parametrize("data", [None, b"", b"\0\0\0", b"\xff\xff\0\0\0\0"])
def test_invalid_control_record_is_rejected(data: bytes | None) -> None:
    with pytest.raises(CorruptRecords):
        decode_control_key(data)
    with pytest.raises(CorruptRecords):
        decode_end_txn_value(data)
