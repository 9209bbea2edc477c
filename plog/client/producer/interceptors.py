"""What a program may hang into its producer: a look at each record, before it goes and afterwards.

An interceptor that fails is logged and otherwise ignored. Source: KIP-42; Kafka 4.3
ProducerInterceptors.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from plog.client.producer.producer_batch import ProducerBatch
from plog.client.values import NO_TIMESTAMP, UNKNOWN_OFFSET, ProducerRecord, RecordMetadata

log = logging.getLogger("plog.client")

_UNKNOWN_PARTITION = -1
_UNKNOWN_SIZE = -1


class ProducerInterceptor(Protocol):
    """One of them, or a base to derive from. They are asked in the order they were given in."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """What is to be sent in place of `record`, before serializers; in the sender's thread."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Where a record went, or why it did not; its offset is -1 then.

        In the engine's thread, which is not to be kept, or in the sender's where `send` fails.
        """
        return

    def close(self) -> None:
        """The producer is closed."""
        return


class Interceptors:
    """All interceptors of a producer."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """`record` as the last one has left it."""
        for interceptor in self._interceptors:
            try:
                changed: object = interceptor.on_send(record)
            except Exception:
                log.exception("on_send of %r failed for topic %s", interceptor, record.topic)
                continue
            if isinstance(changed, ProducerRecord):
                record = changed
            else:
                log.error(
                    "on_send of %r returned %.80r for topic %s, which is no ProducerRecord: the"
                    " record goes as it was",
                    interceptor,
                    changed,
                    record.topic,
                )
        return record

    def on_batch(self, batch: ProducerBatch) -> None:
        """The records of `batch` have their outcome."""
        for index in range(batch.count):
            error = batch.error_at(index)
            # Also asyncio's CancelledError: the engine goes on, as it does after callbacks.
            self._acknowledge(batch.metadata_at(index), error, BaseException)

    def on_refusal(self, record: ProducerRecord, error: Exception) -> None:
        """`record` was not even taken to be sent."""
        partition = _UNKNOWN_PARTITION if record.partition is None else record.partition
        metadata = RecordMetadata(
            record.topic, partition, UNKNOWN_OFFSET, NO_TIMESTAMP, _UNKNOWN_SIZE, _UNKNOWN_SIZE
        )
        self._acknowledge(metadata, error, Exception)

    def close(self) -> None:
        """Tell all of them that it is over."""
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception:
                log.exception("closing %r failed", interceptor)

    def _acknowledge(
        self, metadata: RecordMetadata, error: Exception | None, ignored: type[BaseException]
    ) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except ignored:
                log.exception("on_acknowledgement of %r failed", interceptor)
