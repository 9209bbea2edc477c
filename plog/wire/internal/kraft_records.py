"""Records of Kafka's metadata log that a plog broker neither writes nor replays.

The tools that print or import the logs of Kafka's controllers decode these records. No record in
metadata_records.py has the same key.
Source: Kafka 4.3 metadata/src/main/resources.
"""

from __future__ import annotations

from typing import Final

from plog.wire.internal.metadata_records import (
    METADATA_RECORDS,
    BrokerEndpoint,
    BrokerFeature,
    MetadataRecord,
)
from plog.wire.schema import field, int8, int32, int64, uuid


class UnregisterBrokerRecord(MetadataRecord, record_key=1, versions="0", flexible="0+"):
    """A broker was unregistered."""

    broker_id: int32 = field()
    broker_epoch: int64 = field()


class FenceBrokerRecord(MetadataRecord, record_key=7, versions="0", flexible="0+"):
    """A broker was fenced and cannot lead partitions."""

    id: int32 = field()
    epoch: int64 = field()


class UnfenceBrokerRecord(MetadataRecord, record_key=8, versions="0", flexible="0+"):
    """A broker was unfenced and can lead partitions again."""

    id: int32 = field()
    epoch: int64 = field()


class DelegationTokenRecord(MetadataRecord, record_key=10, versions="0", flexible="0+"):
    """A delegation token was created or renewed; timestamps are wall-clock ms."""

    owner: str = field()
    requester: str = field()
    renewers: list[str] = field()
    issue_timestamp: int64 = field()
    max_timestamp: int64 = field()
    expiration_timestamp: int64 = field()
    token_id: str = field()


class NoOpRecord(MetadataRecord, record_key=20, versions="0", flexible="0+"):
    """A no-op record, which shows that the leader is alive."""


class ZkMigrationStateRecord(MetadataRecord, record_key=21, versions="0", flexible="0+"):
    """The state of the migration from ZooKeeper."""

    zk_migration_state: int8 = field()


class BeginTransactionRecord(MetadataRecord, record_key=23, versions="0", flexible="0+"):
    """The start of a metadata transaction, which takes effect at its end (KIP-868)."""

    name: str | None = field(tag=0, default=None)


class EndTransactionRecord(MetadataRecord, record_key=24, versions="0", flexible="0+"):
    """The end of a metadata transaction: its records take effect."""


class AbortTransactionRecord(MetadataRecord, record_key=25, versions="0", flexible="0+"):
    """The abort of a metadata transaction: its records are ignored."""

    reason: str | None = field(tag=0, default=None)


class RemoveDelegationTokenRecord(MetadataRecord, record_key=26, versions="0", flexible="0+"):
    """A delegation token was removed."""

    token_id: str = field()


class RegisterControllerRecord(MetadataRecord, record_key=27, versions="0", flexible="0+"):
    """A controller was registered."""

    controller_id: int32 = field()
    incarnation_id: uuid = field()
    zk_migration_ready: bool = field()
    end_points: list[BrokerEndpoint] = field()
    features: list[BrokerFeature] = field()


class ClearElrRecord(MetadataRecord, record_key=28, versions="0", flexible="0+"):
    """The eligible leaders of a topic, or of all if the name is empty, were cleared (KIP-966)."""

    topic_name: str = field()


KRAFT_RECORDS: Final[tuple[type[MetadataRecord], ...]] = (
    UnregisterBrokerRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    DelegationTokenRecord,
    NoOpRecord,
    ZkMigrationStateRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    RemoveDelegationTokenRecord,
    RegisterControllerRecord,
    ClearElrRecord,
)
# A broker decodes only METADATA_RECORDS: skipping a record of KRAFT_RECORDS, such as the abort of
# a metadata transaction, would change the meaning of others.
KNOWN_RECORDS: Final[dict[int, type[MetadataRecord]]] = {
    record.record_key: record for record in (*METADATA_RECORDS, *KRAFT_RECORDS)
}
"""All record types of Kafka 4.3, by key."""
