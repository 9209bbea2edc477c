"""A plain socket to a broker that speaks Kafka's protocol, and the few frames that raw loads send.

A load encodes its request once and sends the same bytes repeatedly; it reads only the fields below
from a response, so that the client uses almost no CPU.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Iterator

from plog.records.batch import Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.wire.header import RequestHeader, encode_request
from plog.wire.messages import api_versions, fetch, produce
from plog.wire.schema import ApiMessage
from tests.bench.options import Options
from tests.bench.payloads import payloads

# Versions that name topics and are not flexible, so that fields have fixed positions.
PRODUCE_VERSION = 7
FETCH_VERSION = 4
BUFFER_BYTES = 1 << 20
_CORRELATION_ID = 1
_NEW_TOPIC_ERRORS = {3, 5, 6}  # The partition may not have a leader yet.


def request_frame(message: ApiMessage, version: int) -> bytes:
    """Return the frame of a request."""
    return encode_request(
        RequestHeader(message.api_key, version, _CORRELATION_ID, "bench"), message
    )


API_VERSIONS = request_frame(api_versions.ApiVersionsRequest(), 0)


class Connection:
    """A blocking socket and the buffer for its responses."""

    def __init__(self, bootstrap: str, buffer_bytes: int = BUFFER_BYTES) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.view = memoryview(bytearray(buffer_bytes))
        self._have = 0

    def send(self, frame: bytes) -> None:
        """Send the whole frame."""
        self.socket.sendall(frame)

    def read(self) -> int:
        """Read one response into the start of the buffer; return its length with the size."""
        needed, have = 4, 0
        while have < needed:
            have += self._receive(have, needed)
            if have == needed == 4:
                needed += struct.unpack_from(">i", self.view)[0]
        return needed

    def read_some(self) -> Iterator[int]:
        """Receive once; return the positions in the buffer of all complete responses, maybe none.

        Must not be mixed with `read`: the buffer may contain the start of another response.
        """
        self._have += self._receive(self._have, len(self.view))
        start = 0
        while self._have - start >= 4:
            end = start + 4 + struct.unpack_from(">i", self.view, start)[0]
            if end > self._have:
                break
            yield start
            start = end
        rest = self._have - start
        if start and rest:
            self.view[:rest] = bytes(self.view[start : self._have])
        self._have = rest

    def _receive(self, start: int, end: int) -> int:
        received = self.socket.recv_into(self.view[start:end])
        if not received:
            sys.exit("clientbench: the broker closed the connection")
        return received


def acks_code(options: Options) -> int:
    """Return the code of --acks; ``all`` is -1."""
    return -1 if options.acks == "all" else int(options.acks)


def produce_frames(options: Options) -> list[bytes]:
    """Return the request for each partition, with one batch of `--batch` messages."""
    values = payloads(options.payload, options.size)
    now_ms = int(time.time() * 1000)
    records = [
        Record(value=values[i % len(values)], timestamp=now_ms)
        for i in range(max(options.batch, 1))
    ]
    batch = build_batch(records, compression=Compression[options.compression.upper()])
    frames = []
    for partition in range(options.partitions):
        data = produce.PartitionProduceData(index=partition, records=batch)
        topic = produce.TopicProduceData(name=options.topic, partition_data=[data])
        request = produce.ProduceRequest(
            acks=acks_code(options), timeout_ms=30_000, topic_data=[topic]
        )
        frames.append(request_frame(request, PRODUCE_VERSION))
    return frames


def produce_error(connection: Connection, options: Options, start: int = 0) -> int:
    """Return the partition's error code in the response at `start` of the buffer."""
    # size, correlation id, topics, name, partitions, index
    position = start + 4 + 4 + 4 + 2 + len(options.topic) + 4 + 4
    return int(struct.unpack_from(">h", connection.view, position)[0])


def check_produced(connection: Connection, options: Options, start: int = 0) -> None:
    """Exit if the response at `start` contains an error."""
    if error := produce_error(connection, options, start):
        sys.exit(f"clientbench: produce error {error}")


def wait_for_leader(connection: Connection, frame: bytes, options: Options) -> None:
    """Send `frame` until its partition has a leader."""
    while True:
        connection.send(frame)
        connection.read()
        error = produce_error(connection, options)
        if not error:
            return
        if error not in _NEW_TOPIC_ERRORS:
            sys.exit(f"clientbench: produce error {error}")
        time.sleep(0.05)


def fetch_frame(topic: str, partition: int, offset: int, limit: int, wait_ms: int = 100) -> bytes:
    """Return a fetch request for up to `limit` bytes of one partition."""
    wanted = fetch.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=limit
    )
    request = fetch.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=limit,
        topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])],
    )
    return request_frame(request, FETCH_VERSION)


def fetched_position(topic: str) -> int:
    """Return the position of the partition's error code in the response to a `fetch_frame`."""
    # size, correlation id, throttle, topics, name, partitions, index
    return 4 + 4 + 4 + 4 + 2 + len(topic) + 4 + 4


def wait_for_records(bootstrap: str, topic: str) -> None:
    """Wait until the broker returns records of the first partition."""
    connection = Connection(bootstrap)
    try:
        while True:
            connection.send(fetch_frame(topic, 0, 0, BUFFER_BYTES // 2))
            connection.read()
            if struct.unpack_from(">h", connection.view, fetched_position(topic))[0] == 0:
                return
            time.sleep(0.01)
    finally:
        connection.socket.close()
