"""Deleting records from the front of a partition: the work behind DeleteRecords.

The log's start moves at once, so that reads below it are refused from then on; whoever asked hears
of it when the new start is on the disk and no crash can bring the records back. Kafka answers
before that. Whole segments below the start go; what else lies there goes with its segment.

Source: Kafka 4.3 Partition.deleteRecordsOnLeader, ReplicaManager.deleteRecordsOnLocalLog; KIP-107.
"""

from __future__ import annotations

from typing import Final

from plog.errors import (
    InvalidTopicException,
    KafkaStorageError,
    OffsetOutOfRange,
    PolicyViolation,
)
from plogd.log.log_manager import LogManager
from plogd.metadata.cache import INTERNAL_TOPICS
from plogd.replica.partition import Partition

HIGH_WATERMARK: Final = -1
"""Stands for the offset that consumers will read next: everything they can see is to go."""


async def delete_records(partition: Partition, offset: int, log_manager: LogManager) -> int:
    """Delete what lies below `offset`, durably; where the partition begins now.

    Raises the KafkaError a client is to see. After a KafkaStorageError the records are gone for
    readers, but may be back after a crash.
    """
    _check(partition)
    log = partition.log
    if offset != HIGH_WATERMARK and offset < 0:
        raise OffsetOutOfRange(f"{partition.topic_partition}: there is no offset {offset}")
    log.delete_records_before(partition.high_watermark if offset == HIGH_WATERMARK else offset)
    is_durable = await log_manager.write_log_start_of(log)
    partition.check_leader()  # The disk took its time: the topic may have been deleted.
    if not is_durable:
        raise KafkaStorageError(
            f"{partition.topic_partition}: that it starts at {log.log_start_offset} now could not "
            f"be written in {log.log_dir}"
        )
    return log.log_start_offset


def _check(partition: Partition) -> None:
    topic = partition.topic_partition.topic
    if topic in INTERNAL_TOPICS:
        raise InvalidTopicException(f"records of the internal topic {topic} cannot be deleted")
    partition.check_leader()
    config = partition.log.config
    if config.is_compacted and not config.deletes_old_segments:
        raise PolicyViolation(
            f"{partition.topic_partition}: cleanup.policy is compact, which keeps every key's last "
            "record; add delete to it"
        )
