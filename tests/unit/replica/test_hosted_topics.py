"""Hosted topics: their settings, and partitions without a log."""

from __future__ import annotations

import dataclasses
import errno

import pytest

from plog.errors import ErrorCode, KafkaStorageError
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.types import TopicPartition
from plog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from plogd.fair_queue import SLICE
from plogd.ports import Later
from plogd.replica import hosted_topics
from tests.helpers.sim.sim_broker import LOG_DIR, SimBroker, create_topic
from tests.helpers.sim.sim_ports import outcome
from tests.helpers.sim.sim_time import START_MS
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


class TestFirstBatchWithoutLog:
    """F8: a full disk prevented the creation of a log; batches are in flight when it is created."""

    def _start(self, lost: tuple[int, ...] = (0,)) -> SimBroker:
        """Return a broker without the logs of partitions `lost`."""
        broker = SimBroker().start()
        create_topic(broker, "t", 2, max_message_bytes="1000")
        files = broker.files.kill()
        for number in lost:
            for name in files.listdir(f"{LOG_DIR}/t-{number}"):
                files.unlink(f"{LOG_DIR}/t-{number}/{name}")
            files.rmdir(f"{LOG_DIR}/t-{number}")
        files.fail_when(lambda operation: operation.name == "mkdir", errno.ENOSPC)
        return broker.restart(files)

    def _free_space(self, broker: SimBroker) -> None:
        broker.files.fail_no_more()
        broker.ports.advance(1_000)

    def _send(
        self,
        broker: SimBroker,
        sequence: int,
        *,
        producer_id: int = 7,
        epoch: int = 0,
        partition: int = 0,
        value: bytes = b"v",
    ) -> int:
        records = build_batch(
            [Record(timestamp=START_MS, key=None, value=value)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence if producer_id >= 0 else -1,
        )
        appended = broker.broker.replica_manager.append_records(
            [(TopicPartition("t", partition), memoryview(bytearray(records)))],
            required_acks=-1,
            timeout_ms=1000,
        )
        broker.settle()
        [one] = outcome(appended) if isinstance(appended, Later) else appended
        return 0 if one.error is None else int(one.error.code)

    @pytest.mark.parametrize("partition", [0, 1])
    def test_later_batch_does_not_overtake_it(self, partition: int) -> None:
        broker = self._start((0, 1))
        for sequence in (0, 1):
            assert (
                self._send(broker, sequence, partition=partition) == ErrorCode.KAFKA_STORAGE_ERROR
            )
        self._free_space(broker)
        assert self._send(broker, 2, partition=partition) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for sequence in (0, 1, 2):
            assert self._send(broker, sequence, partition=partition) == 0

    def test_only_its_producer_and_partition_wait_for_it(self) -> None:
        broker = self._start((0, 1))
        assert self._send(broker, 0) == ErrorCode.KAFKA_STORAGE_ERROR
        self._free_space(broker)
        assert self._send(broker, 2, producer_id=8) == 0
        assert self._send(broker, 2, partition=1) == 0
        assert self._send(broker, 2, producer_id=-1) == 0

    def test_later_batch_is_accepted_after_one_that_breaks_a_rule(self) -> None:
        broker = self._start()
        assert self._send(broker, 0, value=b"v" * 1000) == ErrorCode.KAFKA_STORAGE_ERROR
        self._free_space(broker)
        assert self._send(broker, 1) == 0

    def test_first_batch_of_the_newest_epoch_must_come_first(self) -> None:
        broker = self._start()
        for epoch, sequence in ((0, 5), (1, 0), (0, 6), (1, 1)):
            error = self._send(broker, sequence, epoch=epoch)
            assert error == ErrorCode.KAFKA_STORAGE_ERROR
        self._free_space(broker)
        assert self._send(broker, 1, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert self._send(broker, 0, epoch=1) == 0

    def test_number_of_remembered_batches_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hosted_topics, "MAX_REFUSED", 2)
        broker = self._start()
        for producer_id in (1, 2, 3):
            self._send(broker, 0, producer_id=producer_id)
        self._free_space(broker)
        assert self._send(broker, 1, producer_id=1) == 0
        for producer_id in (2, 3):
            error = self._send(broker, 1, producer_id=producer_id)
            assert error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
