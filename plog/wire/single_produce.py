"""Fast path for the Produce request that most clients send: one batch for one partition.

librdkafka always sends this form. For a small batch, decoding and encoding trees of objects costs
more than the append itself, so this module reads the request directly from the frame, and writes
the response into one buffer. messages/produce.py handles requests in other forms (several
partitions, a transaction, tagged fields) and responses to rejected batches. Both modules encode the
same bytes (tests/unit/wire/test_single_produce.py).

setup.py compiles this module (decision 0011): single_produce.pxd declares its C types. Every read
of a byte checks its position, in both forms.
"""

import struct
from typing import Any

from plog.types import ZERO_UUID
from plog.wire.api_keys import ApiKey
from plog.wire.header import RequestHeader, response_tags
from plog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

FIRST_VERSION, LAST_VERSION = 7, 13
"""Before version 7, the broker must reject zstd, which the general path does."""
_FIRST_FLEXIBLE = 9
_FIRST_TOPIC_ID = 13

_PRODUCE = int(ApiKey.PRODUCE)
_HEAD_BYTES = 1024
"""The fields before the records must be within these bytes; longer client ids are rare."""
_UUID_BYTES = 16
_TAG_BYTES = 3
"""Three empty tag sections end a flexible request: of the partition, the topic and the request."""

_RESPONSE = struct.Struct(">ii")  # size, correlation id
_SUCCESS = struct.Struct(">hqqq")  # no error, base offset, log append time, log start offset


class SingleProduce:
    """A Produce request with one batch for one partition.

    Attributes:
        client_id: the client id, or None.
        topic: empty if the request has a topic id.
        topic_id: zero if the request has a topic name.
        records: the batch, a view of the request's frame.
        place: the bytes that identify the partition, which are the same in request and response.
    """

    # A plain class, because Cython compiles it to a C struct; a named tuple takes ten times as long
    # to create.
    def __init__(
        self,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        acks: int,
        timeout_ms: int,
    ) -> None:
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic = ""
        self.topic_id = ZERO_UUID
        self.partition = 0
        self.records: Any = None
        self.place = b""

    @property
    def header(self) -> RequestHeader:
        """The header of the request."""
        fields = (_PRODUCE, self.api_version, self.correlation_id, self.client_id)
        # Faster than a call of the class.
        return tuple.__new__(RequestHeader, fields)

    # A method, because a function compiled for this class would crash if it received None.
    def frame_response(
        self, base_offset: int, log_append_time_ms: int, log_start_offset: int
    ) -> bytes:
        """Return the complete response for an appended batch, with its size and header."""
        tags, rest, place = _TAGS[self.api_version], _REST[self.api_version], self.place
        size = 4 + len(tags) + len(place) + _SUCCESS.size + len(rest)
        start = _RESPONSE.pack(size, self.correlation_id)
        result = _SUCCESS.pack(0, base_offset, log_append_time_ms, log_start_offset)
        return b"".join((start, tags, place, result, rest))

    def as_message(self) -> ProduceRequest:
        """Return the request as the general decoder would."""
        data = PartitionProduceData(index=self.partition, records=self.records)
        topic = TopicProduceData(name=self.topic, topic_id=self.topic_id, partition_data=[data])
        return ProduceRequest(acks=self.acks, timeout_ms=self.timeout_ms, topic_data=[topic])


def decode_single_produce(frame: memoryview) -> SingleProduce | None:
    """Return the Produce request in `frame`, or None if it has another form or is invalid."""
    # Before anything is copied, because requests of all APIs are passed to this function.
    if len(frame) < 2 or frame[0] or frame[1]:  # The first field is the API key, 0.
        return None
    try:
        return _decode(frame, bytes(frame[:_HEAD_BYTES]))
    except (IndexError, UnicodeDecodeError):
        # The general decoder raises the same error for an invalid frame, and reports it.
        return None


