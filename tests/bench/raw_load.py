"""Loads over one plain socket, which measure the broker with almost no CPU in the client.

`--protocol` chooses the broker for the two loads of the paper's figures: amqp_load.py and
stomp_load.py implement them for RabbitMQ and ActiveMQ.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

from tests.bench import amqp_load, confluent_load, stomp_load
from tests.bench.meter import Meter, per_message
from tests.bench.options import Options
from tests.bench.raw_connection import (
    API_VERSIONS,
    BUFFER_BYTES,
    Connection,
    acks_code,
    check_produced,
    fetch_frame,
    fetched_position,
    produce_frames,
    wait_for_leader,
)

_LARGEST_BATCH_BYTES = 4 << 20
_LOG_OVERHEAD, _HEADER_SIZE, _LAST_OFFSET_DELTA = 12, 61, 23


def rawproduce(options: Options, meter: Meter) -> dict[str, Any]:
    """Send one batch of `batch` messages repeatedly, with `depth` requests in flight."""
    if options.protocol == "amqp":
        return amqp_load.produce(options, meter)
    if options.protocol == "stomp":
        return stomp_load.produce(options, meter)
    confluent_load.create(options)
    frames = produce_frames(options)
    connection = Connection(options.bootstrap)
    if acks_code(options):
        for frame in frames:
            wait_for_leader(connection, frame, options)
    per_frame = max(options.batch, 1)
    if options.warmup:
        _pump(connection, frames, -(-options.warmup // per_frame), options)
    count = -(-options.n // per_frame)
    meter.start()
    _pump(connection, frames, count, options)
    figures = per_message(meter.stop(), count * per_frame, options.size)
    return {
        **figures,
        "requests_s": round(count / figures["wall_s"]),
        "broker_us_per_request": round(figures.get("broker_cpu_s", 0.0) / count * 1e6, 2),
        "request_bytes": len(frames[0]),
    }


def _pump(connection: Connection, frames: list[bytes], count: int, options: Options) -> None:
    has_responses = acks_code(options) != 0
    in_flight = 0
    for i in range(count):
        connection.send(frames[i % len(frames)])
        in_flight += has_responses
        if in_flight >= options.depth:
            connection.read()
            check_produced(connection, options)
            in_flight -= 1
    for _ in range(in_flight):
        connection.read()
        check_produced(connection, options)
    if (
        not has_responses
    ):  # A connection's requests are handled in order, so wait for the response to a last one.
        connection.send(API_VERSIONS)
        connection.read()


def rawfetch(options: Options, meter: Meter) -> dict[str, Any]:
    """Fetch each partition from start to end, with one request in flight; drop the records."""
    if options.protocol == "amqp":
        return amqp_load.consume(options, meter)
    if options.protocol == "stomp":
        return stomp_load.consume(options, meter)
    limit = options.fetch_bytes or BUFFER_BYTES
    connection = Connection(options.bootstrap, limit + _LARGEST_BATCH_BYTES)
    firsts = [_first_offset(connection, partition, options) for partition in _partitions(options)]
    messages = record_bytes = requests = 0
    meter.start()
    for partition, first in zip(_partitions(options), firsts, strict=True):
        offset, high_watermark = first, first + 1
        while offset < high_watermark and (not options.n or messages < options.n):
            connection.send(fetch_frame(options.topic, partition, offset, limit))
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


def _partitions(options: Options) -> range:
    return range(options.partitions)


def _first_offset(connection: Connection, partition: int, options: Options) -> int:
    """Return the offset `n` messages before the end for `--last`, otherwise the log's start."""
    if not options.last:
        return 0
    connection.send(fetch_frame(options.topic, partition, 0, 1))
    high_watermark = _read_fetch(connection, options, 0)[1]
    return max(high_watermark - int(options.n), 0)


def _read_fetch(connection: Connection, options: Options, offset: int) -> tuple[int, int, int]:
    """Return the next offset, the high watermark and the bytes of complete batches."""
    end = connection.read()
    view = connection.view
    position = fetched_position(options.topic)
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
