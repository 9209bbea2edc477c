"""plog/wire/decoder.py: valid and hostile input, and views of records."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plog.wire.messages.fetch import FetchRequest, FetchResponse
from plog.wire.messages.metadata import MetadataRequest, MetadataResponse
from plog.wire.messages.produce import ProduceRequest
from plog.wire.primitives import encode_string_length, encode_varint
from plog.wire.schema import (
    Message,
    Struct,
    TooManyElements,
    WireError,
    field,
    float64,
    int8,
    int32,
    int64,
    uint32,
)
from tests.unit.wire.filled import MESSAGES, every_version, filled


class Inner(Struct):
    """A nested struct with a tagged field."""

    number: int32 = field()
    hint: str = field("1+", tag=0)


class Outer(Message, versions="0-1", flexible="1+"):
    """Constructs of the schema language that few messages use."""

    before: int8 = field()
    maybe: Inner | None = field(default=None)
    flags: list[bool] = field()
    names: list[str] = field()
    blob: bytes | None = field()
    tagged: Inner = field("1+", tag=1)
    tagged_or_null: Inner | None = field("1+", tag=2, default=None)
    after: int64 = field()
    count: uint32 = field()
    ratio: float64 = field()


FULL = Outer(
    before=1,
    maybe=Inner(number=2, hint="h"),
    flags=[True, False, True],
    names=["a", "", "b"],
    blob=b"xyz",
    tagged=Inner(number=3, hint="i"),
    tagged_or_null=Inner(number=4),
    after=5,
    count=(1 << 32) - 1,
    ratio=-0.125,
)


@every_version(MESSAGES)
@pytest.mark.parametrize("nulls", [False, True], ids=["filled", "nulls"])
def test_message_survives_round_trip(
    message_type: type[Message], version: int, nulls: bool
) -> None:
    message = filled(message_type, version, 4, nulls=nulls)
    data = message.encode(version)
    assert message_type.decode_prefix(data + b"more", version) == (message, len(data))


@every_version(MESSAGES)
def test_truncated_message_is_rejected(message_type: type[Message], version: int) -> None:
    data = memoryview(filled(message_type, version, 5, long=False).encode(version))
    for length in range(len(data)):
        with pytest.raises(WireError):
            message_type.decode(data[:length], version)


@every_version(MESSAGES)
def test_damaged_message_is_decoded_or_rejected(message_type: type[Message], version: int) -> None:
    chance = random.Random(6)
    data = filled(message_type, version, 6).encode(version)
    for _ in range(20):
        damaged = bytearray(data)
        for _ in range(min(3, len(data))):
            damaged[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        _decode_or_reject(message_type, damaged, version)


@settings(deadline=None)
@given(st.binary(max_size=80), st.sampled_from(MESSAGES), st.integers(0, 20))
def test_random_bytes_are_decoded_or_rejected(
    noise: bytes, message_type: type[Message], above_minimum: int
) -> None:
    version = min(message_type.min_version + above_minimum, message_type.max_version)
    _decode_or_reject(message_type, noise, version)


def _decode_or_reject(message_type: type[Message], data: bytes | bytearray, version: int) -> None:
    try:
        message_type.decode(data, version)
    except WireError:
        pass


@pytest.mark.parametrize(
    ("message_type", "version", "data"),
    [
        pytest.param(MetadataRequest, 1, "7fffffff", id="array"),
        pytest.param(MetadataRequest, 12, "ffffffff0f", id="compact array"),
        pytest.param(FetchResponse, 4, "00000000 7fffffff", id="array of structs"),
        pytest.param(MetadataRequest, 1, "00000001 7fff", id="string"),
        pytest.param(FetchRequest, 12, "00" * 25 + "ffffffff7f", id="compact string"),
        pytest.param(
            ProduceRequest, 3, "ffff ffff 00000001 00000001 000174 00000001 00000000 7fffffff",
            id="records",
        ),
        pytest.param(
            ProduceRequest, 9, "00 ffff 00000001 02 0274 02 00000000 feffffff0f",
            id="compact records",
        ),
        pytest.param(MetadataRequest, 12, "01 00 00 ffffffff7f 00", id="count of tagged fields"),
        pytest.param(MetadataRequest, 12, "01 00 00 01 63 ffffffff7f", id="size of a tagged field"),
        pytest.param(
            MetadataResponse, 0,
            "00000000 00000001 0000 0000 00000001 0000 00000000 00000000 7fffffff",
            id="array of int32",
        ),
    ],
)  # fmt: skip
def test_huge_length_is_rejected_without_allocating(
    message_type: type[Message], version: int, data: str
) -> None:
    frame = bytes.fromhex(data)
    with pytest.raises(WireError):  # This call also compiles the decoder, which allocates memory.
        message_type.decode(frame, version)
    tracemalloc.start()
    with pytest.raises(WireError):
        message_type.decode(frame, version)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000


def test_count_is_limited_by_minimum_size_of_elements() -> None:
    topics = 200
    data = topics.to_bytes(4, "big") + bytes(2 * topics - 1)
    with pytest.raises(WireError, match="length of 200, but only 399 bytes"):
        MetadataRequest.decode(data, 0)


def test_null_is_rejected_for_field_that_is_not_nullable() -> None:
    with pytest.raises(WireError, match=r"MetadataRequest\.topics has a length of -1"):
        MetadataRequest.decode(bytes.fromhex("ffffffff"), 0)
    assert MetadataRequest.decode(bytes.fromhex("ffffffff"), 1).topics is None


def test_invalid_utf8_is_rejected() -> None:
    with pytest.raises(WireError, match="utf-8"):
        MetadataRequest.decode(bytes.fromhex("00000001 0002 c328"), 0)


def test_decoded_records_are_view_of_input() -> None:
    frame = bytearray(filled(ProduceRequest, 9, 7).encode(9))
    request = ProduceRequest.decode(frame, 9)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_message_is_decoded_from_any_buffer(buffer: Any) -> None:
    message = filled(FetchRequest, 13, 8)
    assert FetchRequest.decode(buffer(message.encode(13)), 13) == message


NOTHING_BEFORE_TAGS = (
    "00"  # before
    "ff"  # maybe: null
    "01 01"  # flags, names: none
    "01"  # blob: empty
    "0000000000000000"  # after
    "00000000 0000000000000000"  # count, ratio
)


def test_unknown_tagged_fields_are_skipped_at_every_depth() -> None:
    data = bytes.fromhex(
        "01"  # before
        "01 00000002"  # maybe: present, number
        "02 00 02 0268 2a 03 aabbcc"  # its tags: 0 is hint, 42 is unknown
        "01 01 00"  # flags, names, blob
        "0000000000000000"  # after
        "00000000 0000000000000000"  # count, ratio
        "01 7f 01 ff"  # tags: 127 is unknown
    )
    decoded, size = Outer.decode_prefix(data + b"more", 1)
    assert decoded == Outer(before=1, maybe=Inner(number=2, hint="h"), blob=None)
    assert size == len(data)


def test_tagged_struct_has_nested_tagged_fields() -> None:
    data = bytes.fromhex(
        NOTHING_BEFORE_TAGS + "02"  # two tags
        "01 09 00000003"  # 1, nine bytes: number
        "01 00 02 0269"  # its nested tag
        "02 06 01 00000004 00"  # 2, six bytes: present, number, no nested tags
    )
    message = Outer(blob=b"", tagged=Inner(number=3, hint="i"), tagged_or_null=Inner(number=4))
    assert message.encode(1) == data
    assert Outer.decode(data, 1) == message


def test_tagged_field_shorter_than_its_size_is_rejected() -> None:
    data = NOTHING_BEFORE_TAGS + "01 01 06 00000003 00 00"
    with pytest.raises(WireError, match=r"Outer\.tagged does not fill its tag"):
        Outer.decode(bytes.fromhex(data), 1)


@pytest.mark.parametrize("version", [0, 1])
def test_every_schema_construct_survives_round_trip(version: int) -> None:
    message = FULL
    if version == 0:
        message = Outer(
            before=1, maybe=Inner(number=2), flags=[True], names=["a"], blob=b"xyz", after=5
        )
    encoded = message.encode(version)
    assert Outer.decode(encoded, version) == message
    for length in range(len(encoded)):
        with pytest.raises(WireError):
            Outer.decode(encoded[:length], version)


def test_string_above_maximum_length_is_rejected() -> None:
    fitting = Outer(names=["x" * 0x7FFF])
    data = fitting.encode(1)
    assert Outer.decode(data, 1).names == fitting.names
    longer = data.replace(encode_string_length(0x7FFF), encode_varint(0x8001), 1)
    longer = longer.replace(b"x" * 0x7FFF, b"x" * 0x8000)
    with pytest.raises(WireError, match="32768 bytes long; at most 32767 are allowed"):
        Outer.decode(longer, 1)


@every_version(MESSAGES)
def test_bounded_decoder_accepts_maximum_number_of_elements(
    message_type: type[Message], version: int
) -> None:
    message = filled(message_type, version, 9)
    data = message.encode(version)
    count = _elements(message, version)
    assert message_type.decode_bounded(data, version, count) == message
    if count:
        with pytest.raises(TooManyElements):
            message_type.decode_bounded(data, version, count - 1)


def _elements(value: object, version: int) -> int:
    """Return the number of array elements and tagged fields in a filled message."""
    if isinstance(value, list):
        return len(value) + sum(_elements(one, version) for one in value)
    if isinstance(value, Struct):
        present = [field for field in type(value).fields if field.versions.has(version)]
        tags = sum(field.tag is not None for field in present)
        return tags + sum(_elements(getattr(value, field.name), version) for field in present)
    return 0


@every_version(MESSAGES)
def test_bounded_decoder_rejects_truncated_message(
    message_type: type[Message], version: int
) -> None:
    data = memoryview(filled(message_type, version, 10, long=False).encode(version))
    for length in range(0, len(data), 5):
        with pytest.raises(WireError):
            message_type.decode_bounded(data[:length], version, 1_000)


def test_bounded_decoder_counts_unknown_tagged_fields() -> None:
    tags = bytes.fromhex("03 63 00 64 00 65 00")
    data = bytes.fromhex("01 00 00") + tags  # Metadata: no topics, two flags.
    assert MetadataRequest.decode_bounded(data, 12, 3).topics == []
    with pytest.raises(TooManyElements):
        MetadataRequest.decode_bounded(data, 12, 2)
