"""The Produce request most clients send, one batch for one partition, read and answered in a step.

librdkafka sends no other, and the smaller the batch, the more a tree of objects to decode and one
to encode weigh against the append itself. Whatever has another form (several partitions, a
transaction, tagged fields) is None here and goes the way of all requests, messages/produce.py; the
bytes of the answers are the same (tests/unit/wire/test_single_produce.py).

The answer names the partition in just the bytes in which the request did: they are its `place`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from plog.types import ZERO_UUID, Uuid
from plog.wire.primitives import WireError, decode_varint

FIRST_VERSION, LAST_VERSION = 7, 13
"""Before 7 zstd is to be refused, which takes a look at the batch."""
_FIRST_FLEXIBLE = 9
_FIRST_TOPIC_ID = 13

_HEADER = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
# Transactional id (none), acks, timeout, one topic, length of its name.
_BODY = struct.Struct(">hhiih")
_PARTITION = struct.Struct(">iii")  # one partition, its index, bytes of records
# No tags, no transactional id, acks, timeout, one topic; its name's length or its id follows.
_FLEXIBLE_BODY = struct.Struct(">BBhiB")
_FLEXIBLE_PARTITION = struct.Struct(">Bi")
_UUID_BYTES = 16
_NO_TAGS = b"\0\0\0"  # of the partition, of the topic, of the request

_START = struct.Struct(">ii")  # size, correlation id
_SUCCESS = struct.Struct(">hqqq")  # no error, base offset, log append time, log start offset


class SingleProduce(NamedTuple):
    """The request, but for its records."""

    version: int
    correlation_id: int
    acks: int
    timeout_ms: int
    topic: str
    """Empty where the request has a topic id."""
    topic_id: Uuid
    """Zero where it has a name."""
    partition: int
    place: bytes


def read_single_produce(frame: memoryview) -> tuple[SingleProduce, memoryview] | None:
    """The request in `frame`, whose API key is Produce, and its records, a view of the frame.

    None if it has another form, or none.
    """
    try:
        _, version, correlation_id, length = _HEADER.unpack_from(frame)
        body = _HEADER.size + length if length > 0 else _HEADER.size
        if version < _FIRST_FLEXIBLE:
            return _read(frame, body, version, correlation_id)
        return _read_flexible(frame, body, version, correlation_id)
    except (struct.error, IndexError, UnicodeDecodeError, WireError):
        return None  # The general way says what is wrong with it.


def _read(
    frame: memoryview, body: int, version: int, correlation_id: int
) -> tuple[SingleProduce, memoryview] | None:
    transactional_id, acks, timeout_ms, topics, length = _BODY.unpack_from(frame, body)
    name = body + _BODY.size
    end = name + length
    partitions, index, nbytes = _PARTITION.unpack_from(frame, end)
    records = frame[end + _PARTITION.size :]
    if (
        (transactional_id, topics, partitions) != (-1, 1, 1)
        or length <= 0
        or not 0 < nbytes == len(records)
        or version < FIRST_VERSION
    ):
        return None
    topic = str(frame[name:end], "utf-8")
    place = bytes(frame[name - 6 : end + 8])
    return (
        SingleProduce(version, correlation_id, acks, timeout_ms, topic, ZERO_UUID, index, place),
        records,
    )


def _read_flexible(
    frame: memoryview, body: int, version: int, correlation_id: int
) -> tuple[SingleProduce, memoryview] | None:
    tags, transactional_id, acks, timeout_ms, topics = _FLEXIBLE_BODY.unpack_from(frame, body)
    start = body + _FLEXIBLE_BODY.size
    topic, topic_id = "", ZERO_UUID
    if version < _FIRST_TOPIC_ID:
        length = frame[start] - 1
        end = start + 1 + length
        if not 0 < length < 0x7F:  # Longer ones are rare, and have two bytes of length.
            return None
        topic = str(frame[start + 1 : end], "utf-8")
    else:
        end = start + _UUID_BYTES
        topic_id = bytes(frame[start:end])
    partitions, index = _FLEXIBLE_PARTITION.unpack_from(frame, end)
    end += _FLEXIBLE_PARTITION.size
    length, first = decode_varint(frame, end)
    records = frame[first:-3]
    if (
        (tags, transactional_id, topics, partitions) != (0, 0, 2, 2)
        or not 0 < length - 1 == len(records)
        or frame[-3:] != _NO_TAGS
        or version > LAST_VERSION
    ):
        return None
    place = bytes(frame[start - 1 : end])
    return (
        SingleProduce(version, correlation_id, acks, timeout_ms, topic, topic_id, index, place),
        records,
    )


def _rest_of_answer(version: int) -> bytes:
    """What follows the log start offset: nothing out of the ordinary, and no wait for a quota."""
    if version < 8:
        return struct.pack(">i", 0)  # throttle time
    if version < _FIRST_FLEXIBLE:
        return struct.pack(">ihi", 0, -1, 0)  # record errors, error message, throttle time
    return struct.pack(">BBBBiB", 1, 0, 0, 0, 0, 0)  # the same, with three places for tags


_REST = {version: _rest_of_answer(version) for version in range(FIRST_VERSION, LAST_VERSION + 1)}


def write_single_answer(
    produce: SingleProduce, base_offset: int, log_append_time_ms: int, log_start_offset: int
) -> bytes:
    """The framed answer that the batch was appended."""
    version, correlation_id, place = produce.version, produce.correlation_id, produce.place
    result = _SUCCESS.pack(0, base_offset, log_append_time_ms, log_start_offset) + _REST[version]
    if version < _FIRST_FLEXIBLE:
        return _START.pack(4 + len(place) + len(result), correlation_id) + place + result
    # A byte for the tags of the header, none of which there are.
    return _START.pack(5 + len(place) + len(result), correlation_id) + b"\0" + place + result
