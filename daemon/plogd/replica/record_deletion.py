"""Deletion of records from the start of a partition, for DeleteRecords.

The log start offset advances immediately, and reads below it are refused from then on. The client
receives its response once the new start offset is on disk and no crash can restore the records;
Kafka responds before that. Segments entirely below the start offset are deleted; other records
below it are deleted with their segment later.

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
"""Special offset for the high watermark: delete every record that consumers can read."""


async def delete_records(partition: Partition, offset: int, log_manager: LogManager) -> int:
    """Delete the records below `offset` durably; return the new log start offset.

    Raises the KafkaError for the client. After a KafkaStorageError, the records are no longer
    readable, but they may reappear after a crash.
    """
    _check(partition)
    log = partition.log
    if offset != HIGH_WATERMARK and offset < 0:
        raise OffsetOutOfRange(
            f"cannot delete records of {partition.topic_partition}: offset {offset} is negative"
        )
    log.delete_records_before(partition.high_watermark if offset == HIGH_WATERMARK else offset)
    is_durable = await log_manager.write_log_start_of(log)
    partition.check_leader()  # The topic may have been deleted during the write.
    if not is_durable:
        raise KafkaStorageError(
            f"cannot store the log start offset {log.log_start_offset} of"
            f" {partition.topic_partition} in {log.log_dir}: the write failed; send the"
            " request again, because a crash may bring the records back"
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
            f"cannot delete records of {partition.topic_partition}: cleanup.policy=compact keeps"
            " the last record of every key; add delete to cleanup.policy"
        )
