"""Loads over plain sockets: the same encoded request again and again, the answer read and dropped.

Almost no CPU goes into the client, so these show what the broker itself can do.
"""

from __future__ import annotations

import resource
import selectors
import socket
import struct
import sys
import time
from typing import Any

from plog.records.batch import Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.wire.header import RequestHeader, encode_request
from plog.wire.messages import api_versions, fetch, produce
from plog.wire.schema import ApiMessage
from tests.bench import confluent_load
from tests.bench.meter import Meter, per_message, quantiles_ms
from tests.bench.options import Options
from tests.bench.payloads import payloads

# Versions that name topics and are not flexible: the places below stay easy to find in an answer.
PRODUCE_VERSION = 7
FETCH_VERSION = 4
_CORRELATION_ID = 1
_BUFFER_BYTES = 1 << 20
_LARGEST_BATCH_BYTES = 4 << 20
_NEW_TOPIC_ERRORS = {3, 5, 6}  # Its leader may not be there yet.
_LOG_OVERHEAD, _HEADER_SIZE, _LAST_OFFSET_DELTA = 12, 61, 23


def _frame(message: ApiMessage, version: int) -> bytes:
    return encode_request(
        RequestHeader(message.api_key, version, _CORRELATION_ID, "bench"), message
    )


API_VERSIONS = _frame(api_versions.ApiVersionsRequest(), 0)


class _Connection:
    """A blocking socket and the buffer its answers are read into."""

    def __init__(self, options: Options, buffer_bytes: int = _BUFFER_BYTES) -> None:
        host, _, port = options.bootstrap.split(",")[0].rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.view = memoryview(bytearray(buffer_bytes))

    def send(self, frame: bytes) -> None:
        self.socket.sendall(frame)

    def read(self) -> int:
        """One whole answer into the buffer; its length."""
        needed, have = 4, 0
        while have < needed:
            received = self.socket.recv_into(self.view[have:needed])
            if not received:
                sys.exit("clientbench: the broker closed the connection")
            have += received
            if have == needed == 4:
                needed += struct.unpack_from(">i", self.view)[0]
        return needed


def rawproduce(options: Options, meter: Meter) -> dict[str, Any]:
    """One record batch of `batch` messages, over and over, `depth` requests in flight."""
    confluent_load.create(options)
    frames = _produce_frames(options)
    connection = _Connection(options)
    acks = _acks(options)
    if acks:
        for frame in frames:
            _until_there(connection, frame, options)
    per_frame = max(options.batch, 1)
    if options.warmup:
        _pump(connection, frames, -(-options.warmup // per_frame), options)
    count = -(-options.n // per_frame)
    meter.start()
    _pump(connection, frames, count, options)
    figures = per_message(meter.stop(), count * per_frame, options.size)
    rate = round(count / figures["wall_s"])
    return {**figures, "requests_s": rate, "request_bytes": len(frames[0])}


def _acks(options: Options) -> int:
    return -1 if options.acks == "all" else int(options.acks)


def _produce_frames(options: Options) -> list[bytes]:
    """The request for each partition."""
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
        request = produce.ProduceRequest(acks=_acks(options), timeout_ms=30_000, topic_data=[topic])
        frames.append(_frame(request, PRODUCE_VERSION))
    return frames


def _produce_error(connection: _Connection, options: Options) -> int:
    """The error code of the one partition in the answer that comes next."""
    connection.read()
    # size, correlation id, topics, name, partitions, index
    position = 4 + 4 + 4 + 2 + len(options.topic) + 4 + 4
    return int(struct.unpack_from(">h", connection.view, position)[0])


def _until_there(connection: _Connection, frame: bytes, options: Options) -> None:
    connection.send(frame)
    while error := _produce_error(connection, options):
        if error not in _NEW_TOPIC_ERRORS:
            sys.exit(f"clientbench: produce error {error}")
        time.sleep(0.05)
        connection.send(frame)


def _pump(connection: _Connection, frames: list[bytes], count: int, options: Options) -> None:
    answered = _acks(options) != 0
    in_flight = 0

    def take_answer() -> None:
        if error := _produce_error(connection, options):
            sys.exit(f"clientbench: produce error {error}")

    for i in range(count):
        connection.send(frames[i % len(frames)])
        in_flight += answered
        if in_flight >= options.depth:
            take_answer()
            in_flight -= 1
    for _ in range(in_flight):
        take_answer()
    if not answered:  # Requests of one connection are done in order: wait for a last one.
        connection.send(API_VERSIONS)
        connection.read()


def rawfetch(options: Options, meter: Meter) -> dict[str, Any]:
    """Each partition from its start to its end, one request in flight, the records dropped."""
    limit = options.fetch_bytes or _BUFFER_BYTES
    connection = _Connection(options, limit + _LARGEST_BATCH_BYTES)
    messages = record_bytes = requests = 0
    meter.start()
    for partition in range(options.partitions):
        offset, high_watermark = 0, 1
        while offset < high_watermark and (not options.n or messages < options.n):
            connection.send(_fetch_frame(options.topic, partition, offset, limit))
            next_offset, high_watermark, size = _read_fetch(connection, options, offset)
            messages += next_offset - offset
            record_bytes += size
            requests += 1
            offset = next_offset
    used = meter.stop()
    if not messages:
        sys.exit(f"clientbench: {options.topic} is empty")
    figures = per_message(used, messages, options.size)
    return {
        **figures,
        "requests_s": round(requests / used["wall_s"]),
        "wire_mb_s": round(record_bytes / used["wall_s"] / 1e6, 1),
    }


def _fetch_frame(topic: str, partition: int, offset: int, limit: int, wait_ms: int = 100) -> bytes:
    wanted = fetch.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=limit
    )
    request = fetch.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=limit,
        topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])],
    )
    return _frame(request, FETCH_VERSION)


