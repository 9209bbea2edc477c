"""LogDirAdmin: conversion of requests and responses, and operations on a broker."""

from __future__ import annotations

import pytest

from plog.client.admin.log_dirs import (
    LogDirAdmin,
    alter_replica_log_dirs_request,
    altered_replica_log_dirs,
    describe_log_dirs_request,
    described_log_dirs,
)
from plog.client.admin.values import ReplicaInfo, TopicPartitionReplica
from plog.client.network.socket_network import run_blocking
from plog.errors import ErrorCode, KafkaError, KafkaStorageError, LogDirNotFound, UnsupportedVersion
from plog.types import TopicPartition
from plog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from plog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tests.helpers.client.fake_cluster import FakeCluster
from tests.helpers.sim.sim_broker import LOG_DIR, create_topic
from tests.unit.client.admin.conftest import Site

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


# -- pure -------------------------------------------------------------------------------------


def test_describe_request_names_given_or_all_partitions() -> None:
    assert describe_log_dirs_request(None).topics is None
    topics = describe_log_dirs_request([A0, A1]).topics
    assert topics is not None
    assert [(x.topic, x.partitions) for x in topics] == [("a", [0, 1])]


def test_log_dir_has_replicas_or_an_error() -> None:
    future = DescribeLogDirsPartition(
        partition_index=1, partition_size=7, offset_lag=3, is_future_key=True
    )
    response = DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir="/data",
                topics=[DescribeLogDirsTopic(name="a", partitions=[future])],
                total_bytes=100,
                usable_bytes=40,
                is_cordoned=True,
            ),
            DescribeLogDirsResult(log_dir="/bad", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
        ]
    )
    described = described_log_dirs(response)
    good, bad = described["/data"], described["/bad"]
    assert good.replicas == {A1: ReplicaInfo(size_bytes=7, offset_lag=3, is_future=True)}
    assert (good.error, good.total_bytes, good.usable_bytes) == (None, 100, 40)
    assert good.is_cordoned
    assert isinstance(bad.error, KafkaStorageError)
    assert (bad.replicas, bad.total_bytes, bad.usable_bytes) == ({}, None, None)


def test_alter_request_groups_replicas_by_directory() -> None:
    request = alter_replica_log_dirs_request(
        {
            TopicPartitionReplica("a", 0, 1): "/x",
            TopicPartitionReplica("a", 1, 1): "/y",
            TopicPartitionReplica("b", 0, 1): "/x",
        }
    )
    assert [(d.path, [(t.name, t.partitions) for t in d.topics]) for d in request.dirs] == [
        ("/x", [("a", [0]), ("b", [0])]),
        ("/y", [("a", [1])]),
    ]


def test_each_broker_gets_a_request_for_its_replicas() -> None:
    cluster = FakeCluster()

    def answer(node_id: int, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        code = ErrorCode.LOG_DIR_NOT_FOUND if node_id == 2 else 0
        return AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(
                    topic_name="a",
                    partitions=[
                        AlterReplicaLogDirPartitionResult(partition_index=0, error_code=code)
                    ],
                )
            ]
        )

    cluster.answer = answer
    here, there = TopicPartitionReplica("a", 0, 1), TopicPartitionReplica("a", 0, 2)
    paths = {here: "/x", there: "/x"}
    altered = run_blocking(LogDirAdmin(cluster.as_cluster()).alter_replica_log_dirs(paths))
    assert altered[here] is None
    assert isinstance(altered[there], LogDirNotFound)
    assert altered_replica_log_dirs(1, answer(1, AlterReplicaLogDirsRequest())) == {here: None}


# -- at a broker ------------------------------------------------------------------------------


def test_log_dirs_are_described_with_their_replicas(site: Site) -> None:
    create_topic(site.sim.broker, "a", 2)
    site.sim.broker.produce("a", b"x" * 1_000)
    node_id = site.sim.broker.config.node_id
    described = site.run(site.admin.describe_log_dirs()).raise_first()
    assert list(described) == [node_id]
    directory = described[node_id][LOG_DIR]
    assert directory.error is None
    assert set(directory.replicas) == {A0, A1}
    assert directory.replicas[A0].size_bytes > 1_000
    assert directory.replicas[A1] == ReplicaInfo(size_bytes=0, offset_lag=0, is_future=False)
    some = site.run(site.admin.describe_log_dirs([node_id], partitions=[A1])).get(node_id)
    assert set(some[LOG_DIR].replicas) == {A1}


def test_unknown_broker_fails_immediately(site: Site) -> None:
    before_s = site.sim.now_s()
    with pytest.raises(KafkaError, match="broker 77 is not in the cluster"):
        site.run(site.admin.describe_log_dirs([77])).get(77)
    assert site.sim.now_s() - before_s < 1


def test_broker_without_moves_raises_unsupported_version(site: Site) -> None:
    replica = TopicPartitionReplica("a", 0, site.sim.broker.config.node_id)
    with pytest.raises(UnsupportedVersion, match="ALTER_REPLICA_LOG_DIRS"):
        site.run(site.admin.alter_replica_log_dirs({replica: "/x"})).get(replica)
