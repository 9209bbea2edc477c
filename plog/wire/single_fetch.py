"""Fast path for the Fetch requests that most consumers send: for one partition, or without changes.

A consumer that reads a single partition of a broker sends the first form. A consumer with a fetch
session sends the second form while it waits for records. An empty long poll consists of little more
than decoding the request and encoding the response, so this module reads the request directly from
the frame, and writes the response into one buffer.

messages/fetch.py handles requests in other forms (several partitions, partitions to forget, tagged
fields, requests of followers) and responses with errors or several partitions. Both modules encode
the same bytes (tests/unit/wire/test_single_fetch.py).
"""

import struct

from plog.types import ZERO_UUID, Uuid
from plog.wire.header import RequestHeader
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plog.wire.primitives import encode_string_length, encode_varint

FIRST_VERSION, LAST_VERSION = 4, 18
_FIRST_LOG_START = 5
_FIRST_SESSION = 7
_FIRST_LEADER_EPOCH = 9
_FIRST_RACK = _FIRST_REPLICA = 11
_FIRST_FLEXIBLE = 12
_FIRST_TOPIC_ID = 13
_FIRST_REPLICA_STATE = 15
"""From this version on, only followers send a replica id, in a tagged field."""

_HEADER = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
# Replica id, maximum wait, minimum and maximum bytes, isolation level.
_LIMITS = struct.Struct(">iiiib")
_SESSION = struct.Struct(">ii")  # id, epoch
# Number of topics, length of the first one's name. Without a topic, the second field is the start
# of the number of partitions to forget, which every version with sessions has.
_TOPIC = struct.Struct(">ih")
_TOPICS_BYTES = 4
# Number of partitions, index, fetch offset, maximum bytes. Later versions have the log start offset
# before the maximum bytes, and the leader epoch before the fetch offset.
_PARTITION = struct.Struct(">iiqi")
_LOG_START_PARTITION = struct.Struct(">iiqqi")
_LEADER_EPOCH_PARTITION = struct.Struct(">iiiqqi")
_FORGOTTEN = struct.Struct(">i")  # number of partitions to forget
_RACK = struct.Struct(">ih")  # the same, and the length of the rack's name

# No tags, then the fields of _LIMITS and _SESSION, then the number of topics.
_FLEXIBLE_BODY = struct.Struct(">BiiiibiiB")
_CONSUMER_BODY = struct.Struct(">BiiibiiB")  # without the replica id
# Number of partitions, index, leader epoch, fetch offset, last fetched epoch, log start offset,
# maximum bytes, no tags of the partition, no tags of the topic.
_FLEXIBLE_PARTITION = struct.Struct(">BiiqiqiBB")
_UUID_BYTES = 16
_MAX_ONE_BYTE = 0x7F
"""The largest compact length, which is one higher than its value, that takes one byte."""

_NO_SESSION = (0, -1)
"""The session id and epoch of a request before version 7."""

# A response: throttle time; from version 7 on, also no error and the session id.
_RESPONSE = struct.Struct(">i")
_SESSION_RESPONSE = struct.Struct(">ihi")
_NO_TOPICS = b"\0\0\0\0"
_NO_FLEXIBLE_TOPICS = b"\x01\0"  # and no tags
_ONE_TOPIC = struct.Struct(">ih")  # and the length of its name
_ONE_FLEXIBLE_TOPIC = b"\x02"
# One partition: its index, no error, high watermark, last stable offset, log start offset (from
# version 5 on), aborted transactions, preferred replica (from version 11 on), bytes of records.
_RESULT = struct.Struct(">iihqqii")
_LOG_START_RESULT = struct.Struct(">iihqqqii")
_REPLICA_RESULT = struct.Struct(">iihqqqiii")
_FLEXIBLE_RESULT = struct.Struct(">BihqqqBi")  # the size of the records follows as a varint
_NO_REPLICA = -1
_NO_TAGS = b"\0\0\0"  # of the partition, of the topic, of the response