def _read_fetch(connection: _Connection, options: Options, offset: int) -> tuple[int, int, int]:
    """The next offset, the high watermark, and the bytes of whole batches in one answer."""
    end = connection.read()
    view = connection.view
    # size, correlation id, throttle, topics, name, partitions, index
    position = 4 + 4 + 4 + 4 + 2 + len(options.topic) + 4 + 4
    error, high_watermark, _, aborted = struct.unpack_from(">hqqi", view, position)
    if error:
        sys.exit(f"clientbench: fetch error {error}")
    start = position = position + 22 + max(aborted, 0) * 16 + 4
    while position + _HEADER_SIZE <= end:
        base, length = struct.unpack_from(">qi", view, position)
        if position + _LOG_OVERHEAD + length > end:
            break
        delta = struct.unpack_from(">i", view, position + _LAST_OFFSET_DELTA)[0]
        offset = base + delta + 1
        position += _LOG_OVERHEAD + length
    return offset, high_watermark, position - start


def connections(options: Options, meter: Meter) -> dict[str, Any]:
    """Many connections, idle or each long-polling an empty partition; then one request each."""
    confluent_load.create(options)
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    before_mb = meter.memory().get("broker_rss_mb", 0.0)
    started = time.monotonic()
    opened = []
    for _ in range(options.connections):
        connection = _Connection(options, 1 << 14)
        connection.send(API_VERSIONS)
        connection.read()
        opened.append(connection)
    open_s = time.monotonic() - started
    meter.start()
    polls = _hold(opened, options)
    used = meter.stop()
    times_us = []
    for connection in opened:
        asked = time.monotonic_ns()
        connection.send(API_VERSIONS)
        connection.read()
        times_us.append((time.monotonic_ns() - asked) / 1000)
        connection.socket.close()
    grown_kb = (used.get("broker_rss_mb", 0.0) - before_mb) * 1024
    return {
        **used,
        "connections": len(opened),
        "open_us_each": round(open_s / len(opened) * 1e6),
        "polls_s": round(polls / used["wall_s"]),
        "api_versions_ms": quantiles_ms(times_us),
        "broker_cpu_pct": round(100 * used.get("broker_cpu_s", 0.0) / used["wall_s"], 2),
        "rss_kb_per_connection": round(grown_kb / len(opened), 1),
    }


def _hold(opened: list[_Connection], options: Options) -> int:
    """Keep the connections for `seconds`; how many long polls were answered."""
    if not options.poll:
        time.sleep(options.seconds)
        return 0
    frame = _fetch_frame(options.topic, 0, 0, _BUFFER_BYTES, wait_ms=500)
    polls, end = 0, time.monotonic() + options.seconds
    with selectors.DefaultSelector() as selector:
        waiting = {connection.socket: connection for connection in opened}
        for connection in opened:
            connection.send(frame)
            selector.register(connection.socket, selectors.EVENT_READ)
        while waiting:
            for key, _ in selector.select():
                connection = waiting[key.fileobj]  # type: ignore[index]
                connection.read()
                polls += 1
                if time.monotonic() < end:
                    connection.send(frame)
                else:
                    selector.unregister(key.fileobj)
                    del waiting[connection.socket]
    return polls
