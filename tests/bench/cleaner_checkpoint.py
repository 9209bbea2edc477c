"""Wait for a compaction by cleaner-offset-checkpoint, which Kafka and plog write at its end."""

from __future__ import annotations

import time

from tests.bench.load import StepFailed
from tests.bench.peers import Peer

_TIMEOUT_S = 120.0


def wait_until_compacted(peer: Peer, topic: str, *, partitions: int, least: int) -> int:
    """Wait until all partitions are compacted up to an offset of `least` or more.

    Returns the sum of the offsets. Raises StepFailed.
    """
    give_up = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < give_up:
        offsets = [_compacted_offset(peer, topic, number) for number in range(partitions)]
        if min(offsets) >= least:
            return sum(offsets)
        time.sleep(0.02)
    raise StepFailed(f"{topic} was not compacted within {_TIMEOUT_S:g} s")


def _compacted_offset(peer: Peer, topic: str, partition: int) -> int:
    """Return the offset up to which a partition is compacted, or -1."""
    for path in peer.directory.rglob("cleaner-offset-checkpoint"):
        for line in path.read_text().splitlines():
            if line.startswith(f"{topic} {partition} "):
                return int(line.split()[2])
    return -1
