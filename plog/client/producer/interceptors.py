"""Producer interceptors: application hooks that receive each record and, later, its outcome.

An exception in an interceptor is logged and otherwise ignored. Source: KIP-42; Kafka 4.3
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
    """The interface of interceptors, which can also serve as their base class.

    A producer calls its interceptors in the order in which they were passed to it.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send; `send` calls this with its record before serialization."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Handle a record's outcome; if the record failed, the offset is -1.

        The method runs in the engine's thread, which it must not block. If `send` fails, it runs in
        the caller's thread.
        """
        return

    def close(self) -> None:
        """Release resources; the producer calls this when it is closed."""
        return


class Interceptors:
    """All interceptors of a producer."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return `record` as changed by all interceptors."""
        for interceptor in self._interceptors:
            try:
                changed: object = interceptor.on_send(record)
            except Exception:
                # KIP-42: a failing interceptor must not prevent the send. The next interceptor
                # receives the record unchanged.
                log.exception("on_send of %r failed for topic %s", interceptor, record.topic)
                continue
            if isinstance(changed, ProducerRecord):
                record = changed
            else:
                log.error(
                    "on_send of %r returned %.80r for topic %s, which is not a ProducerRecord:"
                    " sending the record unchanged",
                    interceptor,
                    changed,
                    record.topic,
                )
        return record

    def on_batch(self, batch: ProducerBatch) -> None:
        """Report the outcome of every record in `batch`."""
        for index in range(batch.count):
            error = batch.error_at(index)
            # BaseException includes asyncio's CancelledError: the engine must continue, as it does
            # after a callback that raises.
            self._acknowledge(batch.metadata_at(index), error, BaseException)

    def on_refusal(self, record: ProducerRecord, error: Exception) -> None:
        """Report that `send` failed with `error` before it accepted `record`."""
        # As in Kafka, -1 means that no partition was chosen yet.
        partition = _UNKNOWN_PARTITION if record.partition is None else record.partition
        metadata = RecordMetadata(
            record.topic, partition, UNKNOWN_OFFSET, NO_TIMESTAMP, _UNKNOWN_SIZE, _UNKNOWN_SIZE
        )
        # This runs in the caller's thread, which must receive its KeyboardInterrupt.
        self._acknowledge(metadata, error, Exception)

    def close(self) -> None:
        """Close all interceptors."""
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception:
                # One interceptor's error must not prevent the others from closing.
                log.exception("closing %r failed", interceptor)

    def _acknowledge(
        self, metadata: RecordMetadata, error: Exception | None, ignored: type[BaseException]
    ) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except ignored:
                log.exception("on_acknowledgement of %r failed", interceptor)
