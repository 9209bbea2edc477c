"""The Produce request most clients send, one batch for one partition, decoded in one step.

librdkafka sends no other, and the smaller the batch, the more a tree of objects to decode and one
to encode weigh against the append itself. A request of another form (several partitions, a
transaction, tagged fields) is left to messages/produce.py, and so is the response to a batch that
is refused. The bytes of both responses are the same (tests/unit/wire/test_single_produce.py).

The response names the partition in the same bytes as the request did: they are its `place`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from plog.types import ZERO_UUID, Uuid
from plog.wire.header import RequestHeader
from plog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
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

_SUCCESS = struct.Struct(">hqqq")  # no error, base offset, log append time, log start offset


class SingleProduce(NamedTuple):
    """A Produce request with one batch for one partition."""

    header: RequestHeader
    acks: int
    timeout_ms: int
    topic: str
    """Empty where the request has a topic id."""
    topic_id: Uuid
    """Zero where it has a name."""
    partition: int
    records: memoryview
    """The batch, a view of the request's frame."""
    place: bytes

    def as_message(self) -> ProduceRequest:
        """The same request as the general decoder returns it."""
        data = PartitionProduceData(index=self.partition, records=self.records)
        topic = TopicProduceData(name=self.topic, topic_id=self.topic_id, partition_data=[data])
        return ProduceRequest(acks=self.acks, timeout_ms=self.timeout_ms, topic_data=[topic])


def decode_single_produce(frame: memoryview) -> SingleProduce | None:
    """The request in `frame`, whose API key is Produce; None if it has another form, or none."""
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
        return None  # The general decoder says what is wrong with it.


def _decode(frame: memoryview, body: int, header: RequestHeader) -> SingleProduce | None:
    transactional_id, acks, timeout_ms, topics, length = _BODY.unpack_from(frame, body)
    name = body + _BODY.size
    end = name + length
    partitions, index, nbytes = _PARTITION.unpack_from(frame, end)
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
    place = bytes(frame[name - 6 : end + 8])
    return SingleProduce(header, acks, timeout_ms, topic, ZERO_UUID, index, records, place)


def _decode_flexible(frame: memoryview, body: int, header: RequestHeader) -> SingleProduce | None:
    tags, transactional_id, acks, timeout_ms, topics = _FLEXIBLE_BODY.unpack_from(frame, body)
    start = body + _FLEXIBLE_BODY.size
    topic, topic_id = "", ZERO_UUID
    if header.api_version < _FIRST_TOPIC_ID:
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
        tags != 0
        or transactional_id != 0
        or topics != 2
        or partitions != 2
        or not 0 < length - 1 == len(records)
        or frame[-3:] != _NO_TAGS
        or header.api_version > LAST_VERSION
    ):
        return None
    place = bytes(frame[start - 1 : end])
    return SingleProduce(header, acks, timeout_ms, topic, topic_id, index, records, place)


def _rest_of_response(version: int) -> bytes:
    """What follows the log start offset: nothing out of the ordinary, and no wait for a quota."""
    if version < 8:
        return struct.pack(">i", 0)  # throttle time
    if version < _FIRST_FLEXIBLE:
        return struct.pack(">ihi", 0, -1, 0)  # record errors, error message, throttle time
    return struct.pack(">BBBBiB", 1, 0, 0, 0, 0, 0)  # the same, with three places for tags


_REST = {version: _rest_of_response(version) for version in range(FIRST_VERSION, LAST_VERSION + 1)}


def encode_single_response(
    produce: SingleProduce, base_offset: int, log_append_time_ms: int, log_start_offset: int
) -> bytes:
    """The response that the batch was appended, without its header."""
    result = _SUCCESS.pack(0, base_offset, log_append_time_ms, log_start_offset)
    return produce.place + result + _REST[produce.header.api_version]
