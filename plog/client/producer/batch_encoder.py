"""Encode and compress the records of a batch just before the batch is sent.

Encoding runs in the engine's thread, so it does not slow down the application's calls to `send`. A
retry with unchanged sequence numbers reuses the encoded bytes.
"""

from __future__ import annotations

from plog.client.producer.partition_queue import PartitionQueue
from plog.client.producer.producer_batch import ProducerBatch
from plog.client.settings import ProducerSettings
from plog.records.batch import NO_PRODUCER_ID, Compression
from plog.records.builder import build_batch

_NO_EPOCH = -1


class BatchEncoder:
    """An encoder of batches with the producer's ``compression.type`` and level settings."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._compression = Compression[settings.compression_type.upper()]
        levels = {
            Compression.GZIP: settings.compression_gzip_level,
            Compression.LZ4: settings.compression_lz4_level,
            Compression.ZSTD: settings.compression_zstd_level,
        }
        self._is_transactional = settings.transactional_id is not None
        self._level = levels.get(self._compression)
        # In Kafka's setting, level -1 means zlib's default.
        if self._compression is Compression.GZIP and self._level == -1:
            self._level = None

    def expected_bytes(self, queue: PartitionQueue) -> int:
        """Return the actual or estimated encoded size of the first batch in `queue`."""
        batch = queue.batches[0]
        # A batch that was sent before has a known size.
        if batch.encoded is not None:
            return len(batch.encoded)
        if self._compression is Compression.NONE:
            return batch.size_bytes
        # An exact size would require compressing a batch that may not fit into this request, so
        # estimate it, as Kafka's producer does.
        return int(batch.size_bytes * queue.topic.ratio)

    def uncompressed_bytes(self, batch: ProducerBatch) -> int:
        """Return the approximate uncompressed size of an encoded batch."""
        if self._compression is Compression.NONE and batch.encoded is not None:
            return len(batch.encoded)
        return batch.size_bytes

    def encode(self, batch: ProducerBatch, queue: PartitionQueue) -> bytes:
        """Return `batch` encoded with its current sequence numbers.

        Raises InvalidTimestamp if its timestamps do not fit into one batch.
        """
        # A retry need not compress the records again: `encoded` is cleared whenever the sequence
        # numbers change.
        if batch.encoded is not None:
            return batch.encoded
        identity = batch.identity
        encoded = build_batch(
            batch.records,
            compression=self._compression,
            level=self._level,
            producer_id=NO_PRODUCER_ID if identity is None else identity.producer_id,
            producer_epoch=_NO_EPOCH if identity is None else identity.epoch,
            base_sequence=batch.base_sequence,
            is_transactional=self._is_transactional,
        )
        batch.encoded = encoded
        if self._compression is not Compression.NONE:
            # The ratio adjusts the size limit of later batches, so that they have about batch.size
            # bytes after compression.
            queue.topic.expect_ratio(len(encoded) / batch.size_bytes)
        return encoded
