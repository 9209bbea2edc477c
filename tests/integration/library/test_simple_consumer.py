"""SimpleConsumer: ranges of offsets from plog and Apache Kafka, plaintext and over TLS."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import plog
from plog.client.simple import SimpleConsumer
from plog.errors import OffsetOutOfRange
from plog.types import TopicPartition
from plogd.testing.broker_process import BrokerProcess
from tests.integration.client_servers import KINDS, WITH_TLS, Server, server_of

_COUNT = 2_000


@pytest.fixture(
    params=[
        pytest.param(kind, marks=[] if kind.startswith("plog") else [pytest.mark.long])
        for kind in (*KINDS, *WITH_TLS)
    ]
)
def server(request: pytest.FixtureRequest) -> Server:
    return server_of(request, request.param)


def filled(settings: dict[str, Any], codec: str = "none") -> TopicPartition:
    """Return a new partition with `_COUNT` records in several batches."""
    partition = TopicPartition(f"ranges-{uuid.uuid4().hex[:12]}", 1)
    with plog.Admin(**settings) as admin:
        admin.create_topic(partition.topic, partitions=2)
    with plog.Producer(batch_size=2_000, compression_type=codec, **settings) as producer:
        for number in range(_COUNT):
            producer.send(partition.topic, b"%d" % number, partition=1, timestamp=10_000 + number)
    return partition


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_range_is_read_exactly(server: Server, codec: str) -> None:
    partition = filled(server.settings, codec)
    with SimpleConsumer(max_partition_fetch_bytes=20_000, **server.settings) as consumer:
        assert len(consumer.partitions_for(partition.topic)) == 2
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: _COUNT}
        found = consumer.offsets_for_times({partition: 10_500})[partition]
        assert found is not None and found.offset == 500
        records = consumer.records(partition, found.offset, 1_777)
        assert [int(record.value) for record in records] == list(range(500, 1_777))
        columns = consumer.arrow_batches(partition, 3, _COUNT, max_records=600)
        values = [batch["value"].to_pylist() for batch in columns]
        assert [int(value) for batch in values for value in batch] == list(range(3, _COUNT))
        assert [len(batch) for batch in values] == [600, 600, 600, 197]
        with pytest.raises(OffsetOutOfRange):
            next(consumer.records(partition, _COUNT + 1, _COUNT + 2))


def test_range_continues_after_a_kill_of_the_broker(own_broker: BrokerProcess) -> None:
    settings = {"bootstrap_servers": own_broker.bootstrap_servers}
    partition = filled(settings)
    with SimpleConsumer(max_partition_fetch_bytes=2_000, **settings) as consumer:
        records = consumer.records(partition, 0, _COUNT)
        values = [int(next(records).value) for _ in range(_COUNT // 2)]
        own_broker.kill()
        own_broker.start()
        values += [int(record.value) for record in records]
    assert values == list(range(_COUNT))
