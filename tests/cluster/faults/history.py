"""What clients have seen of a topic, and the check that a cluster may have caused it.

Producers report acknowledged records, and consumers the records that they read. Values are unique:
`value_of` contains the producer and the number of the record. Two records at the same offset are
found at once; the other anomalies are found by `check`, with the records at the end. May be used in
any thread.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence

Log = Sequence[tuple[int, bytes]]
"""The (offset, value) pairs of a partition, in the order in which they were read."""

_SHOWN_MAX = 20


def value_of(producer: str, number: int) -> bytes:
    """Return the value of a producer's record; numbers of a producer increase."""
    return f"{producer}-{number}".encode()


def producer_and_number(value: bytes) -> tuple[bytes, int]:
    """Return the parts of a value, also of a value of Kafka's VerifiableProducer.

    >>> producer_and_number(b"ours-12"), producer_and_number(b"7.12")
    ((b'ours-', 12), (b'7.', 12))
    """
    found = re.fullmatch(rb"(.*\D)(\d+)", value)
    assert found is not None, f"unexpected value {value!r}"
    return found[1], int(found[2])


class History:
    """The observations of all clients; partitions are those of one topic.

    Attributes:
        counts: number of events by name, for a report.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._values: dict[tuple[int, int], bytes] = {}
        self._acknowledged: dict[tuple[int, int], bytes] = {}
        self._commits: dict[tuple[str, int], int] = {}
        self._problems: list[str] = []

    # -- observations -------------------------------------------------------------------------

    def acknowledged(self, partition: int, offset: int, value: bytes) -> None:
        """Record that a producer's record was acknowledged with acks=all."""
        with self._lock:
            self.counts["acknowledged"] += 1
            self._acknowledged[partition, offset] = value
            self._seen(partition, offset, value)

    def rejected(self, reason: str) -> None:
        """Record that a producer's record has failed; it may be in the log or not."""
        with self._lock:
            self.counts[f"failed: {reason}"] += 1

    def read(self, partition: int, offset: int, value: bytes) -> None:
        """Record that a consumer has read a record."""
        with self._lock:
            self.counts["read"] += 1
            self._seen(partition, offset, value)

    def committed(self, group: str, partition: int, offset: int) -> None:
        """Record that a group's commit has succeeded."""
        with self._lock:
            self.counts["commits"] += 1
            key = group, partition
            self._commits[key] = max(offset, self._commits.get(key, 0))

    def fetched_commit(self, group: str, partition: int, offset: int) -> None:
        """Record the committed offset that the coordinator returns after all commits."""
        with self._lock:
            expected = self._commits.get((group, partition), 0)
            if offset < expected:
                self._problems.append(
                    f"lost commit: {group} has the committed offset {offset} in partition"
                    f" {partition}, but {expected} was acknowledged"
                )

    def count(self, event: str) -> None:
        """Count an event for the report."""
        with self._lock:
            self.counts[event] += 1

    def _seen(self, partition: int, offset: int, value: bytes) -> None:
        known = self._values.setdefault((partition, offset), value)
        if known != value:
            self._problems.append(
                f"two records at offset {offset} of partition {partition}: {known!r} and {value!r}"
            )

    # -- check --------------------------------------------------------------------------------

    @property
    def acknowledged_count(self) -> int:
        """Return the number of acknowledged records."""
        return self.counts["acknowledged"]

    def check(self, logs: Mapping[int, Log]) -> list[str]:
        """Return all anomalies; `logs` contains the records of each partition at the end."""
        with self._lock:
            problems = list(self._problems)
            present = {number: frozenset(log) for number, log in logs.items()}
            for (partition, offset), value in sorted(self._acknowledged.items()):
                if (offset, value) not in present[partition]:
                    problems.append(
                        f"lost record: {value!r} was acknowledged at offset {offset} of partition"
                        f" {partition}"
                    )
        for partition, log in sorted(logs.items()):
            problems += _order_problems(partition, log)
        return problems[:_SHOWN_MAX]


def _order_problems(partition: int, log: Log) -> list[str]:
    problems = []
    last_offset = -1
    last_numbers: dict[bytes, int] = {}
    for offset, value in log:
        if offset <= last_offset:
            problems.append(f"offset {offset} of partition {partition} follows {last_offset}")
        last_offset = offset
        producer, number = producer_and_number(value)
        previous = last_numbers.get(producer, -1)
        if number <= previous:
            problems.append(
                f"wrong order in partition {partition}: {value!r} follows number {previous}"
            )
        last_numbers[producer] = number
    return problems
