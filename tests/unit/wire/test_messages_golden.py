"""Requests captured from real clients, decoded and encoded byte for byte.

They come from librdkafka 2.16 (confluent-kafka), connected to a broker with Kafka 4.3's versions:
an idempotent producer of one record, then a consumer with an assigned partition.
"""

from __future__ import annotations

import pytest

from plog.wire.header import RequestHeader, decode_request_header, encode_request
from plog.wire.messages import API_BY_KEY
from plog.wire.messages.api_versions import ApiVersionsRequest
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from plog.wire.messages.init_producer_id import InitProducerIdRequest
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from plog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from plog.wire.schema import ApiMessage

BATCH = bytes.fromhex(
    "0000000000000000000000420000000002"
    "0d1bc7480000000000000000018bcfe568000000018bcfe5680000000000000003e8000000000000"
    "00000001"
    "20000000026b0a68656c6c6f0202680276"
)
TOPIC_ID = bytes(range(16))

API_VERSIONS = (
    "0000003f 0012 0003 00000001 0006 676f6c64656e 00"
    "17 636f6e666c75656e742d6b61666b612d707974686f6e"
    "16 322e31362e312d72646b61666b612d322e31362e30 00"
)
METADATA = (
    "00000028 0003 000d 00000002 0006 676f6c64656e 00"
    "02 00000000000000000000000000000000 0274 00 01 00 00"
)
INIT_PRODUCER_ID = (
    "00000021 0016 0004 00000002 0006 676f6c64656e 00 00 ffffffff ffffffffffffffff ffff 00"
)
PRODUCE = (
    "00000072 0000 000a 00000003 0006 676f6c64656e 00 00 ffff 00007530"
    f"02 0274 02 00000000 4f {BATCH.hex()} 00 00 00"
)
FIND_COORDINATOR = "00000014 000a 0002 00000003 0006 676f6c64656e 0001 67 00"
LIST_OFFSETS = (
    "0000002d 0002 0007 00000003 0006 676f6c64656e 00 ffffffff 01"
    "02 0274 02 00000000 00000000 fffffffffffffffe 00 00 00"
)
FETCH = (
    "0000005d 0001 0010 00000004 0006 676f6c64656e 00"
    "000001f4 00000001 03200000 01 00000000 ffffffff"
    "02 000102030405060708090a0b0c0d0e0f 02 00000000 00000000 0000000000000000 ffffffff"
    "ffffffffffffffff 00100000 00 00 01 01 00"
)


@pytest.mark.parametrize(
    ("frame", "version", "correlation_id", "message"),
    [
        pytest.param(
            API_VERSIONS,
            3,
            1,
            ApiVersionsRequest(
                client_software_name="confluent-kafka-python",
                client_software_version="2.16.1-rdkafka-2.16.0",
            ),
            id="ApiVersions",
        ),
        pytest.param(
            METADATA,
            13,
            2,
            MetadataRequest(topics=[MetadataRequestTopic(name="t")]),
            id="Metadata",
        ),
        pytest.param(
            INIT_PRODUCER_ID,
            4,
            2,
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1),
            id="InitProducerId",
        ),
        pytest.param(
            PRODUCE,
            10,
            3,
            ProduceRequest(
                acks=-1,
                timeout_ms=30_000,
                topic_data=[
                    TopicProduceData(name="t", partition_data=[PartitionProduceData(records=BATCH)])
                ],
            ),
            id="Produce",
        ),
        pytest.param(FIND_COORDINATOR, 2, 3, FindCoordinatorRequest(key="g"), id="FindCoordinator"),
        pytest.param(
            LIST_OFFSETS,
            7,
            3,
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=1,
                topics=[
                    ListOffsetsTopic(
                        name="t",
                        partitions=[ListOffsetsPartition(current_leader_epoch=0, timestamp=-2)],
                    )
                ],
            ),
            id="ListOffsets",
        ),
        pytest.param(
            FETCH,
            16,
            4,
            FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=50 << 20,
                isolation_level=1,
                topics=[
                    FetchTopic(
                        topic_id=TOPIC_ID,
                        partitions=[
                            FetchPartition(current_leader_epoch=0, partition_max_bytes=1 << 20)
                        ],
                    )
                ],
            ),
            id="Fetch",
        ),
    ],
)
def test_captured_request_survives_round_trip(
    frame: str, version: int, correlation_id: int, message: ApiMessage
) -> None:
    data = bytes.fromhex(frame)
    header, position = decode_request_header(data[4:])
    assert header == RequestHeader(message.api_key, version, correlation_id, "golden")
    request = API_BY_KEY[header.api_key].request
    assert request.decode_prefix(data[4 + position :], version) == (
        message,
        len(data) - 4 - position,
    )
    assert encode_request(header, message) == data
