"""Loads that start and stop their own brokers, or fill a disk. Each yields rounds endlessly."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.meter import Meter
from tests.bench.peers import Missing, Peer
from tests.bench.raw_connection import wait_for_records
from tests.bench.rounds import Round

if TYPE_CHECKING:
    from tests.bench.session import Session

_TOPICS = 10
_CONNECTIONS = 2000
_SETTLE_S = 2.0
_BIG_GB = float(os.environ.get("BENCH_LOG_GB", "50"))
SPARE_GB = 10.0
_BATCHES = "--mode rawproduce --batch 100 --size 1000 --topic-conf segment.bytes=104857600"
_MESSAGES_PER_GB = 1_000_000


class Skipped(Exception):
    """The load cannot run on this machine; the message says why."""


def start_again(session: Session) -> Generator[Round]:
    """Stop a broker with ten topics cleanly; measure the time from start to first response."""
    peers: dict[str, Peer] = {}
    try:
        for name in ("kafka", "plog"):
            try:
                peers[name] = session.start_new(name, session.folder / f"start-{name}")
            except Missing:
                continue
            for number in range(_TOPICS):
                session.run(
                    peers[name], "--mode rawproduce --batch 10 --n 100000", f"topic-{number}"
                )
        while True:
            round_ = {}
            for name, peer in peers.items():
                peer.stop()
                began = time.monotonic()
                peer.start()
                wait_for_records(peer.bootstrap, "topic-0")
                round_[name] = {"start_s": round(time.monotonic() - began, 3)}
                session.results.say("start", name, "", round_[name])
            yield round_
    finally:
        for peer in peers.values():
            peer.stop()


def memory(session: Session) -> Generator[Round]:
    """Measure the memory of a new plog: idle, with idle connections, with a thousand partitions."""
    number = 0
    while True:
        number += 1
        folder = session.folder / f"memory-{number}"
        peer = session.start_new("plog", folder)
        try:
            time.sleep(_SETTLE_S)
            figures: dict[str, Any] = {"idle_mb": _rss_mb(peer)}
            command = f"--mode connections --connections {_CONNECTIONS} --seconds 2"
            idle = session.run(peer, command, "empty")
            figures["connection_kb"] = idle["rss_kb_per_connection"]
            # Restart: memory that the connections freed would hide the partitions' memory.
            peer.stop()
            peer.start()
            many = session.run(peer, "--mode topics --partitions 1000", "many")
            grown_mb = many["broker_rss_mb"] - many["broker_rss_before_mb"]
            figures["partitions_mb"] = round(grown_mb * 1000 / many["partitions"], 1)
        finally:
            peer.stop()
            shutil.rmtree(folder)
        session.results.say("memory", "plog", "", figures)
        yield {"plog": figures}


def after_the_runs(session: Session) -> Generator[Round]:
    """Measure the memory of the brokers after all other loads."""
    while True:
        round_ = {}
        for name in ("kafka", "plog"):
            try:
                round_[name] = {"rss_mb": _rss_mb(session.peer(name))}
            except Missing:
                continue
            session.results.say("after", name, "", round_[name])
        yield round_


def _rss_mb(peer: Peer) -> float:
    return round(Meter(peer.pid).memory()["broker_rss_mb"], 1)


def big_log(session: Session) -> Generator[Round]:
    """Append one GB to a very large log and to a new one, and fetch it.

    Each log has its own plog. The large log is written once, in full. The segments are so small
    that both logs seal the same number of them: a seal syncs its whole segment, which takes 0.1 s
    of the broker's CPU time per GB. With segments of 1 GB, only the large log sealed any.
    """
    big_gb = 1.0 if session.quick else _BIG_GB
    free_gb = shutil.disk_usage(session.folder).free / 1e9
    if free_gb < big_gb + SPARE_GB:
        raise Skipped(f"{big_gb:g} GB and {SPARE_GB:g} to spare do not fit: {free_gb:.0f} free")
    folders = {name: session.folder / f"{name}-log" for name in ("big", "small")}
    peers = {name: session.start_new("plog", folder) for name, folder in folders.items()}
    try:
        session.run(peers["big"], f"{_BATCHES} --n {messages(big_gb)}", "log")
        number = 0
        while True:
            number += 1
            runs: dict[str, Any] = {}
            for name, peer in peers.items():
                topic = "log" if name == "big" else f"log-{number}"
                runs[name] = _append_and_fetch(session, peer, topic, new=name == "small")
                session.results.say("big-log", name, "", runs[name]["produce"])
            yield {"plog": _compared(runs, folders["big"])}
    finally:
        for name, peer in peers.items():
            peer.stop()
            shutil.rmtree(folders[name])


def messages(gb: float) -> int:
    """Return the number of messages of 1,000 bytes that have this size."""
    return int(gb * _MESSAGES_PER_GB)


def _append_and_fetch(session: Session, peer: Peer, topic: str, *, new: bool) -> dict[str, Any]:
    if new:
        session.run(peer, f"{_BATCHES} --n {messages(0.5)}", topic)
    count = messages(0.5)
    produced = session.run(peer, f"{_BATCHES} --n {count}", topic)
    fetch = f"--mode rawfetch --last --size 1000 --n {count}"
    return {"produce": produced, "fetch": session.run(peer, fetch, topic, delete=new)}


def _compared(runs: dict[str, Any], folder: Path) -> dict[str, Any]:
    size = sum(path.stat().st_size for path in folder.rglob("*.log"))
    figures: dict[str, Any] = {"log_gb": round(size / 1e9, 1)}
    for step in ("produce", "fetch"):
        big, small = (runs[name][step] for name in ("big", "small"))
        name = "broker_cpu_s_per_gb"
        # A --quick fetch may use less than a clock tick of CPU.
        figures[f"{step}_ratio"] = round(big[name] / small[name], 3) if small[name] else None
        for side, used in (("big", big), ("small", small)):
            figures |= {f"{step}.{side}.{k}": used[k] for k in ("wall_s", "other_cpu_s", name)}
    return figures
