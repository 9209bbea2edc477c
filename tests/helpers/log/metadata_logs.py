"""A KRaft metadata log with records of every type, for comparing two metadata shells."""

from __future__ import annotations

from pathlib import Path

from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.wire.internal.kraft_records import (
    ClearElrRecord,
    DelegationTokenRecord,
    FenceBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from plog.wire.internal.metadata_records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UserScramCredentialRecord,
    encode_metadata_record,
)

_ENDPOINTS = [
    BrokerEndpoint(name="TLS", host="b.example", port=9093, security_protocol=1),
    BrokerEndpoint(name="PLAINTEXT", host="a.example", port=9092, security_protocol=0),
]
_FEATURES = [
    BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30),
    BrokerFeature(name="group.version", min_supported_version=0, max_supported_version=1),
]


def _id(number: int) -> bytes:
    return bytes([number]) * 16


def _broker(number: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=number,
        incarnation_id=_id(number),
        broker_epoch=10 + number,
        end_points=_ENDPOINTS,
        features=_FEATURES,
        rack="r1" if number == 1 else None,
        fenced=False,
        log_dirs=[_id(9)],
        cordoned_log_dirs=[_id(9)] if number == 1 else None,
    )


def _partition(topic: int, number: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=_id(topic),
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=3,
        partition_epoch=4,
        directories=[_id(9), _id(8)],
    )


def _quota(key: str, value: float, *entity: tuple[str, str | None]) -> ClientQuotaRecord:
    parts = [QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=value)


RECORDS: tuple[MetadataRecord, ...] = (
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    FeatureLevelRecord(name="group.version", feature_level=1),
    _broker(1),
    _broker(2),
    _broker(3),
    BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=11, fenced=1, in_controlled_shutdown=1, cordoned_log_dirs=[]
    ),
    FenceBrokerRecord(id=2, epoch=12),
    UnregisterBrokerRecord(broker_id=3, broker_epoch=13),
    RegisterControllerRecord(
        controller_id=1, incarnation_id=_id(7), end_points=_ENDPOINTS, features=_FEATURES
    ),
    TopicRecord(name="orders", topic_id=_id(16)),
    _partition(16, 0),
    _partition(16, 1),
    PartitionChangeRecord(
        partition_id=1, topic_id=_id(16), isr=[2], leader=2, eligible_leader_replicas=[1]
    ),
    ClearElrRecord(topic_name="orders"),
    PartitionChangeRecord(partition_id=0, topic_id=_id(16), isr=[], leader=-1, last_known_elr=[1]),
    TopicRecord(name="gone", topic_id=_id(17)),
    _partition(17, 0),
    RemoveTopicRecord(topic_id=_id(17)),
    ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5"),
    ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="6"),
    ConfigRecord(resource_type=4, resource_name="1", name="log.cleaner.threads", value="2"),
    ConfigRecord(resource_type=16, resource_name="m", name="interval.ms", value="1000"),
    ConfigRecord(
        resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value="50000"
    ),
    ConfigRecord(resource_type=2, resource_name="orders", name="a", value="b"),
    ConfigRecord(resource_type=2, resource_name="orders", name="a", value=None),
    _quota("producer_byte_rate", 1e6, ("user", "al(i)ce"), ("client-id", "c1")),
    _quota("consumer_byte_rate", 12.5, ("user", "bob")),
    _quota("connection_creation_rate", 5, ("ip", "10.0.0.1")),
    AccessControlEntryRecord(
        id=_id(5), resource_type=2, resource_name="orders", pattern_type=3, principal="User:a",
        host="*", operation=3, permission_type=3,
    ),
    UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    ),
    DelegationTokenRecord(
        owner="User:a", requester="User:b", renewers=["User:c"], issue_timestamp=1,
        max_timestamp=3, expiration_timestamp=2, token_id="t1",
    ),
    ProducerIdsRecord(broker_id=1, broker_epoch=11, next_producer_id=2000),
)  # fmt: skip


def write_metadata_log(directory: Path) -> Path:
    """Write one batch per record to the first segment of ``__cluster_metadata``; return its path.

    A ``quorum-state`` file next to it shows that Kafka's quorum has written it.
    """
    directory.mkdir()
    (directory / "quorum-state").write_text("{}")
    path = directory / f"{0:020d}.log"
    batches = [
        build_batch(
            [
                Record(
                    timestamp=1_700_000_000_000 + offset,
                    value=encode_metadata_record(record, record.max_version),
                )
            ],
            base_offset=offset,
            partition_leader_epoch=7,
        )
        for offset, record in enumerate(RECORDS)
    ]
    path.write_bytes(b"".join(batches))
    return path
