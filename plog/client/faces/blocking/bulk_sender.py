"""`BulkSender`: sends lists of records, for callers that need no future for each record.

`Producer.send` checks each record, creates a future for it and calls back when it is delivered. For
records of 200 bytes, that takes two thirds of the time of the producer. Spark's sink
(plog/spark/sink) has checked its records and needs only the first error, so it sends lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plog.client.faces.blocking.producer import Producer
from plog.client.producer.producer_batch import OnFailure
from plog.records.codec import RecordFields

_SLICE: Final = 500
"""Records that are added together."""


class BulkSender:
    """Sends lists of records with `producer`. Thread-safe."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._send_all = producer._core.send_all

    def send_all(
        self,
        topic: str,
        partition: int | None,
        records: Sequence[RecordFields],
        on_failure: OnFailure,
    ) -> None:
        """Send records, whose offsets must be -1; wait only for metadata and buffer memory.

        Without a `partition`, each record's key selects it. The order of the records of a partition
        stays the same. `on_failure` is called with the error, in the client's thread, for each
        batch in which a record failed. Raises the errors of `Producer.send`; records that are not
        sent by then are dropped.
        """
        self._producer._check()
        # A full buffer accepts a batch at a time, and each attempt looks at all records of a slice.
        for start in range(0, len(records), _SLICE):
            rest = records[start : start + _SLICE]
            while rest := self._send_all(topic, partition, rest, on_failure):
                # The producer waits for metadata or memory, or rejects the record.
                _, timestamp, key, value, headers = rest[0]
                self._producer.send(
                    topic,
                    value,
                    key,
                    partition=partition,
                    timestamp=timestamp,
                    headers=headers,
                    on_delivery=lambda _, error: on_failure(error) if error else None,
                )
                rest = rest[1:]

    def flush(self) -> None:
        """Wait until all records are delivered or have failed."""
        self._producer.flush()
