"""DescribeLogDirs: requests and responses as frames."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.helpers.sim.sim_broker import SimBroker, create_topic

TWO = ("/data/a", "/data/b")


def make(**settings: Any) -> SimBroker:
    broker = SimBroker(**settings).start()
    create_topic(broker, "t", 2)
    broker.produce("t", b"a" * 100)
    return broker


def ask(broker: SimBroker, version: int = 5, topics: Any = None) -> Any:
    return broker.ask(DescribeLogDirsRequest(topics=topics), version)


def partitions(result: Any) -> dict[tuple[str, int], int]:
    """Return the sizes of the partitions; the other fields are the same for each."""
    logs = [(topic.name, one) for topic in result.topics for one in topic.partitions]
    assert all((one.offset_lag, one.is_future_key) == (0, False) for _, one in logs)
    return {(name, one.partition_index): one.partition_size for name, one in logs}


@pytest.mark.parametrize("version", range(6))
def test_directory_and_its_logs_in_every_version(version: int) -> None:
    broker = make()
    broker.files.capacity_bytes = 1 << 20
    answer = ask(broker, version)
    assert answer.error_code == 0
    [result] = answer.results
    assert (result.error_code, result.log_dir, result.is_cordoned) == (0, "/data", False)
    assert partitions(result) == {("t", 0): broker.log("t").size_bytes, ("t", 1): 0}
    assert broker.log("t").size_bytes > 100
    room = (1 << 20, (1 << 20) - broker.files.used_bytes)
    assert (result.total_bytes, result.usable_bytes) == (room if version >= 4 else (-1, -1))


def test_metadata_log_is_left_out() -> None:
    assert "__cluster_metadata-0" in make().files.listdir("/data")
    [result] = ask(make()).results
    assert {topic.name for topic in result.topics} == {"t"}


@pytest.mark.parametrize("version", [0, 1, 2, 5])
def test_only_requested_partitions_are_described(version: int) -> None:
    broker = make()
    asked = [
        DescribableLogDirTopic(topic="t", partitions=[1, 9]),
        DescribableLogDirTopic(topic="nobody", partitions=[0]),
        DescribableLogDirTopic(topic="__cluster_metadata", partitions=[0]),
    ]
    [result] = ask(broker, version, asked).results
    assert list(partitions(result)) == [("t", 1)]
    [result] = ask(broker, version, []).results
    assert (result.log_dir, result.topics) == ("/data", [])


def test_each_directory_has_its_own_result() -> None:
    broker = make(log_dirs=TWO)
    first, second = ask(broker).results
    assert (first.log_dir, second.log_dir) == TWO
    assert {**partitions(first), **partitions(second)}.keys() == {("t", 0), ("t", 1)}
    assert len(partitions(first)) in (0, 1, 2)


def test_failed_directory_is_listed_with_an_error() -> None:
    broker = make(log_dirs=TWO)
    lost = broker.log("t").log_dir
    broker.broker.log_manager.storage_failed(lost, OSError(errno.EIO, "broken"))
    results = {result.log_dir: result for result in ask(broker).results}
    assert set(results) == set(TWO)
    assert results[lost].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (results[lost].topics, results[lost].total_bytes) == ([], -1)
    [sound] = [result for path, result in results.items() if path != lost]
    assert sound.error_code == 0


def test_deleted_logs_are_left_out() -> None:
    broker = make()
    state = broker.broker.cache.topic("t")
    assert state is not None
    broker.broker.controller.delete_topic("t", state.topic_id)
    broker.settle()
    [result] = ask(broker).results
    assert result.topics == []
