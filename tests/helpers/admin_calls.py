"""A valid call of every admin operation, for tests that apply to all of them."""

from __future__ import annotations

from typing import Any

from plog.client.admin import (
    Acl,
    AclFilter,
    AlterConfig,
    ConfigResource,
    FeatureUpdate,
    NewTopic,
    OffsetSpec,
    QuotaEntity,
    ScramDeletion,
    ScramMechanism,
    TopicPartitionReplica,
)
from plog.enums import AclOperation, AclResourceType, ElectionType
from plog.types import TopicPartition

T0 = TopicPartition("t", 0)
TOPIC = ConfigResource.topic("t")
_QUOTA = QuotaEntity.of(user="alice")
_ACL = Acl(
    resource_type=AclResourceType.TOPIC,
    resource_name="t",
    principal="User:alice",
    operation=AclOperation.READ,
)

ADMIN_CALLS: dict[str, tuple[Any, ...]] = {
    "alter_client_quotas": ({_QUOTA: {"producer_byte_rate": 1e6}},),
    "alter_config": (TOPIC, {"retention.ms": 5}),
    "alter_configs": ({TOPIC: {"retention.ms": 5}},),
    "alter_group_offsets": ("g", {T0: 0}),
    "alter_partition_reassignments": ({T0: [1]},),
    "alter_replica_log_dirs": ({TopicPartitionReplica("t", 0, 1): "/var/lib/plog"},),
    "alter_user_scram_credentials": (
        [ScramDeletion(user="alice", mechanism=ScramMechanism.SCRAM_SHA_256)],
    ),
    "api_versions": (),
    "create_acls": ([_ACL],),
    "create_partitions": ({"t": 3},),
    "create_topic": ("u",),
    "create_topics": ([NewTopic("u")],),
    "delete_acls": ([AclFilter()],),
    "delete_group": ("g",),
    "delete_group_offsets": ("g", [T0]),
    "delete_groups": (["g"],),
    "delete_records": ({T0: 0},),
    "delete_topic": ("t",),
    "delete_topics": (["t"],),
    "describe_acls": (),
    "describe_client_quotas": (),
    "describe_cluster": (),
    "describe_config": (TOPIC,),
    "describe_configs": ([TOPIC],),
    "describe_features": (),
    "describe_group": ("g",),
    "describe_groups": (["g"],),
    "describe_log_dirs": (),
    "describe_producers": ([T0],),
    "describe_topic": ("t",),
    "describe_topics": (["t"],),
    "describe_user_scram_credentials": (),
    "elect_leaders": (ElectionType.PREFERRED,),
    "group_offsets": ("g",),
    "incremental_alter_configs": ({TOPIC: [AlterConfig("retention.ms", 5)]},),
    "list_config_resources": (),
    "list_group_offsets": (["g"],),
    "list_groups": (),
    "list_offsets": ({T0: OffsetSpec.LATEST},),
    "list_partition_reassignments": (),
    "list_topics": (),
    "remove_members": ("g", ["m"]),
    "unregister_broker": (7,),
    "update_features": ({"metadata.version": FeatureUpdate(1)},),
}
"""The arguments of each operation, by name."""
