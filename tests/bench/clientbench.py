"""A load driver for all brokers; prints one JSON line per run.

    python -m tests.bench.clientbench --bootstrap 127.0.0.1:9092 --broker-pid PID \\
        --mode produce --n 2000000 --batch 50

produce, consume, latency, topics and delete go through confluent-kafka (confluent_load.py);
rawproduce, rawfetch (raw_load.py), connections, each and paced (many_load.py) use plain sockets;
kcat, idle and fsync are in system_load.py. A JVM needs --warmup before its figures are stable.
README.md explains how to get reliable figures.
"""

from __future__ import annotations

import json
import sys

from tests.bench import confluent_load, many_load, raw_load, system_load
from tests.bench.meter import Meter
from tests.bench.options import parse

MODES = {
    "produce": confluent_load.produce,
    "consume": confluent_load.consume,
    "latency": confluent_load.latency,
    "topics": confluent_load.topics,
    "delete": confluent_load.remove,
    "rawproduce": raw_load.rawproduce,
    "rawfetch": raw_load.rawfetch,
    "connections": many_load.connections,
    "each": many_load.each,
    "paced": many_load.paced,
    "kcat": system_load.kcat,
    "idle": system_load.idle,
    "fsync": system_load.fsync,
}
# The options in which results must agree to be comparable.
COMPARABLE_OPTIONS = ("batch", "acks", "compression", "partitions", "payload", "depth")


def main(argv: list[str] | None = None) -> int:
    """Run one mode, `--repeat` times."""
    options = parse(MODES, str(__doc__), argv)
    for _ in range(options.repeat):
        figures = MODES[options.mode](options, Meter(*options.broker_pid))
        comparable = {
            name: getattr(options, name) for name in COMPARABLE_OPTIONS if "produce" in options.mode
        }
        head = {"label": options.label, "mode": options.mode, "topic": options.topic}
        print(json.dumps({**head, **comparable, **figures}), flush=True)
    if options.delete and options.protocol == "kafka":
        confluent_load.delete(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
