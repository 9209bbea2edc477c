"""Delete records from the start of a partition, for DeleteRecords.

The log start offset advances immediately, and reads below it then fail. The deletion completes when
the new log start offset is on disk, so that no crash can bring the records back; Kafka does not
wait for that. delayed_delete_records.py then waits for the other replicas. Segments entirely below
the log start offset are deleted. Other records below it are deleted later, together with their
segment.

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
"""Special offset that stands for the high watermark: delete all records that consumers can read."""


async def delete_records(partition: Partition, offset: int, log_manager: LogManager) -> int:
    """Durably delete the records below `offset`; return the new log start offset.

    Raises the KafkaError for the client. After a KafkaStorageError, the records are no longer
    readable, but may reappear after a crash.
    """
    _check(partition)
    log = partition.log
    if offset != HIGH_WATERMARK and offset < 0:
        raise OffsetOutOfRange(
            f"cannot delete records in {partition.topic_partition}: offset {offset} is negative"
        )
    # In memory first, so that no read returns the records while the new start is written.
    log.delete_records_before(partition.high_watermark if offset == HIGH_WATERMARK else offset)
    # Fetches of followers that wait then return the new start at their end.
    partition.context.on_progress(partition)
    is_durable = await log_manager.write_log_start_of(log)
    partition.check_leader()  # The topic may have been deleted during the write.
    if not is_durable:
        raise KafkaStorageError(
            f"cannot store the log start offset {log.log_start_offset} of"
            f" {partition.topic_partition} in {log.log_dir}: the write failed; send the request"
            " again, because the records may reappear after a crash"
        )
    return log.log_start_offset


def _check(partition: Partition) -> None:
    topic = partition.topic_partition.topic
    if topic in INTERNAL_TOPICS:
        raise InvalidTopicException(f"records in the internal topic {topic} cannot be deleted")
    partition.check_leader()
    # As in Kafka's Partition.deleteRecordsOnLeader.
    config = partition.log.config
    if config.is_compacted and not config.deletes_old_segments:
        raise PolicyViolation(
            f"cannot delete records in {partition.topic_partition}: cleanup.policy=compact keeps"
            " the last record of every key; add delete to cleanup.policy"
        )
