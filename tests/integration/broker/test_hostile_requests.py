"""Requests designed to cost the broker as much as possible, while another client is served.

They contain many elements, huge counts without the elements, or small batches that decompress to
large ones. `Pings` fails if the other client gets no response. The work of one turn is bounded by
counting its steps (tests/fuzz/targets/hostile_counts.py), because waits depend on the machine.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from plog.errors import ErrorCode
from plog.records.batch import Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from plog.wire.messages.delete_groups import DeleteGroupsRequest
from plog.wire.messages.describe_groups import DescribeGroupsRequest
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from plog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from plog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from plog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from plog.wire.messages.user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from plog.wire.schema import ApiMessage
from plogd.testing.broker_process import BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.helpers.hostile import HostileConnection, Pings, frame_of, memory_mb
from tests.helpers.log.broker_log import assert_one_line

_ALLOWED_COUNT = 49_000
_EXCESSIVE_COUNT = 200_000
_COMPACTED, _PLAIN = "bombed-compacted", "bombed"


@pytest.fixture(scope="module")
def broker(plog_broker_factory: BrokerFactory) -> Iterator[BrokerProcess]:
    """A separate broker, so that tests can measure its memory."""
    started = plog_broker_factory({"auto.create.topics.enable": "false"})
    topics = [
        CreatableTopic(name=_PLAIN, num_partitions=1, replication_factor=1),
        CreatableTopic(
            name=_COMPACTED,
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
        ),
    ]
    with HostileConnection(started) as connection:
        connection.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
    yield started
    started.stop()
    assert "Traceback" not in started.log_text()


def _names(count: int) -> list[str]:
    return [f"g{number}" for number in range(count)]


def _offset_commit(count: int) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=number)
        for number in range(count)
    ]
    topic = OffsetCommitRequestTopic(name=_PLAIN, partitions=partitions)
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])


def _request_of(api: str, count: int) -> tuple[ApiMessage, int]:
    """Return a request with `count` elements, and its version."""
    match api:
        case "DescribeGroups":
            return DescribeGroupsRequest(groups=_names(count)), 5
        case "DeleteGroups":
            return DeleteGroupsRequest(groups_names=_names(count)), 2
        case "FindCoordinator":
            return FindCoordinatorRequest(coordinator_keys=_names(count)), 4
        case "OffsetFetch":
            groups = [OffsetFetchRequestGroup(group_id=x, topics=None) for x in _names(count)]
            return OffsetFetchRequest(groups=groups), 8
        case "OffsetCommit":
            return _offset_commit(count), 8
        case "DescribeUserScramCredentials":
            users = [UserName(name=name) for name in _names(count)]
            return DescribeUserScramCredentialsRequest(users=users), 0
        case "LeaveGroup":
            members = [MemberIdentity(member_id=name) for name in _names(count)]
            return LeaveGroupRequest(group_id="g", members=members), 4
        case "Metadata":
            topics = [MetadataRequestTopic(name=name) for name in _names(count)]
            return MetadataRequest(topics=topics), 9
        case _:
            new = [
                CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in _names(count)
            ]
            return CreateTopicsRequest(topics=new, validate_only=True), 7


_IN_SLICES = ("DescribeGroups", "DeleteGroups", "FindCoordinator", "OffsetFetch")
_IN_ONE_TURN = ("OffsetCommit", "DescribeUserScramCredentials", "LeaveGroup", "Metadata")


@pytest.mark.parametrize("api", _IN_SLICES)
def test_other_clients_are_served_during_a_request_with_many_elements(
    broker: BrokerProcess, api: str
) -> None:
    frame = frame_of(*_request_of(api, _ALLOWED_COUNT))
    with Pings(broker) as pings, HostileConnection(broker) as connection:
        connection.send(frame)
        assert connection.answer() is not None
    assert pings.count > 3


def test_other_clients_are_served_while_ten_thousand_topics_are_validated(
    broker: BrokerProcess,
) -> None:
    frame = frame_of(*_request_of("CreateTopics", 10_000))
    with Pings(broker) as pings, HostileConnection(broker) as connection:
        connection.send(frame)
        assert connection.answer() is not None
    assert pings.count > 3


@pytest.mark.parametrize("api", _IN_ONE_TURN)
def test_other_clients_are_served_after_a_request_handled_in_one_turn(
    broker: BrokerProcess, api: str
) -> None:
    frame = frame_of(*_request_of(api, _ALLOWED_COUNT))
    with Pings(broker), HostileConnection(broker) as connection:
        connection.send(frame)
        assert connection.answer() is not None


@pytest.mark.parametrize("api", [*_IN_SLICES, *_IN_ONE_TURN, "CreateTopics"])
def test_request_with_too_many_elements_closes_the_connection(
    broker: BrokerProcess, api: str
) -> None:
    frame = frame_of(*_request_of(api, _EXCESSIVE_COUNT))
    with Pings(broker), HostileConnection(broker) as connection:
        connection.send(frame)
        assert connection.answer() is None


def test_log_says_why_a_request_with_too_many_elements_was_refused(
    own_broker: BrokerProcess,
) -> None:
    with HostileConnection(own_broker) as connection:
        connection.send(frame_of(*_request_of("Metadata", _EXCESSIVE_COUNT)))
        assert connection.answer() is None
    assert_one_line(own_broker, "plog.request.max.elements=50000", "Metadata", "split")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(struct.pack(">i", 30_000_000) + b"\0\1t" * 30_000_000, id="names"),
        pytest.param(struct.pack(">i", 45_000_000) + bytes(90_000_000), id="empty-names"),
        pytest.param(struct.pack(">i", (1 << 31) - 1) + bytes(90_000_000), id="truncated-names"),
    ],
)
def test_ninety_megabytes_of_topic_names_cost_no_memory(broker: BrokerProcess, body: bytes) -> None:
    head = struct.pack(">hhih", 3, 1, 7, -1)
    before_mb = memory_mb(broker)
    with Pings(broker), HostileConnection(broker) as connection:
        connection.send(struct.pack(">i", len(head) + len(body)) + head + body)
        assert connection.answer() is None
    # The broker buffers the request itself until it has arrived.
    assert memory_mb(broker) - before_mb < len(body) / (1 << 20) + 30


@pytest.mark.parametrize("key", range(62), ids=lambda key: f"api-{key}")
def test_broker_survives_counts_without_elements(broker: BrokerProcess, key: int) -> None:
    with HostileConnection(broker) as connection:
        for version in range(3):
            body = struct.pack(">hhih", key, version, 7, -1) + b"\x7f\xff\xff\xff" * 8
            connection.send(struct.pack(">i", len(body)) + body)
        connection.drain(0.02)
    assert broker.is_running


# -- bombs -------------------------------------------------------------------------------------


def _decompression_bomb(compression: Compression, mebibytes: int) -> bytes:
    records = [
        Record(key=b"k", value=bytes(1 << 20), timestamp=1_000 + n) for n in range(mebibytes)
    ]
    return build_batch(records, compression=compression)


def _produce(topic: str, batch: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(
        acks=1, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


@pytest.mark.parametrize(
    "compression", [Compression.GZIP, Compression.LZ4, Compression.ZSTD], ids=lambda one: one.name
)
def test_decompression_bomb_is_refused_by_a_compacted_topic(
    broker: BrokerProcess, compression: Compression
) -> None:
    batch = _decompression_bomb(compression, 150)
    assert len(batch) < 1 << 20
    before_mb = memory_mb(broker)
    with Pings(broker), HostileConnection(broker) as connection:
        answer = connection.ask(_produce(_COMPACTED, batch), 9)
    assert isinstance(answer, ProduceResponse)
    [partition] = answer.responses[0].partition_responses
    assert partition.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "when decompressed" in (partition.error_message or "")
    assert memory_mb(broker) - before_mb < 80


def test_other_clients_are_served_while_a_stored_bomb_is_searched(
    broker: BrokerProcess,
) -> None:
    tiny = [Record(key=b"", value=b"", timestamp=1_000)] * 500_000
    batch = build_batch(tiny, compression=Compression.ZSTD)
    partition = ListOffsetsPartition(partition_index=0, timestamp=999)
    by_time = ListOffsetsRequest(topics=[ListOffsetsTopic(name=_PLAIN, partitions=[partition])])
    with HostileConnection(broker) as connection, Pings(broker):
        assert connection.ask(_produce(_PLAIN, batch), 9) is not None
        assert connection.ask(by_time, 7) is not None