class SingleFetch:
    """A Fetch request of a consumer for one partition, or for its session without changes."""

    __slots__ = (
        "header",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "partition",
        "rack_id",
        "session_epoch",
        "session_id",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        header: RequestHeader,
        limits: tuple[int, int, int, int],
        session: tuple[int, int],
        topic: str,
        topic_id: Uuid,
        partition: FetchPartition | None,
        rack_id: str,
    ) -> None:
        self.header = header
        self.max_wait_ms, self.min_bytes, self.max_bytes, self.isolation_level = limits
        self.session_id, self.session_epoch = session
        self.topic = topic
        """Empty if the request has a topic id, or no partition."""
        self.topic_id = topic_id
        """Zero if the request has a topic name, or no partition."""
        self.partition = partition
        """None if the partitions of the session have not changed."""
        self.rack_id = rack_id
        """The rack of the consumer, or empty."""

    def as_message(self) -> FetchRequest:
        """Return the request as the general decoder would."""
        topics = []
        if self.partition is not None:
            partitions = [self.partition]
            topic = FetchTopic(topic=self.topic, topic_id=self.topic_id, partitions=partitions)
            topics.append(topic)
        return FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation_level,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=topics,
            rack_id=self.rack_id,
        )


def decode_single_fetch(frame: memoryview) -> SingleFetch | None:
    """Return the Fetch request in `frame`, or None if it has another form or is invalid."""
    try:
        api_key, version, correlation_id, length = _HEADER.unpack_from(frame)
        client_id, body = None, _HEADER.size
        if length >= 0:
            body += length
            client_id = str(frame[_HEADER.size : body], "utf-8")
        header = RequestHeader(api_key, version, correlation_id, client_id)
        decode = _decode if version < _FIRST_FLEXIBLE else _decode_flexible
        return decode(frame, body, header)
    except (struct.error, IndexError, UnicodeDecodeError):
        # The general decoder raises the same error for an invalid frame, and reports it.
        return None


def _decode(frame: memoryview, position: int, header: RequestHeader) -> SingleFetch | None:
    version = header.api_version
    replica_id, wait, least, most, isolation = _LIMITS.unpack_from(frame, position)
    position += _LIMITS.size
    session = _NO_SESSION
    if version >= _FIRST_SESSION:
        session = _SESSION.unpack_from(frame, position)
        position += _SESSION.size
    topics, length = _TOPIC.unpack_from(frame, position)
    topic, partition = "", None
    if topics == 1 and length > 0:
        start = position + _TOPIC.size
        position = start + length
        topic = str(frame[start:position], "utf-8")
        layout = _partition_layout(version)
        partition = _partition(layout.unpack_from(frame, position), version)
        position += layout.size
    else:
        position += _TOPICS_BYTES
    # A second partition or topic would follow here.
    position, rack_id = _rest(frame, position, version)
    if (
        replica_id != -1
        or (partition is None and topics != 0)
        or position != len(frame)
        or version < FIRST_VERSION
    ):
        return None
    limits = (wait, least, most, isolation)
    return SingleFetch(header, limits, session, topic, ZERO_UUID, partition, rack_id)


def _partition_layout(version: int) -> struct.Struct:
    if version < _FIRST_LOG_START:
        return _PARTITION
    return _LOG_START_PARTITION if version < _FIRST_LEADER_EPOCH else _LEADER_EPOCH_PARTITION


def _partition(fields: tuple[int, ...], version: int) -> FetchPartition | None:
    leader_epoch = log_start_offset = -1
    if version < _FIRST_LOG_START:
        partitions, index, offset, nbytes = fields
    elif version < _FIRST_LEADER_EPOCH:
        partitions, index, offset, log_start_offset, nbytes = fields
    else:
        partitions, index, leader_epoch, offset, log_start_offset, nbytes = fields
    if partitions != 1:
        return None
    return FetchPartition(
        partition=index,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        log_start_offset=log_start_offset,
        partition_max_bytes=nbytes,
    )


def _rest(frame: memoryview, position: int, version: int) -> tuple[int, str]:
    """Return the end of a request that forgets no partition, or -1, and the rack."""
    if version < _FIRST_SESSION:
        return position, ""
    if version < _FIRST_RACK:
        (forgotten,) = _FORGOTTEN.unpack_from(frame, position)
        return (position + _FORGOTTEN.size if forgotten == 0 else -1), ""
    forgotten, length = _RACK.unpack_from(frame, position)
    start = position + _RACK.size
    # The general decoder rejects invalid text, too.
    rack_id = str(frame[start : start + length], "utf-8")
    return (start + length if forgotten == 0 and length >= 0 else -1), rack_id


