"""Hosted topics: their settings, and partitions without a log."""

from __future__ import annotations

import dataclasses

import pytest

from plog.errors import KafkaStorageError
from plog.types import TopicPartition
from plog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from plogd.fair_queue import SLICE
from tests.helpers.sim_broker import LOG_DIR
from tests.unit.replica.test_replica_manager import make


def test_topic_config_follows_changes_of_the_broker_config() -> None:
    broker, manager = make()
    manager.topics.update_config(dataclasses.replace(broker.config, log_retention_ms=1234))
    assert manager.partition("t", 1).log.config.retention_ms == 1234


def test_topic_config_follows_changes_of_topic_settings() -> None:
    broker, manager = make()
    manager.topics.update_topic_config("t", {"retention.ms": "77"})
    assert manager.partition("t", 1).log.config.retention_ms == 77
    topic = broker.broker.cache.topic("t")
    assert topic is not None
    assert topic.config == {"retention.ms": "77"}
    manager.topics.update_topic_config("missing", {"retention.ms": "77"})
    assert broker.broker.cache.topic("missing") is None


def test_partitions_of_an_unreadable_directory_are_offline() -> None:
    _, manager = make()
    manager.topics.set_without_log([TopicPartition("lost", 3)])
    with pytest.raises(KafkaStorageError):
        manager.partition("lost", 3)
    assert manager.is_offline("lost", 3)


def test_last_settings_apply_to_all_partitions_after_two_quick_changes() -> None:
    broker, manager = make(3 * SLICE)
    topics = manager.topics

    def retentions() -> set[int]:
        return {one.log.config.retention_ms for one in manager.partitions}

    topics.update_topic_config("t", {"retention.ms": "77"})
    assert len(retentions()) == 2, "the others follow in turns of their own"
    topics.update_topic_config("t", {"retention.ms": "78"})
    broker.settle()
    assert retentions() == {78}
    topics.update_topic_config("t", {})
    topics.update_config(dataclasses.replace(broker.config, log_retention_ms=1234))
    broker.settle()
    assert retentions() == {1234}


def test_last_settings_apply_to_partitions_that_are_added_meanwhile() -> None:
    broker, manager = make(2)
    asked = broker.begin(more_partitions("t", 3 * SLICE), 3)
    while len(manager.partitions) < 2 * SLICE:
        broker.ports.jobs.run_all()
        broker.ports.timers.run_next()
    assert len(manager.partitions) < 3 * SLICE
    manager.topics.update_topic_config("t", {"retention.ms": "77"})
    broker.settle()
    assert [one.error_code for one in asked.response().results] == [0]
    assert {one.log.config.retention_ms for one in manager.partitions} == {77}
    topic = broker.broker.cache.topic("t")
    assert topic is not None
    assert (len(topic.partitions), topic.config) == (3 * SLICE, {"retention.ms": "77"})


def more_partitions(name: str, count: int) -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)


def test_all_partitions_are_offline_when_their_log_directory_fails_during_expansion() -> None:
    broker, manager = make(2)
    broker.begin(more_partitions("t", 3 * SLICE), 3)
    while len(manager.partitions) < 2 * SLICE:
        broker.ports.jobs.run_all()
        broker.ports.timers.run_next()
    broker.broker.log_manager.storage_failed(LOG_DIR, OSError("broken"))
    broker.settle()
    assert all(one.log.offline for one in manager.partitions)
    assert broker.bugs == []
