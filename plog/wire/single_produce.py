"""Fast path for the Produce request that most clients send: one batch for one partition.

librdkafka always sends this form. For a small batch, decoding and encoding trees of objects costs
more than the append itself, so this module reads the request directly from the frame, and writes
the response into one buffer. messages/produce.py handles requests in other forms (several
partitions, a transaction, tagged fields) and responses to rejected batches. Both modules encode the
same bytes (tests/unit/wire/test_single_produce.py).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from plog.types import ZERO_UUID, Uuid
from plog.wire.header import RequestHeader
from plog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from plog.wire.primitives import WireError, decode_varint

FIRST_VERSION, LAST_VERSION = 7, 13
"""Before version 7, the broker must reject zstd, which the general path does."""
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

_SUCCESS = struct.Struct(">hqqq")  # no error, base offset, log append time, log start offset


class SingleProduce(NamedTuple):
    """A Produce request with one batch for one partition."""

    header: RequestHeader
    acks: int
    timeout_ms: int
    topic: str
    """Empty if the request has a topic id."""
    topic_id: Uuid
    """Zero if the request has a topic name."""
    partition: int
    records: memoryview
    """The batch, a view of the request's frame."""
    place: bytes
    """The bytes that identify the partition, which are the same in request and response."""

    def as_message(self) -> ProduceRequest:
        """Return the request as the general decoder would."""
        data = PartitionProduceData(index=self.partition, records=self.records)
        topic = TopicProduceData(name=self.topic, topic_id=self.topic_id, partition_data=[data])
        return ProduceRequest(acks=self.acks, timeout_ms=self.timeout_ms, topic_data=[topic])


def decode_single_produce(frame: memoryview) -> SingleProduce | None:
    """Return the Produce request in `frame`, or None if it has another form or is invalid."""
    try:
        api_key, version, correlation_id, length = _HEADER.unpack_from(frame)
        client_id, body = None, _HEADER.size
        if length >= 0:
            body += length
            client_id = str(frame[_HEADER.size : body], "utf-8")
        header = RequestHeader(api_key, version, correlation_id, client_id)
        decode = _decode if version < _FIRST_FLEXIBLE else _decode_flexible
        return decode(frame, body, header)
    except (struct.error, IndexError, UnicodeDecodeError, WireError):
        # The general decoder raises the same error for an invalid frame, and reports it.
        return None


def _decode(frame: memoryview, body: int, header: RequestHeader) -> SingleProduce | None:
    transactional_id, acks, timeout_ms, topics, length = _BODY.unpack_from(frame, body)
    name = body + _BODY.size
    end = name + length
    partitions, index, nbytes = _PARTITION.unpack_from(frame, end)
    # The records must fill the rest of the frame: a second partition or topic would follow them.
    records = frame[end + _PARTITION.size :]
    if (
        transactional_id != -1
        or topics != 1
        or partitions != 1
        or length <= 0
        or not 0 < nbytes == len(records)
        or header.api_version < FIRST_VERSION
    ):
        return None
    topic = str(frame[name:end], "utf-8")
    # From the number of topics (4 bytes) and the name's length (2) up to the number of partitions
    # (4) and the partition's index (4).
    place = bytes(frame[name - 6 : end + 8])
    return SingleProduce(header, acks, timeout_ms, topic, ZERO_UUID, index, records, place)


def _decode_flexible(frame: memoryview, body: int, header: RequestHeader) -> SingleProduce | None:
    tags, transactional_id, acks, timeout_ms, topics = _FLEXIBLE_BODY.unpack_from(frame, body)
    start = body + _FLEXIBLE_BODY.size
    topic, topic_id = "", ZERO_UUID
    if header.api_version < _FIRST_TOPIC_ID:
        length = frame[start] - 1
        end = start + 1 + length
        # Longer names are rare, and their length takes two bytes.
        if not 0 < length < 0x7F:
            return None
        topic = str(frame[start + 1 : end], "utf-8")
    else:
        end = start + _UUID_BYTES
        topic_id = bytes(frame[start:end])
    partitions, index = _FLEXIBLE_PARTITION.unpack_from(frame, end)
    end += _FLEXIBLE_PARTITION.size
    length, first = decode_varint(frame, end)
    records = frame[first:-3]
    # A compact length or count is one higher than its value, and 0 is null.
    if (
        tags != 0
        or transactional_id != 0
        or topics != 2
        or partitions != 2
        or not 0 < length - 1 == len(records)
        or frame[-3:] != _NO_TAGS
        or header.api_version > LAST_VERSION
    ):
        return None
    place = bytes(frame[start - 1 : end])  # From the number of topics to the partition's index.
    return SingleProduce(header, acks, timeout_ms, topic, topic_id, index, records, place)


def _rest_of_response(version: int) -> bytes:
    """Return the end of a response, after the log start offset: no errors and no throttle time."""
    if version < 8:
        return struct.pack(">i", 0)  # throttle time
    if version < _FIRST_FLEXIBLE:
        return struct.pack(">ihi", 0, -1, 0)  # record errors, error message, throttle time
    return struct.pack(">BBBBiB", 1, 0, 0, 0, 0, 0)  # the same, with three empty tag sections


_REST = {version: _rest_of_response(version) for version in range(FIRST_VERSION, LAST_VERSION + 1)}


def encode_single_response(
    produce: SingleProduce, base_offset: int, log_append_time_ms: int, log_start_offset: int
) -> bytes:
    """Return the response for an appended batch, without the response header."""
    result = _SUCCESS.pack(0, base_offset, log_append_time_ms, log_start_offset)
    return produce.place + result + _REST[produce.header.api_version]
