"""A batch is encoded once for each set of sequence numbers."""

from __future__ import annotations

from threading import Lock
from typing import Any

import pytest

from plog.client.producer.batch_encoder import BatchEncoder
from plog.client.producer.partition_queue import PartitionQueue, TopicQueues
from plog.client.producer.producer_batch import ProducerBatch
from plog.client.producer.sequence_numbers import ProducerIdentity
from plog.client.settings import ProducerSettings
from plog.records.batch import Compression, parse_header
from plog.records.reader import iter_records
from tests.unit.client.producer.producer_site import ready


def site(**options: Any) -> tuple[BatchEncoder, PartitionQueue, ProducerBatch]:
    settings = ProducerSettings.from_options(bootstrap_servers="b:1", **options)
    topic = TopicQueues("t", batch_size=1_000)
    queue = PartitionQueue(topic, 0, None)
    batch = queue.begin_batch(Lock(), created_s=0, limit_bytes=1_000)
    batch.records = [(-1, 1_000, b"k", b"x" * 100, ())] * 9
    batch.size_bytes = 61 + 9 * 112
    return BatchEncoder(settings), queue, batch


def test_encoded_batch_has_producer_id_and_sequence() -> None:
    encoder, queue, batch = site()
    batch.identity, batch.base_sequence = ProducerIdentity(4000, 7), 12
    header = parse_header(encoder.encode(batch, queue))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 7, 12)
    assert header.records_count == 9


def test_encoded_batch_without_numbers_has_none() -> None:
    encoder, queue, batch = site()
    header = parse_header(encoder.encode(batch, queue))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_batch_is_encoded_once_per_sequence() -> None:
    encoder, queue, batch = site()
    assert encoder.expected_bytes(queue) == batch.size_bytes
    encoded = encoder.encode(batch, queue)
    assert encoder.encode(batch, queue) is encoded
    assert encoder.expected_bytes(queue) == len(encoded) == encoder.uncompressed_bytes(batch)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression_ratio_is_remembered(codec: str) -> None:
    encoder, queue, batch = site(compression_type=codec)
    encoded = encoder.encode(batch, queue)
    assert parse_header(encoded).compression is Compression[codec.upper()]
    assert len(list(iter_records(encoded))) == 9
    assert queue.topic.ratio < 1
    assert encoder.uncompressed_bytes(batch) == batch.size_bytes > len(encoded)
    queue.begin_batch(Lock(), created_s=0, limit_bytes=1_000).size_bytes = 1_000
    queue.batches.popleft()
    assert encoder.expected_bytes(queue) == int(1_000 * queue.topic.ratio)


def test_batch_that_cannot_be_encoded_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    site = ready()
    encode, wrong = site.core._sender._encoder.encode, [True]

    def fail_once(*arguments: Any) -> bytes:
        if wrong:
            raise ZeroDivisionError(wrong.pop())
        return encode(*arguments)

    site.core._sender._encoder.encode = fail_once  # type: ignore[method-assign]
    [handle] = site.sent(b"v")
    site.flush()
    assert isinstance(handle.error(), ZeroDivisionError)
    assert "cannot encode a batch for" in caplog.text
    [after] = site.sent(b"w")
    site.flush()
    assert after.metadata().offset == 0
