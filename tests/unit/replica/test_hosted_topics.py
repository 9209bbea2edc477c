"""Hosted topics: their settings, and partitions without a log."""

from __future__ import annotations

import dataclasses

import pytest

from plog.errors import KafkaStorageError
from plog.types import TopicPartition
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
