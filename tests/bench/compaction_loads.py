"""Loads for the log cleaner: its CPU time, and its effect on the latency of produce requests.

A log is written while its topic has ``min.cleanable.dirty.ratio=1``, at which no broker compacts
it. Then the setting is lowered. Kafka and plog note the end of a compaction in the same file,
cleaner-offset-checkpoint.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from plog import Admin
from plog.client.admin import ConfigResource
from plog.records.builder import build_batch
from plog.wire.messages import produce
from tests.bench.cleaner_checkpoint import wait_until_compacted
from tests.bench.meter import Meter
from tests.bench.options import Options
from tests.bench.peers import Missing, Peer
from tests.bench.raw_connection import (
    PRODUCE_VERSION,
    Connection,
    check_produced,
    request_frame,
    wait_for_leader,
)
from tests.bench.rounds import Round

if TYPE_CHECKING:
    from tests.bench.session import Session

_RECORDS = 1_000_000
_QUICK_RECORDS = 100_000
_WRITES_PER_KEY = 10
"""A tenth of the records is left."""
_KEY = b"key-%012d"
_VALUE_BYTES = 184
_BATCH_RECORDS = 100
_IN_FLIGHT = 32
"""Requests that wait for their responses while a log is written, so that syncs do not delay it."""
_SEGMENT_BYTES = 4 << 20
_BACKOFF_MS = "100"
_MB = 1_000_000

_PARTITIONS = 8
_PACED = "--mode paced --acks all --batch 1 --rate 1000 --n 4000"


def compaction(session: Session) -> Generator[Round]:
    """Compact a log of 200-byte records with one value left of ten; measure the CPU time."""
    count = _QUICK_RECORDS if session.quick else _RECORDS
    peers = _present(session, ("kafka", "plog", "plog-interpreted"))
    for name, peer in peers.items():
        _set_backoff(peer)
        _compact(session, name, peer, f"compaction-warming-{name}", count)
    number = 0
    while True:
        number += 1
        yield {
            name: _compact(session, name, peer, f"compaction-{number}", count)
            for name, peer in peers.items()
        }


def _compact(session: Session, name: str, peer: Peer, topic: str, count: int) -> Mapping[str, Any]:
    _create_compacted(peer, topic, partitions=1)
    _write(peer, topic, count, partitions=1)
    meter = Meter(peer.pid)
    meter.start()
    _begin_compaction(peer, topic)
    end_offset = wait_until_compacted(peer, topic, partitions=1, least=count // 2)
    used = meter.stop()
    compacted_mb = end_offset * (_VALUE_BYTES + len(_KEY % 0)) / _MB
    figures = {**used, "mb": compacted_mb, "mb_per_cpu_s": compacted_mb / used["broker_cpu_s"]}
    _delete(peer, topic)
    session.results.say("compaction", name, "", figures)
    return figures


def produce_latency(session: Session) -> Generator[Round]:
    """Produce at an even rate without and with compactions; compare the latencies.

    Also beside a process that only uses CPU time with a compaction's priority: on a machine with
    two cores, that alone delays some requests.
    """
    peers = _present(session, ("plog", "plog-default"))
    count = (_QUICK_RECORDS if session.quick else _RECORDS // 2) * _PARTITIONS
    number = 0
    while True:
        number += 1
        round_ = {}
        for name, peer in peers.items():
            _set_backoff(peer)
            topic, paced_topic = f"compacted-{number}", f"paced-{number}"
            _create_compacted(peer, topic, partitions=_PARTITIONS)
            _write(peer, topic, count, partitions=_PARTITIONS)
            without = session.run(peer, _PACED, paced_topic)
            with _busy_process():
                beside_busy = session.run(peer, _PACED, paced_topic)
            began = time.monotonic()
            _begin_compaction(peer, topic)
            beside = session.run(peer, _PACED, paced_topic, delete=True)
            paced_s = time.monotonic() - began
            least = count // _PARTITIONS // 2
            wait_until_compacted(peer, topic, partitions=_PARTITIONS, least=least)
            _delete(peer, topic)
            round_[name] = {
                "without_ms": without["produce_ack_ms"],
                "beside_busy_ms": beside_busy["produce_ack_ms"],
                "with_ms": beside["produce_ack_ms"],
                "p99_ratio": _p99(beside) / _p99(without),
                "busy_p99_ratio": _p99(beside_busy) / _p99(without),
                "paced_s": paced_s,
                "compacting_s": time.monotonic() - began,
            }
            session.results.say("compaction-latency", name, "", round_[name])
        yield round_


def _p99(run: Mapping[str, Any]) -> float:
    return float(run["produce_ack_ms"]["p99"])


@contextlib.contextmanager
def _busy_process() -> Iterator[None]:
    """Run a process that uses a core, with the niceness of child_process.py."""
    code = "import os; os.nice(10)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield
        finally:
            process.kill()


def _present(session: Session, names: tuple[str, ...]) -> dict[str, Peer]:
    present = {}
    for name in names:
        try:
            present[name] = session.peer(name)
        except Missing:
            continue
    return present


def _set_backoff(peer: Peer) -> None:
    """Let the broker look for logs to compact often, so that it does not wait in a measurement."""
    with Admin(bootstrap_servers=peer.bootstrap) as admin:
        for broker_id in admin.describe_cluster().brokers:
            resource = ConfigResource.broker(broker_id)
            admin.alter_config(resource, {"log.cleaner.backoff.ms": _BACKOFF_MS})


def _create_compacted(peer: Peer, topic: str, *, partitions: int) -> None:
    configs = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "1",
        "segment.bytes": str(_SEGMENT_BYTES),
    }
    with Admin(bootstrap_servers=peer.bootstrap) as admin:
        admin.create_topic(topic, partitions, 1, configs=configs)


def _begin_compaction(peer: Peer, topic: str) -> None:
    with Admin(bootstrap_servers=peer.bootstrap) as admin:
        admin.alter_config(ConfigResource.topic(topic), {"min.cleanable.dirty.ratio": "0.01"})


def _delete(peer: Peer, topic: str) -> None:
    with Admin(bootstrap_servers=peer.bootstrap) as admin:
        admin.delete_topic(topic)


def _write(peer: Peer, topic: str, count: int, *, partitions: int) -> None:
    """Write `count` records; each key of a partition occurs ten times, in random order."""
    chance = random.Random(2011)
    values = [chance.randbytes(_VALUE_BYTES // 2).hex().encode() for _ in range(1000)]
    options = Options(topic=topic)
    connection = Connection(peer.bootstrap)
    for partition in range(partitions):
        keys = [_KEY % number for number in range(count // partitions // _WRITES_PER_KEY)]
        order = keys * _WRITES_PER_KEY
        chance.shuffle(order)
        frames = _frames(topic, partition, order, values)
        wait_for_leader(connection, next(frames), options)
        in_flight = 0
        for frame in frames:
            connection.send(frame)
            in_flight += 1
            if in_flight == _IN_FLIGHT:
                _read_produced(connection, options)
                in_flight -= 1
        for _ in range(in_flight):
            _read_produced(connection, options)
    connection.socket.close()


def _read_produced(connection: Connection, options: Options) -> None:
    connection.read()
    check_produced(connection, options)


def _frames(topic: str, partition: int, keys: list[bytes], values: list[bytes]) -> Iterator[bytes]:
    now_ms = int(time.time() * 1000)
    for start in range(0, len(keys), _BATCH_RECORDS):
        records = [
            (-1, now_ms, key, values[(start + number) % len(values)], ())
            for number, key in enumerate(keys[start : start + _BATCH_RECORDS])
        ]
        data = produce.PartitionProduceData(index=partition, records=build_batch(records))
        of_topic = produce.TopicProduceData(name=topic, partition_data=[data])
        request = produce.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[of_topic])
        yield request_frame(request, PRODUCE_VERSION)
