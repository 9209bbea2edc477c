"""Loads that measure a start: after a kill with a large log, and with many partitions or segments.

Each yields rounds endlessly, and stops its brokers at the end; see special_loads.py.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plogd.testing.broker_process import BrokerProcess
from tests.bench.meter import Meter
from tests.bench.peers import Kafka, Missing, Peer, Plog
from tests.bench.raw_connection import wait_for_records
from tests.bench.rounds import Round
from tests.bench.special_loads import SPARE_GB, Skipped, messages

if TYPE_CHECKING:
    from tests.bench.session import Session

_RECOVERY_GB = float(os.environ.get("BENCH_RECOVERY_GB", "10"))
_LAST_GB = 0.5
"""The end of the log consists of smaller batches than the rest, which is only written quickly."""
_TOPIC = "log"
_SETTLE_S = 12.0
"""Time after which recovery points and high watermarks are in the checkpoints, and the kernel has
written most of the log: both brokers write the checkpoints every 5 s."""
_CHECKPOINTS = {"log.flush.offset.checkpoint.interval.ms": "5000"}
_SEGMENT_BYTES = 1 << 30
_PARTITIONS = 2000
_READERS = 4
_DESCRIPTORS = 1024
_MANY = "--mode rawproduce --batch 1 --size 200"
_TINY_SEGMENTS = "--topic-conf segment.index.bytes=36 --topic-conf index.interval.bytes=0"
"""An index has room for 4 entries, so a segment has 5 batches."""
_BATCHES_EACH = 20
"""Besides the first batch of each partition, with which the producer waits for its leader."""


def recover(session: Session) -> Generator[Round]:
    """Kill a broker with a large log; measure the time from start to first response."""
    gb = 0.5 if session.quick else _RECOVERY_GB
    free_gb = shutil.disk_usage(session.folder).free / 1e9
    if free_gb < 2 * gb + SPARE_GB:
        raise Skipped(f"2 × {gb:g} GB and {SPARE_GB:g} to spare do not fit: {free_gb:.0f} free")
    peers: dict[str, Kafka | Plog] = {}
    try:
        for name, kind in (("kafka", Kafka), ("plog-default", Plog)):
            with contextlib.suppress(Missing):
                peer = kind(session.folder / f"recover-{name}", _CHECKPOINTS)
                peer.start()
                peers[name] = peer
                _write(session, peer, gb)
        while True:
            # At least once before each kill, both brokers write their checkpoints.
            time.sleep(_SETTLE_S)
            round_ = {}
            for name, peer in peers.items():
                round_[name] = _kill_and_start(peer)
                session.results.say("recover", name, "", round_[name])
            yield round_
    finally:
        for peer in peers.values():
            peer.stop()
            shutil.rmtree(peer.directory)


def _write(session: Session, peer: Peer, gb: float) -> None:
    bulk = "--mode rawproduce --batch 1000 --size 1000"
    if gb > _LAST_GB:
        session.run(peer, f"{bulk} --n {messages(gb - _LAST_GB)}", _TOPIC)
    session.run(peer, f"--mode rawproduce --batch 100 --size 1000 --n {messages(_LAST_GB)}", _TOPIC)


def _kill_and_start(peer: Kafka | Plog) -> dict[str, Any]:
    peer.kill()
    began = time.monotonic()
    peer.start()
    wait_for_records(peer.bootstrap, _TOPIC)
    figures: dict[str, Any] = {"start_s": round(time.monotonic() - began, 3)}
    sizes = _segment_sizes(peer.directory)
    figures["log_gb"] = round(sum(sizes) / 1e9, 2)
    # Everything that the broker and its ended children have read, including indexes and modules.
    read_bytes = _bytes_read(peer.pid)
    figures["read_gb"] = round(read_bytes / 1e9, 3)
    # The recovery point is the start of the last segment.
    figures["read_ratio"] = round(read_bytes / sizes[-1], 3)
    return figures


def _segment_sizes(directory: Path) -> list[int]:
    """Return the sizes of the segments of the topic, oldest first."""
    found = sorted(directory.rglob(f"{_TOPIC}-0/*.log"), key=lambda path: path.name)
    return [path.stat().st_size for path in found]


def _bytes_read(pid: int) -> int:
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        name, _, value = line.partition(": ")
        if name == "rchar":
            return int(value)
    raise LookupError(f"/proc/{pid}/io has no rchar")


def start_with_partitions(session: Session) -> Generator[Round]:
    """Start plog with 2,000 partitions after a clean stop; measure its time and memory."""
    folder = session.folder / "partitions"
    peer = session.start_new("plog", folder)
    partitions = _partitions(session)
    try:
        session.run(peer, f"{_MANY} --partitions {partitions} --n {partitions}", _TOPIC)
        while True:
            figures = _stop_and_start(peer)
            session.results.say("start-2000", "plog", "", figures)
            yield {"plog": figures}
    finally:
        peer.stop()
        shutil.rmtree(folder)


def start_with_segments(session: Session) -> Generator[Round]:
    """Start plog with 2,000 partitions of 5 segments each and few descriptors, and use them all."""
    folder = session.folder / "segments"
    peer = session.start_new("plog", folder)
    partitions = _partitions(session)
    try:
        count = _BATCHES_EACH * partitions
        session.run(peer, f"{_MANY} --partitions {partitions} --n {count} {_TINY_SEGMENTS}", _TOPIC)
        peer.stop()
        # With its defaults: a segment stays open until its records are synced, so a client that
        # does not wait for syncs could use up the descriptors on a slow disk.
        peer = _FewDescriptors(folder)
        peer.start()
        while True:
            figures = _stop_and_start(peer)
            figures["segments"] = len(list(folder.rglob(f"{_TOPIC}-*/*.log")))
            figures |= _use_all(session, peer, partitions)
            session.results.say("start-segments", "plog", "", figures)
            yield {"plog": figures}
    finally:
        peer.stop()
        shutil.rmtree(folder)


def _partitions(session: Session) -> int:
    return 100 if session.quick else _PARTITIONS


def _stop_and_start(peer: Peer) -> dict[str, Any]:
    peer.stop()
    began = time.monotonic()
    peer.start()
    wait_for_records(peer.bootstrap, _TOPIC)
    start_s = time.monotonic() - began
    return {
        "start_s": round(start_s, 3),
        # On a busy machine, the time of the start says little.
        "cpu_s": round(_cpu_s(peer.pid), 2),
        "rss_mb": round(Meter(peer.pid).memory()["broker_rss_mb"], 1),
    }


def _cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _use_all(session: Session, peer: Peer, partitions: int) -> dict[str, Any]:
    """Write to every partition, then read all records with several clients at the same time.

    Each of these commands fails if a partition responds with an error.
    """
    session.run(peer, f"{_MANY} --partitions {partitions} --n {partitions}", _TOPIC)
    fetch = f"--mode rawfetch --size 200 --partitions {partitions}"
    with ThreadPoolExecutor(_READERS) as readers:
        reads = [readers.submit(session.run, peer, fetch, _TOPIC) for _ in range(_READERS)]
        counts = {read.result()["n"] for read in reads}
    [count] = counts
    descriptors = len(os.listdir(f"/proc/{peer.pid}/fd"))
    return {"served": partitions, "read_messages": count, "descriptors": descriptors}


class _LimitedProcess(BrokerProcess):
    """A broker that may open few files."""

    def _command(self) -> list[str]:
        return ["prlimit", f"--nofile={_DESCRIPTORS}:{_DESCRIPTORS}", *super()._command()]


class _FewDescriptors(Plog):
    """plog with a limit of 1,024 open files."""

    def make_process(self, settings: Mapping[str, str]) -> BrokerProcess:
        return _LimitedProcess(self.directory, settings)
