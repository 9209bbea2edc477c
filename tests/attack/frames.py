"""Frames and batches that attackers send, encoded with plog's own messages."""

from __future__ import annotations

import time
from collections.abc import Mapping

from plog.records.batch import (
    HEADER_HEAD,
    HEADER_SIZE,
    HEADER_TAIL,
    LOG_OVERHEAD,
    MAGIC,
    Compression,
)
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.crc32c import crc32c
from plog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from plog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from plog.wire.primitives import encode_varint
from tests.attack.target import Target
from tests.fault.peers import Peer, request_frame

PRODUCE_VERSION = 8
_ZSTD_HEADER = b"\x28\xb5\x2f\xfd\x00\x38"  # Without content size, with a window of 128 KiB.
_ZSTD_BLOCK_BYTES = 128 << 10
_ZSTD_RAW, _ZSTD_RLE = 0, 1


def now_ms() -> int:
    """Return the current time, as producers' timestamps."""
    return int(time.time() * 1000)


def small_batch(value: bytes = b"small", key: bytes | None = b"k") -> bytes:
    """Return a batch with one record."""
    return build_batch([Record(timestamp=now_ms(), key=key, value=value)])


def raw_batch(payload: bytes, count: int, codec: Compression) -> bytes:
    """Return a valid batch whose records are `payload`, which is already compressed."""
    stamp = now_ms()
    tail = HEADER_TAIL.pack(codec, count - 1, stamp, stamp, -1, -1, -1, count)
    size = HEADER_SIZE - LOG_OVERHEAD + len(payload)
    head = HEADER_HEAD.pack(0, size, -1, MAGIC, crc32c(payload, crc32c(tail)))
    return b"".join((head, tail, payload))


def zeros_batch(nbytes: int) -> bytes:
    """Return one record of `nbytes` zeros in zstd, which takes four bytes per 128 KiB."""
    head = bytes(3) + encode_varint(2) + b"k" + encode_varint(2 * nbytes)
    head = encode_varint(2 * (len(head) + nbytes + 1)) + head
    blocks = [_ZSTD_HEADER, _zstd_block(_ZSTD_RAW, len(head), is_last=False), head]
    left = nbytes + 1  # The last zero is the number of headers.
    while left:
        size = min(left, _ZSTD_BLOCK_BYTES)
        left -= size
        blocks += (_zstd_block(_ZSTD_RLE, size, is_last=not left), b"\0")
    return raw_batch(b"".join(blocks), 1, Compression.ZSTD)


def _zstd_block(kind: int, size: int, *, is_last: bool) -> bytes:
    return (is_last | kind << 1 | size << 3).to_bytes(3, "little")


def produce_frame(
    topic: str, *batches: bytes, partition: int = 0, client_id: str = "attacker"
) -> bytes:
    """Return a Produce frame with acks=1; each batch is a separate element for one partition."""
    return request_frame(
        produce_request(topic, *batches, partition=partition), PRODUCE_VERSION, client_id=client_id
    )


def produce_request(topic: str, *batches: bytes, partition: int = 0) -> ProduceRequest:
    """Return the message of `produce_frame`, not encoded."""
    data = [PartitionProduceData(index=partition, records=batch) for batch in batches]
    topic_data = [TopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topic_data)


def produce(peer: Peer, topic: str, *batches: bytes) -> list[int]:
    """Produce, and return the error code of each batch."""
    response = peer.request(produce_request(topic, *batches), PRODUCE_VERSION)
    assert isinstance(response, ProduceResponse)
    return [data.error_code for one in response.responses for data in one.partition_responses]


def create_topic(
    target: Target, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> int:
    """Create a topic and return the error code."""
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=configs
    )
    with target.connect() as peer:
        response = peer.request(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
    assert isinstance(response, CreateTopicsResponse)
    return response.topics[0].error_code


def response_size(peer: Peer, frame: bytes) -> int | None:
    """Send a frame; return the response's size, or None if the broker closed the connection."""
    try:
        peer.send(frame)
        return len(peer.response())
    except ConnectionError:
        return None
