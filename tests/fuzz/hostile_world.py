"""The broker that receives hostile requests, with the many existing things that they name.

It is a `MeteredBroker`, which counts the steps of each turn. Building it takes a second or two, so
one broker serves many requests, until a request has deleted things that later ones need.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from plog.records.batch import Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.settings import settings_of
from plog.wire.messages.acls import AclCreation, CreateAclsRequest
from plog.wire.messages.client_quotas import (
    AlterationEntry,
    AlterClientQuotasRequest,
    EntityData,
    OpData,
)
from plog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from plog.wire.messages.user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from plogd.topic_config import TopicConfig
from tests.fuzz.hostile_requests import Known
from tests.helpers.group.group_frames import stable
from tests.helpers.sim.sim_broker import produce_request
from tests.helpers.sim.sim_time import START_MS
from tests.helpers.turn_budget import MeteredBroker, TurnBudget, metered_broker

WIDE = "wide"
"""The topic with many partitions; the first of them has records and producers."""
_PARTITIONS = 500
_TOPICS = 200
_GROUPS = 200
_USERS = 200
_PRODUCERS = 100
_METADATA = "m" * 4_000
_DISK_BYTES = 16 << 20
_REWRITING = {
    "gzipped": {"compression.type": "gzip", "compression.gzip.level": "9"},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
}
"""Settings of topics for which the broker decompresses or rewrites batches."""


def build_world(budget: TurnBudget) -> tuple[MeteredBroker, Known]:
    """Return a broker and the things on it. Building them does not count for the meter."""
    broker = metered_broker(budget, num_partitions=1, offsets_topic_num_partitions=2)
    with broker.meter.off():
        topics = _create_topics(broker)
        groups = _commit_offsets(broker)
        users = [f"user-{number}" for number in range(_USERS)]
        _create_entities(broker, users)
        _produce(broker)
        members = [joined.member_id for joined in stable(broker, 3)]
        broker.settle()
    ids = {topic.name: topic.topic_id for topic in broker.broker.cache.topics()}
    known = Known(
        topics=topics,
        topic_ids=[ids[name] for name in topics],
        produce_topics=1 + len(_REWRITING),
        partitions=_PARTITIONS,
        groups=["g", *groups],
        members=members,
        users=users,
        config_names=list(settings_of(TopicConfig)),
        records=_batches(),
    )
    return broker, known


def is_worn(broker: MeteredBroker, known: Known) -> bool:
    """Whether things that requests name are missing, or too much has been added or written."""
    if broker.files.used_bytes > _DISK_BYTES:
        return True  # Files grow by copying, which would count as memory of the next request.
    topics = {topic.name for topic in broker.broker.cache.topics()}
    return not topics.issuperset(known.topics) or len(topics) > 2 * len(known.topics)


def _create_topics(broker: MeteredBroker) -> list[str]:
    configs: dict[str, dict[str, str]] = {WIDE: {}, **_REWRITING}
    configs |= {f"topic-{number}": {} for number in range(_TOPICS)}
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=_PARTITIONS if name == WIDE else 1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=x) for key, x in config.items()],
            )
            for name, config in configs.items()
        ]
    )
    _check(topic.error_code for topic in broker.ask(request, 7).topics)
    return list(configs)


def _commit_offsets(broker: MeteredBroker) -> list[str]:
    groups = [f"group-{number}" for number in range(_GROUPS)]
    for group in groups:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=_METADATA
        )
        topic = OffsetCommitRequestTopic(name=WIDE, partitions=[partition])
        broker.ask(
            OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic]), 8
        )
    return groups


def _create_entities(broker: MeteredBroker, users: Sequence[str]) -> None:
    """Create quotas, ACLs and credentials for each user."""
    quotas = [
        AlterationEntry(
            entity=[EntityData(entity_type="user", entity_name=user)],
            ops=[OpData(key="producer_byte_rate", value=1e9)],
        )
        for user in users
    ]
    acls = [
        AclCreation(
            resource_type=2,
            resource_name=WIDE,
            resource_pattern_type=3,
            principal=f"User:{user}",
            host="*",
            operation=3,
            permission_type=3,
        )
        for user in users
    ]
    credentials = [
        ScramCredentialUpsertion(
            name=user, mechanism=1, iterations=4096, salt=b"s" * 16, salted_password=b"p" * 32
        )
        for user in users
    ]
    _check(
        one.error_code for one in broker.ask(AlterClientQuotasRequest(entries=quotas), 1).entries
    )
    _check(one.error_code for one in broker.ask(CreateAclsRequest(creations=acls), 3).results)
    scram = AlterUserScramCredentialsRequest(upsertions=credentials)
    _check(one.error_code for one in broker.ask(scram, 0).results)


def _produce(broker: MeteredBroker) -> None:
    for number in range(_PRODUCERS):
        request = produce_request(
            WIDE, b"value", producer_id=10_000 + number, producer_epoch=0, base_sequence=0
        )
        broker.begin(request, 9)
    broker.settle()


def _check(codes: object) -> None:
    wrong = [code for code in codes if code]  # type: ignore[attr-defined]
    assert not wrong, f"cannot build the broker: error codes {wrong[:10]}"


@cache
def _batches() -> list[bytes]:
    """Return a small batch, then batches that are small only while compressed."""
    small = [Record(timestamp=START_MS, value=b"value")]
    zeros = [Record(timestamp=START_MS, key=b"k", value=bytes(1 << 20))] * 8
    tiny = [Record(timestamp=START_MS, key=b"k")] * 20_000
    return [
        build_batch(small),
        build_batch(tiny),
        *(
            build_batch(records, compression=codec)
            for records in (zeros, tiny)
            for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)
        ),
    ]