def _decode_flexible(frame: memoryview, position: int, header: RequestHeader) -> SingleFetch | None:
    version, replica_id = header.api_version, -1
    if version < _FIRST_REPLICA_STATE:
        tags, replica_id, wait, least, most, isolation, session_id, epoch, topics = (
            _FLEXIBLE_BODY.unpack_from(frame, position)
        )
        position += _FLEXIBLE_BODY.size
    else:
        tags, wait, least, most, isolation, session_id, epoch, topics = _CONSUMER_BODY.unpack_from(
            frame, position
        )
        position += _CONSUMER_BODY.size
    topic, topic_id, partition = "", ZERO_UUID, None
    # A compact length or count is one higher than its value, and 0 is null.
    if topics == 2:
        start = position
        if version >= _FIRST_TOPIC_ID:
            position += _UUID_BYTES
            topic_id = bytes(frame[start:position])
        else:
            length = frame[start]
            # Longer names are rare, and their length takes two bytes.
            if not 1 < length <= _MAX_ONE_BYTE:
                return None
            position += length
            topic = str(frame[start + 1 : position], "utf-8")
        partition = _flexible_partition(frame, position)
        position += _FLEXIBLE_PARTITION.size
    forgotten, rack = frame[position], frame[position + 1]
    start, position = position + 2, position + 1 + rack
    rack_id = str(frame[start:position], "utf-8")  # The general decoder rejects invalid text.
    if (
        tags != 0
        or replica_id != -1
        or (partition is None and topics != 1)
        or forgotten != 1
        or not 0 < rack <= _MAX_ONE_BYTE
        or frame[position] != 0  # tags
        or position + 1 != len(frame)
        or version > LAST_VERSION
    ):
        return None
    limits, session = (wait, least, most, isolation), (session_id, epoch)
    return SingleFetch(header, limits, session, topic, topic_id, partition, rack_id)


def _flexible_partition(frame: memoryview, position: int) -> FetchPartition | None:
    (
        partitions,
        index,
        leader_epoch,
        offset,
        last_fetched_epoch,
        log_start_offset,
        nbytes,
        tags,
        topic_tags,
    ) = _FLEXIBLE_PARTITION.unpack_from(frame, position)
    if partitions != 2 or tags != 0 or topic_tags != 0:
        return None
    return FetchPartition(
        partition=index,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=log_start_offset,
        partition_max_bytes=nbytes,
    )


def encode_empty_response(version: int, throttle_time_ms: int, session_id: int) -> bytes:
    """Return the response without partitions, without the response header."""
    start = _start_of_response(version, throttle_time_ms, session_id)
    return start + (_NO_TOPICS if version < _FIRST_FLEXIBLE else _NO_FLEXIBLE_TOPICS)


def encode_single_response(
    version: int,
    throttle_time_ms: int,
    session_id: int,
    topic: str,
    topic_id: Uuid,
    partition: int,
    offsets: tuple[int, int, int],
    has_aborted: bool,
    nbytes: int,
) -> bytes:
    """Return the response for one partition up to its records, without the response header.

    `offsets` are the high watermark, the last stable offset and the log start offset. The aborted
    transactions are an empty list if `has_aborted` is true, and null otherwise. `nbytes` is the
    size of the records. `end_of_single_response` returns the bytes that follow the records.
    """
    start = _start_of_response(version, throttle_time_ms, session_id)
    if version >= _FIRST_FLEXIBLE:
        place = topic_id
        if version < _FIRST_TOPIC_ID:
            name = topic.encode()
            place = encode_string_length(len(name)) + name
        aborted = 1 if has_aborted else 0
        result = _FLEXIBLE_RESULT.pack(2, partition, 0, *offsets, aborted, _NO_REPLICA)
        return start + _ONE_FLEXIBLE_TOPIC + place + result + encode_varint(nbytes + 1)
    name = topic.encode()
    place = _ONE_TOPIC.pack(1, len(name)) + name
    aborted = 0 if has_aborted else -1
    if version < _FIRST_LOG_START:
        result = _RESULT.pack(1, partition, 0, offsets[0], offsets[1], aborted, nbytes)
    elif version < _FIRST_REPLICA:
        result = _LOG_START_RESULT.pack(1, partition, 0, *offsets, aborted, nbytes)
    else:
        result = _REPLICA_RESULT.pack(1, partition, 0, *offsets, aborted, _NO_REPLICA, nbytes)
    return start + place + result


def _start_of_response(version: int, throttle_time_ms: int, session_id: int) -> bytes:
    if version < _FIRST_SESSION:
        return _RESPONSE.pack(throttle_time_ms)
    return _SESSION_RESPONSE.pack(throttle_time_ms, 0, session_id)


def end_of_single_response(version: int) -> bytes:
    """Return the bytes after the records: the empty tag sections of flexible versions."""
    return b"" if version < _FIRST_FLEXIBLE else _NO_TAGS
