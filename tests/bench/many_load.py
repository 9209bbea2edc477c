"""Loads over many plain sockets or to many partitions: the cost of waiting and of sharing.

`connections` holds them idle or long-polling; `each` keeps one produce request in flight on each;
`paced` sends one-message requests at an even rate to all partitions in turn.
"""

from __future__ import annotations

import resource
import selectors
import time
from collections import deque
from typing import Any

from tests.bench import confluent_load
from tests.bench.meter import Meter, per_message, quantiles_ms
from tests.bench.options import Options
from tests.bench.raw_connection import (
    API_VERSIONS,
    BUFFER_BYTES,
    Connection,
    check_produced,
    fetch_frame,
    produce_frames,
    wait_for_leader,
)

_SMALL_BUFFER_BYTES = 1 << 14


def _open(options: Options) -> list[Connection]:
    """Open `--connections` connections and wait for a response on each."""
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    opened = []
    for _ in range(options.connections):
        connection = Connection(options.bootstrap, _SMALL_BUFFER_BYTES)
        connection.send(API_VERSIONS)
        connection.read()
        opened.append(connection)
    return opened


def connections(options: Options, meter: Meter) -> dict[str, Any]:
    """Hold many connections, idle or long-polling an empty partition; then use each once."""
    confluent_load.create(options)
    before_mb = meter.memory().get("broker_rss_mb", 0.0)
    started = time.monotonic()
    opened = _open(options)
    open_s = time.monotonic() - started
    meter.start()
    polls = _hold(opened, options)
    used = meter.stop()
    times_us = []
    for connection in opened:
        sent_ns = time.monotonic_ns()
        connection.send(API_VERSIONS)
        connection.read()
        times_us.append((time.monotonic_ns() - sent_ns) / 1000)
        connection.socket.close()
    grown_kb = (used.get("broker_rss_mb", 0.0) - before_mb) * 1024
    broker_s = used.get("broker_cpu_s", 0.0)
    return {
        **used,
        "connections": len(opened),
        "open_us_each": round(open_s / len(opened) * 1e6),
        "polls_s": round(polls / used["wall_s"]),
        "broker_us_per_poll": round(broker_s / polls * 1e6, 1) if polls else None,
        "api_versions_ms": quantiles_ms(times_us),
        "broker_cpu_pct": round(100 * broker_s / used["wall_s"], 2),
        "rss_kb_per_connection": round(grown_kb / len(opened), 1),
    }


def _hold(opened: list[Connection], options: Options) -> int:
    """Hold the connections for `seconds`; return the number of completed long polls."""
    if not options.poll:
        time.sleep(options.seconds)
        return 0
    frame = fetch_frame(options.topic, 0, 0, BUFFER_BYTES, wait_ms=500)
    polls, end = 0, time.monotonic() + options.seconds
    with selectors.DefaultSelector() as selector:
        for connection in opened:
            connection.send(frame)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        while selector.get_map():
            for key, _ in selector.select():
                key.data.read()
                polls += 1
                if time.monotonic() < end:
                    key.data.send(frame)
                else:
                    selector.unregister(key.fileobj)
    return polls


def each(options: Options, meter: Meter) -> dict[str, Any]:
    """Run `--connections` producers with one request in flight each; `n` requests in total."""
    confluent_load.create(options)
    frames = produce_frames(options)
    opened = _open(options)
    wait_for_leader(opened[0], frames[0], options)
    if options.warmup:
        _round_and_round(opened, frames[0], options.warmup, options)
    meter.start()
    _round_and_round(opened, frames[0], options.n, options)
    figures = per_message(meter.stop(), options.n * max(options.batch, 1), options.size)
    return {
        **figures,
        "requests_s": round(options.n / figures["wall_s"]),
        "broker_us_per_request": round(figures.get("broker_cpu_s", 0.0) / options.n * 1e6, 2),
    }


def _round_and_round(opened: list[Connection], frame: bytes, count: int, options: Options) -> None:
    unsent = count
    with selectors.DefaultSelector() as selector:
        for connection in opened[:count]:
            connection.send(frame)
            unsent -= 1
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        while selector.get_map():
            for key, _ in selector.select():
                key.data.read()
                check_produced(key.data, options)
                if unsent:
                    key.data.send(frame)
                    unsent -= 1
                else:
                    selector.unregister(key.fileobj)


def paced(options: Options, meter: Meter) -> dict[str, Any]:
    """Send requests at `--rate` without waiting for responses; measure their latencies."""
    confluent_load.create(options)
    frames = produce_frames(options)
    connection = Connection(options.bootstrap)
    for frame in frames:
        wait_for_leader(connection, frame, options)
    _at_rate(connection, frames, options.warmup or len(frames), options)
    meter.start()
    times_us = _at_rate(connection, frames, options.n, options)
    used = meter.stop()
    return {**used, "n": options.n, "rate": options.rate, "produce_ack_ms": quantiles_ms(times_us)}


def _at_rate(
    connection: Connection, frames: list[bytes], count: int, options: Options
) -> list[float]:
    """Return the microseconds from when each request was due until its response, in order."""
    times_us: list[float] = []
    waiting: deque[float] = deque()
    began = time.monotonic()
    sent = 0
    with selectors.DefaultSelector() as selector:
        selector.register(connection.socket, selectors.EVENT_READ)
        while len(times_us) < count:
            now = time.monotonic()
            while sent < count and now >= began + sent / options.rate:
                waiting.append(began + sent / options.rate)
                connection.send(frames[sent % len(frames)])
                sent += 1
            next_due = began + sent / options.rate if sent < count else now + 1
            if selector.select(max(next_due - now, 0)):
                for start in connection.read_some():
                    check_produced(connection, options, start)
                    times_us.append((time.monotonic() - waiting.popleft()) * 1e6)
    return times_us
