"""A process with a consumer that ZooKeeper coordinates: it prints `partition offset value` lines.

    python -m tests.cluster.zookeeper_consumer FACE BOOTSTRAP_SERVERS ZOOKEEPER_CONNECT GROUP TOPIC

FACE is blocking, aio or twisted. The process ends in an orderly way when its standard input closes.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from tests.helpers.client.faces import open_face


def main(face: str, bootstrap_servers: str, connect: str, group: str, topic: str) -> None:
    """Read until the standard input closes."""
    ends = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ends.set()

    threading.Thread(target=wait, daemon=True).start()
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "group_id": group,
        "coordination": "zookeeper",
        "zookeeper_connect": connect,
        "zookeeper_session_timeout_ms": 2_000,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 200,
    }
    with open_face(face) as opened:
        consumer = opened.consumer(topic, **settings)
        while not ends.is_set():
            for record in consumer.consume(100, timeout_s=0.1):
                print(record.partition, record.offset, record.value.decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
