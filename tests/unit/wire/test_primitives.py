"""plog/wire/primitives.py: varints and tagged fields, and their limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.wire.primitives import (
    SHORT_VARINTS,
    WireError,
    decode_varint,
    encode_string_length,
    encode_varint,
    records_size,
    skip_tagged_fields,
)


@given(st.integers(0, (1 << 35) - 1))
def test_varint_survives_round_trip(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (16383, "ff7f"), (16384, "808001")],
)
def test_varint_has_seven_bits_per_byte(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


def test_short_varints_are_all_of_one_byte() -> None:
    assert list(SHORT_VARINTS) == [encode_varint(value) for value in range(128)]
    assert len(encode_varint(128)) == 2


def test_varint_of_six_bytes_is_rejected() -> None:
    with pytest.raises(WireError, match="longer than 5 bytes"):
        decode_varint(b"\x80\x80\x80\x80\x80\x01", 0)


def test_string_length_is_offset_by_one_and_limited() -> None:
    assert encode_string_length(32767) == encode_varint(32768)
    with pytest.raises(WireError, match="32768 bytes"):
        encode_string_length(32768)


def test_tagged_fields_are_skipped_by_their_size() -> None:
    two_fields = bytes.fromhex("02 00 03 aabbcc 81 01 00")
    assert skip_tagged_fields(b"--" + two_fields + b"rest", 2) == 2 + len(two_fields)


def test_tagged_fields_that_exceed_data_are_rejected() -> None:
    with pytest.raises(WireError, match="end at byte 8, beyond the 4 bytes"):
        skip_tagged_fields(bytes.fromhex("01 00 05 aa"), 0)


def test_records_size_is_in_bytes() -> None:
    assert records_size(b"12345678") == 8
    assert records_size(memoryview(b"12345678").cast("i")) == 8
