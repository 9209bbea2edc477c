"""RecordAdmin: conversion of requests and responses, and operations on a broker."""

from __future__ import annotations

import pytest

from plog.client.admin.records import (
    HIGH_WATERMARK,
    RecordAdmin,
    described_producers,
    list_offsets_request,
    listed_offsets,
    split_by_version,
)
from plog.client.admin.values import ListedOffset, OffsetSpec, ProducerState
from plog.client.network.socket_network import run_blocking
from plog.errors import (
    ErrorCode,
    InvalidRequest,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from plog.types import TopicPartition
from plog.wire.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from plog.wire.messages.describe_producers import ProducerState as WireProducerState
from plog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.helpers.client.fake_cluster import FakeCluster
from tests.helpers.sim.sim_broker import create_topic
from tests.helpers.sim.sim_time import START_MS
from tests.unit.client.admin.conftest import Site

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


# -- pure -------------------------------------------------------------------------------------


def test_list_offsets_request_groups_times_by_topic() -> None:
    times = {A1: OffsetSpec.LATEST, B0: 1_000, A0: OffsetSpec.EARLIEST}
    request = list_offsets_request(times, isolation_level=1, timeout_ms=5)
    assert (request.replica_id, request.isolation_level, request.timeout_ms) == (-1, 1, 5)
    assert [
        (topic.name, [(p.partition_index, p.timestamp) for p in topic.partitions])
        for topic in request.topics
    ] == [("a", [(1, -1), (0, -2)]), ("b", [(0, 1_000)])]


@pytest.mark.parametrize(
    ("spec", "first"),
    [
        (OffsetSpec.MAX_TIMESTAMP, 7),
        (OffsetSpec.EARLIEST_LOCAL, 8),
        (OffsetSpec.LATEST_TIERED, 9),
        (OffsetSpec.EARLIEST_PENDING_UPLOAD, 11),
        (OffsetSpec.LATEST, 1),
    ],
)
def test_unsupported_offset_spec_is_an_error_per_partition(spec: OffsetSpec, first: int) -> None:
    assert split_by_version({A0: spec}, first) == ({A0: spec}, {})
    known, unknown = split_by_version({A0: spec, A1: 5}, first - 1)
    if first > 1:
        assert known == {A1: 5}
        assert isinstance(unknown[A0], UnsupportedVersion)
        assert spec.name in str(unknown[A0])


def test_listed_offsets_have_epochs_and_their_own_errors() -> None:
    partitions = [
        ListOffsetsPartitionResponse(partition_index=0, offset=7, timestamp=9, leader_epoch=2),
        ListOffsetsPartitionResponse(partition_index=1, error_code=ErrorCode.OFFSET_NOT_AVAILABLE),
        ListOffsetsPartitionResponse(partition_index=2),
    ]
    response = ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name="a", partitions=partitions)]
    )
    listed = listed_offsets(response)
    assert listed[A0] == ListedOffset(offset=7, timestamp=9, leader_epoch=2)
    assert str(listed[A1]).startswith("a-1: ")
    none = ListedOffset(offset=-1, timestamp=-1, leader_epoch=None)
    assert listed[TopicPartition("a", 2)] == none


def test_producer_has_a_transaction_offset_only_during_a_transaction() -> None:
    wire = [
        WireProducerState(producer_id=1, last_sequence=4, last_timestamp=5, coordinator_epoch=-1),
        WireProducerState(producer_id=2, coordinator_epoch=3, current_txn_start_offset=8),
    ]
    response = DescribeProducersResponse(
        topics=[TopicResponse(name="a", partitions=[PartitionResponse(active_producers=wire)])]
    )
    producers = described_producers(response)[A0]
    assert isinstance(producers, tuple)
    assert producers[0] == ProducerState(
        producer_id=1,
        producer_epoch=0,
        last_sequence=4,
        last_timestamp=5,
        coordinator_epoch=None,
        transaction_start_offset=None,
    )
    assert (producers[1].coordinator_epoch, producers[1].transaction_start_offset) == (3, 8)


def test_describe_producers_of_a_replica_asks_its_broker() -> None:
    cluster = FakeCluster(leaders={A0: 1})
    cluster.answer = lambda node_id, request: DescribeProducersResponse(
        topics=[TopicResponse(name="a", partitions=[PartitionResponse()])]
    )
    admin = RecordAdmin(cluster.as_cluster())
    assert run_blocking(admin.describe_producers([A0], broker=3)) == {A0: ()}
    assert run_blocking(admin.describe_producers([A0])) == {A0: ()}
    assert [node for node, _ in cluster.asked] == [3, 1]


