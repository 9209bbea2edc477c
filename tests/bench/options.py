"""The command line of clientbench.py, and defaults that the modes share."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from typing import Any

from tests.bench.payloads import KINDS

Options = argparse.Namespace
PROTOCOLS = ("kafka", "amqp", "stomp")
_NUMBERS = {
    "produce": 1_000_000,
    "rawproduce": 1_000_000,
    "each": 50_000,
    "paced": 10_000,
    "latency": 2000,
    "fsync": 1000,
}
"""The default of --n for each mode."""


def parse(modes: Iterable[str], description: str, argv: list[str] | None = None) -> Options:
    """Return the options, with defaults that depend on the mode."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    _add_target(parser, modes)
    _add_load(parser)
    options = parser.parse_args(argv)
    if options.mode in ("consume", "rawfetch") and not options.topic:
        parser.error("--topic is required")
    if options.mode in _NUMBERS and not options.n:
        options.n = _NUMBERS[options.mode]
    options.topic = options.topic or f"bench-{options.mode}-{time.time_ns() // 10**6}"
    return options


def client_config(options: Options, **settings: Any) -> dict[str, Any]:
    """Return librdkafka's settings: `settings` (with `_` for dots), then those of --conf."""
    config = {name.replace("_", "."): value for name, value in settings.items()}
    given = dict(pair.split("=", 1) for pair in options.conf)
    return {"bootstrap.servers": options.bootstrap, "log_level": 3, **config, **given}


def _add_target(parser: argparse.ArgumentParser, modes: Iterable[str]) -> None:
    add = parser.add_argument
    add("--bootstrap", default="127.0.0.1:9092")
    add(
        "--protocol",
        choices=PROTOCOLS,
        default="kafka",
        help="protocol of the broker; others than kafka: only rawproduce, rawfetch",
    )
    add("--mode", choices=list(modes), required=True)
    add(
        "--broker-pid",
        type=_pids,
        default=(0,),
        metavar="PID[,PID...]",
        help="processes whose CPU and memory to report",
    )
    add("--topic", help="topic (default: a new one; consume and rawfetch require it)")
    add("--partitions", type=int, default=1)
    add("--replication", type=int, default=1)
    add("--topic-conf", action="append", default=[], metavar="K=V")
    add("--delete", action="store_true", help="delete the topic after the run")
    add("--repeat", type=int, default=1)
    add("--label", default="", help="text to copy into the result")


def _pids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _add_load(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--n", type=int, default=0, help="messages; consume, rawfetch: 0 means all; fsync: syncs")
    add(
        "--last",
        action="store_true",
        help="rawfetch: fetch the last N messages instead of the first",
    )
    add("--warmup", type=int, default=0, help="messages before the measurement")
    add(
        "--size",
        type=int,
        default=200,
        help="size of a value in bytes; rawfetch: only for the figures",
    )
    add("--payload", choices=KINDS, default="log")
    add(
        "--batch",
        type=int,
        default=0,
        help="messages in a batch; 0: determined by --batch-bytes and --linger",
    )
    add("--batch-bytes", type=int, default=16384)
    add("--linger", type=float, default=5, help="ms")
    add("--depth", type=int, default=5, help="requests in flight")
    add("--acks", default="1")
    add("--idempotent", action="store_true")
    add("--compression", default="none")
    add("--fetch-bytes", type=int, default=0)
    add("--rate", type=float, default=100, help="latency, paced: messages per second")
    add("--connections", type=int, default=500)
    add("--poll", action="store_true", help="connections: long-poll instead of idling")
    add("--seconds", type=float, default=5)
    add(
        "--file-bytes",
        type=int,
        default=1_000_000_000,
        help="kcat: size of the access log in bytes",
    )
    add("--dir", default=".", help="kcat, fsync: directory for files")
    add("--conf", action="append", default=[], metavar="K=V", help="setting of librdkafka")
