"""The topic `filled`, which the tests of options read, and options with offsets in it."""

from __future__ import annotations

import json

from plog.records.batch import Compression
from plog.records.codec import Record
from tests.spark.cluster import Cluster

TOPIC = "filled"
RECORDS = [
    Record(
        timestamp=1_000 * (offset + 1),
        key=None if offset % 3 == 0 else f"key-{offset}".encode(),
        value=None if offset % 5 == 0 else b"" if offset % 7 == 0 else bytes([offset]) * 9,
        headers=(("h", b"x"), ("h", None), ("é", b"")) if offset % 4 == 0 else (),
    )
    for offset in range(40)
]
"""The records of each partition: one second apart, with nulls and headers."""


def fill(cluster: Cluster) -> str:
    """Create the topic: RECORDS in its partitions 0 and 1, half of them in 2, none in 3."""
    cluster.create(TOPIC, 4)
    for partition, records in enumerate((RECORDS, RECORDS, RECORDS[:20])):
        for start in range(0, len(records), 10):
            compression = list(Compression)[(start // 10 + partition) % len(Compression)]
            part = records[start : start + 10]
            cluster.produce(TOPIC, partition, part, compression=compression)
    return TOPIC


def by_partition(**numbers: int) -> str:
    """Return JSON for the topic: p0=5 is partition 0 with 5."""
    return json.dumps({TOPIC: {name[1:]: number for name, number in numbers.items()}})