def test_moved_leader_is_found_again() -> None:
    cluster = FakeCluster(leaders={A0: 1, A1: 1})

    def answer(node_id: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        moved = cluster.leaders[A0] == 1
        cluster.leaders[A0] = 2
        [topic] = request.topics
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=p.partition_index,
                            error_code=NotLeaderOrFollower.code
                            if moved and p.partition_index == 0
                            else 0,
                            offset=node_id * 10,
                        )
                        for p in topic.partitions
                    ],
                )
            ]
        )

    cluster.answer = answer
    admin = RecordAdmin(cluster.as_cluster())
    listed = run_blocking(admin.list_offsets({A0: OffsetSpec.LATEST, A1: OffsetSpec.LATEST}))
    assert {p: x.offset for p, x in listed.raise_first().items()} == {A0: 20, A1: 10}


# -- at a broker ------------------------------------------------------------------------------


def _filled(site: Site) -> None:
    """Write 3 records to partition a-0, with timestamps 1 s apart, and 1 to a-1."""
    create_topic(site.sim.broker, "a", 2)
    for number in range(3):
        site.sim.broker.produce("a", b"x", now_ms=START_MS + number * 1_000)
    site.sim.broker.produce("a", b"y", partition=1)


def test_offsets_are_listed_by_spec_and_by_time(site: Site) -> None:
    _filled(site)

    def offsets(spec: OffsetSpec | int) -> list[int]:
        listed = site.run(site.admin.list_offsets({A0: spec, A1: spec})).raise_first()
        return [listed[A0].offset, listed[A1].offset]

    assert offsets(OffsetSpec.EARLIEST) == [0, 0]
    assert offsets(OffsetSpec.LATEST) == [3, 1]
    assert offsets(OffsetSpec.MAX_TIMESTAMP) == [2, 0]
    assert offsets(OffsetSpec.EARLIEST_LOCAL) == [0, 0]
    assert offsets(START_MS + 1) == [1, -1]
    assert offsets(START_MS + 1_000_000) == [-1, -1]


def test_listed_offset_has_the_timestamp_of_its_record(site: Site) -> None:
    _filled(site)
    listed = site.run(site.admin.list_offsets({A0: START_MS + 500})).get(A0)
    assert (listed.offset, listed.timestamp) == (1, START_MS + 1_000)
    assert listed.leader_epoch is not None


def test_read_committed_offsets_can_be_listed(site: Site) -> None:
    _filled(site)
    times = {A0: OffsetSpec.LATEST}
    listed = site.run(site.admin.list_offsets(times, isolation_level="read_committed"))
    assert listed.get(A0).offset == 3
    with pytest.raises(InvalidRequest, match="read_uncommitted or read_committed"):
        site.run(site.admin.list_offsets(times, isolation_level="none"))


def test_missing_partitions_have_their_own_errors(site: Site) -> None:
    _filled(site)
    missing = TopicPartition("a", 9)
    listed = site.run(
        site.admin.list_offsets({A0: OffsetSpec.LATEST, missing: 0, B0: OffsetSpec.LATEST})
    )
    assert listed.get(A0).offset == 3
    assert {p: type(error) for p, error in listed.errors.items()} == {
        missing: UnknownTopicOrPartition,
        B0: UnknownTopicOrPartition,
    }


def test_records_are_deleted_up_to_an_offset_or_completely(site: Site) -> None:
    _filled(site)
    deleted = site.run(site.admin.delete_records({A0: 2, A1: HIGH_WATERMARK}))
    assert deleted == {A0: 2, A1: 1}
    listed = site.run(
        site.admin.list_offsets({A0: OffsetSpec.EARLIEST, A1: OffsetSpec.EARLIEST})
    ).raise_first()
    assert [listed[A0].offset, listed[A1].offset] == [2, 1]


def test_deleting_records_beyond_the_end_is_refused(site: Site) -> None:
    _filled(site)
    deleted = site.run(site.admin.delete_records({A0: 4, A1: 0}))
    assert isinstance(deleted[A0], OffsetOutOfRange)
    assert deleted[A1] == 0


def test_producers_of_a_partition_are_described(site: Site) -> None:
    create_topic(site.sim.broker, "a", 2)
    site.sim.broker.produce("a", b"x", producer_id=77, producer_epoch=1, base_sequence=0)
    [producer] = site.run(site.admin.describe_producers([A0, A1])).raise_first()[A0]
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 1, 0)
    assert producer.transaction_start_offset is None


def test_request_is_retried_after_a_broker_restart(site: Site) -> None:
    _filled(site)
    cuts = ["drop"]
    site.sim.on_request = lambda request: (
        cuts.pop() if cuts and isinstance(request, ListOffsetsRequest) else None
    )
    assert site.run(site.admin.list_offsets({A0: OffsetSpec.LATEST})).get(A0).offset == 3
    assert cuts == []
