"""plog/records/codec.py in both forms: round trips and hostile input."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from plog.errors import ErrorCode, InvalidTimestamp
from plog.records.batch import BatchHeader, CorruptRecords, parse_header
from plog.records.codec import Record
from tests.corpus.records import FIRST_TIMESTAMP, RECORDS, load
from tests.helpers import codec_forms
from tests.helpers.codec_forms import Nine

JAVA = load("java-4.3.1-none")
INT64_MAX = (1 << 63) - 1

# A hand-made record: length 8, attributes, timestamp and offset delta 0, key b"k", value b"v",
# no headers.
BODY = b"\0\0\0" + b"\x02k" + b"\x02v" + b"\0"
PLAIN = b"\x10" + BODY


def _header(count: int, *, last_delta: int = 1 << 30, **fields: int) -> BatchHeader:
    given_fields = {"records_count": count, "last_offset_delta": last_delta, **fields}
    plain: dict[str, int] = {"attributes": 0, "base_offset": 0, "base_timestamp": 0}
    return parse_header(JAVA)._replace(**{**plain, **given_fields})


def _varint(value: int) -> bytes:
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*encoded, zigzag])


def _record(body: bytes) -> bytes:
    return _varint(len(body)) + body


headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=4)
records = st.builds(
    Record,
    offset=st.just(-1),
    timestamp=st.integers(-1, INT64_MAX),
    key=st.none() | st.binary(max_size=70),
    value=st.none() | st.binary(max_size=300),
    headers=headers.map(tuple),
)


def test_captured_batch_decodes_to_sent_records(codec: ModuleType) -> None:
    assert codec.decode_records(JAVA[61:], parse_header(JAVA)) == list(RECORDS)


def test_encoded_records_equal_java_producers(codec: ModuleType) -> None:
    assert codec.encode_records(RECORDS, 0, FIRST_TIMESTAMP) == JAVA[61:]


def test_hand_made_record_survives_round_trip(codec: ModuleType) -> None:
    assert codec.decode_records(PLAIN, _header(1)) == [Record(0, 0, b"k", b"v")]


@given(st.lists(records, max_size=20), st.integers(0, 1 << 62))
def test_records_survive_round_trip(
    codec: ModuleType, originals: list[Record], base_offset: int
) -> None:
    base_timestamp = originals[0].timestamp if originals else 0
    assume(all(record.timestamp - base_timestamp <= INT64_MAX for record in originals))
    encoded = codec.encode_records(originals, base_offset, base_timestamp)
    header = _header(len(originals), base_offset=base_offset, base_timestamp=base_timestamp)
    expected = [record._replace(offset=base_offset + i) for i, record in enumerate(originals)]
    assert codec.decode_records(encoded, header) == expected
    assert codec.decode_records(memoryview(bytearray(encoded)), header) == expected


def test_timestamps_too_far_apart_are_rejected(codec: ModuleType) -> None:
    apart = [Record(timestamp=-1), Record(timestamp=INT64_MAX)]
    with pytest.raises(InvalidTimestamp, match="difference between two timestamps"):
        codec.encode_records(apart, 0, -1)


@pytest.mark.parametrize("size", [63, 64, 8191, 8192, 1 << 20, 1 << 21])
def test_lengths_around_each_varint_size_survive_round_trip(codec: ModuleType, size: int) -> None:
    originals = [Record(0, 0, bytes(size), bytes(size + 1), (("h", bytes(size)),))]
    assert codec.decode_records(codec.encode_records(originals, 0, 0), _header(1)) == originals


def test_offset_gaps_are_kept(codec: ModuleType) -> None:
    originals = [Record(offset, 0, None, b"") for offset in (7, 8, 300, 70_000)]
    encoded = codec.encode_records(originals, 5, 0)
    assert codec.decode_records(encoded, _header(4, base_offset=5)) == originals


def test_record_without_offset_follows_its_predecessor(codec: ModuleType) -> None:
    encoded = codec.encode_records([Record(), Record(9), Record()], 4, -1)
    decoded = codec.decode_records(encoded, _header(3, base_offset=4))
    assert [record.offset for record in decoded] == [4, 9, 10]


@pytest.mark.parametrize("offsets", [(3,), (5, 5), (9, 8), (5, -2)])
def test_encoder_rejects_offsets_that_do_not_increase(
    codec: ModuleType, offsets: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="is too low"):
        codec.encode_records([Record(offset) for offset in offsets], 5, 0)


@pytest.mark.parametrize("offsets", [(1 << 31,), ((1 << 31) - 1, -1), (1 << 80,)])
def test_encoder_rejects_offsets_too_far_from_base_offset(
    codec: ModuleType, offsets: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="too far"):
        codec.encode_records([Record(offset) for offset in offsets], 0, 0)


def test_batch_that_ends_above_largest_offset_is_rejected(
    codec: ModuleType,
) -> None:
    for read in (codec.decode_records, lambda *given: list(codec.walk_records(*given))):
        assert len(read(PLAIN, _header(1, base_offset=INT64_MAX, last_delta=0))) == 1
        with pytest.raises(CorruptRecords, match="does not fit in an int64"):
            read(PLAIN, _header(1, base_offset=INT64_MAX, last_delta=1))


def test_consumer_records_have_topic_and_partition(codec: ModuleType) -> None:
    header = _header(1, base_offset=3, partition_leader_epoch=9)
    [record] = codec.decode_consumer_records(PLAIN, header, Nine, "topic", 2)
    assert record == Nine("topic", 2, 3, 0, 0, b"k", b"v", (), 9)
    header = header._replace(attributes=8, max_timestamp=77)
    [record] = codec.decode_consumer_records(PLAIN, header, Nine, "topic", 2)
    assert record == Nine("topic", 2, 3, 77, 1, b"k", b"v", (), 9)
    assert type(record) is Nine


def test_log_append_time_applies_to_all_records(codec: ModuleType) -> None:
    header = _header(1, attributes=0x08, max_timestamp=77)
    assert codec.decode_records(PLAIN, header) == [Record(0, 77, b"k", b"v")]


def test_header_keys_that_are_not_utf_8_survive_round_trip(codec: ModuleType) -> None:
    body = BODY[:-1] + b"\x02" + b"\x04\xff\xfe" + b"\x01"
    decoded = codec.decode_records(_record(body), _header(1))
    assert codec.encode_records(decoded, 0, 0) == _record(body)


@pytest.mark.parametrize("count", [-1, -(1 << 31), 0, 2, 1 << 30])
def test_wrong_record_count_is_rejected(codec: ModuleType, count: int) -> None:
    with pytest.raises(CorruptRecords) as caught:
        codec.decode_records(PLAIN, _header(count))
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_huge_record_count_is_rejected_before_decoding(codec: ModuleType) -> None:
    # The codec checks the count before any loop: a record has at least seven bytes.
    with pytest.raises(CorruptRecords, match="cannot contain the 2147483647"):
        codec.decode_records(bytes(10_000), _header((1 << 31) - 1))


def test_truncated_payload_is_rejected(codec: ModuleType) -> None:
    header = parse_header(JAVA)
    for end in range(61, len(JAVA)):
        with pytest.raises(CorruptRecords):
            codec.decode_records(JAVA[61:end], header)


def test_bytes_after_last_record_are_rejected(codec: ModuleType) -> None:
    with pytest.raises(CorruptRecords, match="1 bytes follow"):
        codec.decode_records(PLAIN + b"\0", _header(1))


HOSTILE = {
    "length is negative": b"\x01" + BODY,
    "length too small": b"\x0e" + BODY,
    "length too large": b"\x12" + BODY,
    "length beyond the payload": _varint(1 << 30) + BODY,
    "length of six bytes": b"\x90\x80\x80\x80\x80\0" + BODY,
    "length above 32 bits": b"\x90\x80\x80\x80\x7f" + BODY,
    "timestamp of eleven bytes": _record(b"\0" + b"\x80" * 10 + b"\0" + BODY[2:]),
    "timestamp above 64 bits": _record(b"\0" + b"\x80" * 9 + b"\x7f" + BODY[2:]),
    "timestamp varint without end": b"\x10\0" + b"\xff" * 7,
    "offset delta negative": _record(b"\0\0\x01" + BODY[3:]),
    "offset delta beyond the last": _record(b"\0\0" + _varint((1 << 30) + 1) + BODY[3:]),
    "key length -2": _record(b"\0\0\0\x03" + BODY[4:]),
    "key beyond the record": _record(b"\0\0\0\x20k\x02v\0"),
    "key of 2 GB": _record(b"\0\0\0" + _varint((1 << 31) - 1) + b"k\x02v\0"),
    "value length -2": _record(BODY[:5] + b"\x03" + BODY[6:]),
    "value longer than the record": _record(BODY[:5] + b"\x06v\0"),
    "value into the next record": b"\x10" + BODY[:5] + b"\x0av\0" + PLAIN,
    "header count negative": _record(BODY[:-1] + b"\x01"),
    "header count of 2 billion": _record(BODY[:-1] + _varint((1 << 31) - 1)),
    "headers promised, none there": _record(BODY[:-1] + b"\x02"),
    "header key null": _record(BODY[:-1] + b"\x02\x01\x01"),
    "header key length -2": _record(BODY[:-1] + b"\x02\x03\x01"),
    "header value length -2": _record(BODY[:-1] + b"\x02\x02a\x03"),
    "header value beyond the record": _record(BODY[:-1] + b"\x02\x02a\x20b"),
    "byte between headers and end": _record(BODY + b"\0"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_records_are_rejected(codec: ModuleType, what: str) -> None:
    data = HOSTILE[what]
    for count in (1, 2):
        with pytest.raises(CorruptRecords):
            codec.decode_records(data, _header(count))


def test_decoder_rejects_offsets_that_do_not_increase(codec: ModuleType) -> None:
    assert len(codec.decode_records(PLAIN + _record(b"\0\0\x02" + BODY[3:]), _header(2))) == 2
    with pytest.raises(CorruptRecords, match="out of order"):
        codec.decode_records(PLAIN + PLAIN, _header(2))


@pytest.mark.parametrize(
    ("base", "delta"), [(INT64_MAX, 1), (-INT64_MAX - 1, -1), (INT64_MAX, INT64_MAX)]
)
def test_timestamp_that_exceeds_int64_is_rejected(codec: ModuleType, base: int, delta: int) -> None:
    data = _record(b"\0" + _varint(delta) + BODY[2:])
    with pytest.raises(CorruptRecords, match="timestamp"):
        codec.decode_records(data, _header(1, base_timestamp=base))


@given(st.binary(max_size=100), st.integers(0, 10))
def test_any_bytes_are_decoded_or_rejected(codec: ModuleType, data: bytes, count: int) -> None:
    try:
        decoded = codec.decode_records(data, _header(count))
    except CorruptRecords:
        return
    assert len(decoded) == count


@given(st.integers(0, len(JAVA) - 62), st.integers(1, 255))
def test_records_with_changed_byte_are_decoded_or_rejected(
    codec: ModuleType, position: int, change: int
) -> None:
    payload = bytearray(JAVA[61:])
    payload[position] ^= change
    try:
        decoded = codec.decode_records(payload, parse_header(JAVA))
    except CorruptRecords:
        return
    assert len(decoded) == len(RECORDS)


def _walked(
    codec: ModuleType, payload: bytes | bytearray, header: BatchHeader
) -> list[tuple[int, int, bool]] | None:
    try:
        return [tuple(head) for head in codec.walk_records(payload, header)]
    except CorruptRecords:
        return None


def _decoded(
    codec: ModuleType, payload: bytes | bytearray, header: BatchHeader
) -> list[tuple[int, int, bool]] | None:
    try:
        records = codec.decode_records(payload, header)
    except CorruptRecords:
        return None
    return [(one.offset, one.timestamp, one.key is not None) for one in records]


@given(st.lists(records, max_size=20), st.sampled_from([0, 8]), st.data())
def test_walk_agrees_with_decoder(
    codec: ModuleType, originals: list[Record], attributes: int, data: st.DataObject
) -> None:
    assume(all(record.timestamp - originals[0].timestamp <= INT64_MAX for record in originals))
    base_timestamp = originals[0].timestamp if originals else 0
    payload = bytearray(codec.encode_records(originals, 0, base_timestamp))
    header = _header(len(originals), base_timestamp=base_timestamp, attributes=attributes)
    assert _walked(codec, payload, header) == _decoded(codec, payload, header)
    if payload:
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
        assert _walked(codec, payload, header) == _decoded(codec, payload, header)


@pytest.mark.parametrize("what", HOSTILE)
def test_walk_rejects_hostile_records(codec: ModuleType, what: str) -> None:
    for count in (1, 2):
        assert _walked(codec, HOSTILE[what], _header(count)) is None


def test_walk_limits_number_of_headers(codec: ModuleType) -> None:
    headers = tuple(("h", None) for _ in range(30))
    payload = codec.encode_records(
        [Record(0, 0, headers=headers), Record(1, 0, headers=headers)], 0, 0
    )
    assert len(list(codec.walk_records(payload, _header(2), max_headers=60))) == 2
    with pytest.raises(CorruptRecords, match="too many headers"):
        list(codec.walk_records(payload, _header(2), max_headers=59))


def test_walk_yields_records_before_damage(codec: ModuleType) -> None:
    good = codec.encode_records([Record(value=b"v")] * 250, 0, 0)
    walk = codec.walk_records(good + b"\x01" + bytes(7), _header(251))
    assert [next(walk).offset for _ in range(250)] == list(range(250))
    with pytest.raises(CorruptRecords):
        next(walk)
    walk = codec.walk_records(good, _header(251))
    assert [next(walk).offset for _ in range(250)] == list(range(250))
    with pytest.raises(CorruptRecords, match="before all 251"):
        next(walk)


def test_doctests_pass() -> None:
    # pytest cannot collect them from a module that was imported in another form.
    for name in (codec_forms.CODEC, codec_forms.ENCODER):
        results = doctest.testmod(codec_forms.interpreted(name))
        assert results.attempted and not results.failed