def _decode(frame: memoryview, head: bytes) -> SingleProduce | None:
    version = head[2] << 8 | head[3]
    if not FIRST_VERSION <= version <= LAST_VERSION:
        return None
    length = _int16(head, 8)
    position = 10
    client_id = None
    if length >= 0:
        client_id = _text(head, position, length)
        position += length
    if version < _FIRST_FLEXIBLE:
        transactional_id = _int16(head, position)
        if transactional_id != -1:
            return None
    else:
        # No tags in the header; a compact null is 0.
        if head[position] or head[position + 1]:
            return None
    position += 2
    acks = _int16(head, position)
    timeout_ms = _int32(head, position + 2)
    single = SingleProduce(version, _int32(head, 4), client_id, acks, timeout_ms)
    if version < _FIRST_FLEXIBLE:
        return _decode_data(single, frame, head, position + 6)
    return _decode_flexible_data(single, frame, head, position + 6)


def _decode_data(
    single: SingleProduce, frame: memoryview, head: bytes, position: int
) -> SingleProduce | None:
    length = _int16(head, position + 4)
    if _int32(head, position) != 1 or length <= 0:  # One topic.
        return None
    end = position + 6 + length
    if _int32(head, end) != 1:  # One partition.
        return None
    single.topic = _text(head, position + 6, length)
    single.partition = _int32(head, end + 4)
    # From the number of topics up to the partition's index.
    single.place = head[position : end + 8]
    # The records must fill the rest of the frame: a second partition or topic would follow them.
    nbytes = _int32(head, end + 8)
    first = end + 12
    if nbytes <= 0 or nbytes != len(frame) - first:
        return None
    single.records = frame[first:]
    return single


def _decode_flexible_data(
    single: SingleProduce, frame: memoryview, head: bytes, start: int
) -> SingleProduce | None:
    # A compact length or count is one higher than its value.
    if head[start] != 2:
        return None
    position = start + 1
    if single.api_version < _FIRST_TOPIC_ID:
        length = head[position] - 1
        # Longer names are rare, and their length takes two bytes.
        if not 0 < length < 0x7F:
            return None
        single.topic = _text(head, position + 1, length)
        position += 1 + length
    else:
        single.topic_id = head[position : position + _UUID_BYTES]
        position += _UUID_BYTES
    if head[position] != 2:
        return None
    single.partition = _int32(head, position + 1)
    position += 5
    single.place = head[start:position]
    nbytes = 0
    shift = 0
    byte = 0x80
    while byte & 0x80:
        if shift > 21:  # Four bytes are enough for any frame.
            return None
        byte = head[position]
        position += 1
        nbytes |= (byte & 0x7F) << shift
        shift += 7
    nbytes -= 1
    end = len(frame) - _TAG_BYTES
    if nbytes <= 0 or nbytes != end - position or frame[end] or frame[end + 1] or frame[end + 2]:
        return None
    single.records = frame[position:end]
    return single


def _int16(data: bytes, position: int) -> int:
    value = data[position] << 8 | data[position + 1]
    return value - 0x1_0000 if value > 0x7FFF else value


def _int32(data: bytes, position: int) -> int:
    value = data[position]
    value = value << 24 | data[position + 1] << 16 | data[position + 2] << 8 | data[position + 3]
    return value - 0x1_0000_0000 if value > 0x7FFF_FFFF else value


def _text(data: bytes, position: int, length: int) -> str:
    """Return a string. Raises IndexError if the data ends inside it, UnicodeDecodeError."""
    end = position + length
    # Python would end the slice at the end of the data, without an error.
    if end > len(data):
        raise IndexError("a string ends after the data")
    return data[position:end].decode()


def _rest_of_response(version: int) -> bytes:
    """Return the end of a response, after the log start offset: no errors and no throttle time."""
    if version < 8:
        return struct.pack(">i", 0)  # throttle time
    if version < _FIRST_FLEXIBLE:
        return struct.pack(">ihi", 0, -1, 0)  # record errors, error message, throttle time
    return struct.pack(">BBBBiB", 1, 0, 0, 0, 0, 0)  # the same, with three empty tag sections


_REST = [
    _rest_of_response(version) if version >= FIRST_VERSION else b""
    for version in range(LAST_VERSION + 1)
]
_TAGS = [
    response_tags(ApiKey.PRODUCE, version) if version >= FIRST_VERSION else b""
    for version in range(LAST_VERSION + 1)
]
