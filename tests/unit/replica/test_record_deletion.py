"""Deletion of records from the start of a partition: checks, offsets and durability."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plog.errors import (
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from plogd.ports import Later, spawn
from plogd.replica.record_deletion import HIGH_WATERMARK, delete_records
from tests.helpers.sim.sim_broker import SimBroker, create_topic
from tests.helpers.sim.sim_ports import outcome


class Setup:
    """A partition with three records, and its deletions."""

    def __init__(self, topic: str = "t", **config: str) -> None:
        self.broker = SimBroker().start()
        create_topic(self.broker, topic, **config)
        self.partition = self.broker.broker.replica_manager.partition(topic, 0)
        if topic == "t" and "cleanup_policy" not in config:
            for value in (b"a", b"b", b"c"):
                self.broker.produce(topic, value)

    def begin(self, offset: int) -> Later[int]:
        return spawn(delete_records(self.partition, offset, self.broker.broker.log_manager))

    def delete(self, offset: int) -> Any:
        deletion = self.begin(offset)
        self.broker.settle()
        return outcome(deletion)


def test_deletion_completes_once_the_start_offset_is_durable() -> None:
    setup = Setup()
    deletion = setup.begin(2)
    assert setup.partition.log.log_start_offset == 2
    assert not deletion.done
    setup.broker.settle()
    assert outcome(deletion) == 2


def test_high_watermark_offset_deletes_everything_consumers_can_read() -> None:
    setup = Setup()
    assert setup.delete(HIGH_WATERMARK) == 3
    assert setup.delete(HIGH_WATERMARK) == 3


def test_log_start_offset_never_decreases() -> None:
    setup = Setup()
    assert setup.delete(2) == 2
    assert setup.delete(1) == 2


@pytest.mark.parametrize("offset", [4, -2])
def test_invalid_offset_is_out_of_range(offset: int) -> None:
    with pytest.raises(OffsetOutOfRange):
        Setup().delete(offset)


@pytest.mark.parametrize("policy", ["compact"])
def test_deletion_is_refused_by_a_compact_policy(policy: str) -> None:
    with pytest.raises(PolicyViolation, match="add delete"):
        Setup(cleanup_policy=policy).delete(HIGH_WATERMARK)


@pytest.mark.parametrize("policy", ["delete", "compact,delete", ""])
def test_deletion_is_allowed_by_a_delete_policy(policy: str) -> None:
    assert Setup(cleanup_policy=policy).delete(HIGH_WATERMARK) == 0


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_deletion_from_internal_topics_is_refused(topic: str) -> None:
    with pytest.raises(InvalidTopicException):
        Setup(topic).delete(0)


def test_deletion_is_refused_on_a_broker_that_is_not_the_leader() -> None:
    setup = Setup()
    setup.partition.leader = 2
    with pytest.raises(NotLeaderOrFollower):
        setup.delete(2)
    assert setup.partition.log.log_start_offset == 0


@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, "the write failed"), (errno.EIO, "is offline")]
)
def test_failed_write_is_reported_as_storage_error(number: int, error: str) -> None:
    setup = Setup()
    setup.broker.files.fail_when(lambda operation: "log-start" in operation.path, number)
    with pytest.raises(KafkaStorageError, match=error):
        setup.delete(2)


@pytest.mark.parametrize(
    ("is_deleted", "error"), [(True, UnknownTopicOrPartition), (False, KafkaError)]
)
def test_deletion_fails_when_the_partition_is_lost_meanwhile(
    is_deleted: bool, error: type[KafkaError]
) -> None:
    setup = Setup()
    deletion = setup.begin(2)
    setup.partition.is_deleted = is_deleted
    setup.partition.leader = 9
    setup.broker.settle()
    with pytest.raises(error):
        outcome(deletion)
