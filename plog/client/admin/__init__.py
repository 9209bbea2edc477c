"""The admin client: topics, configs, groups, offsets, ACLs, quotas and users.

Each module provides one family of operations as a class that can be used on its own; core.py
combines the families. `plog.client.faces` adapts the operations for applications, and `plog.cli`
prints their results. Start with topics.py.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plog.client.admin.acls import Acl as Acl
    from plog.client.admin.acls import AclFilter as AclFilter
    from plog.client.admin.brokers import BrokerApiVersions as BrokerApiVersions
    from plog.client.admin.brokers import FeatureMetadata as FeatureMetadata
    from plog.client.admin.brokers import FeatureUpdate as FeatureUpdate
    from plog.client.admin.core import AdminCore as AdminCore
    from plog.client.admin.log_dirs import ANY_LOG_DIR as ANY_LOG_DIR
    from plog.client.admin.quotas import ANY_NAME as ANY_NAME
    from plog.client.admin.quotas import QuotaEntity as QuotaEntity
    from plog.client.admin.records import HIGH_WATERMARK as HIGH_WATERMARK
    from plog.client.admin.results import Results as Results
    from plog.client.admin.scram_credentials import ScramCredentialInfo as ScramCredentialInfo
    from plog.client.admin.scram_credentials import ScramDeletion as ScramDeletion
    from plog.client.admin.scram_credentials import ScramMechanism as ScramMechanism
    from plog.client.admin.scram_credentials import ScramUpsertion as ScramUpsertion
    from plog.client.admin.values import AlterConfig as AlterConfig
    from plog.client.admin.values import BrokerDescription as BrokerDescription
    from plog.client.admin.values import ClusterDescription as ClusterDescription
    from plog.client.admin.values import ConfigEntry as ConfigEntry
    from plog.client.admin.values import ConfigResource as ConfigResource
    from plog.client.admin.values import ConfigSynonym as ConfigSynonym
    from plog.client.admin.values import ConfigType as ConfigType
    from plog.client.admin.values import CreatedTopic as CreatedTopic
    from plog.client.admin.values import GroupDescription as GroupDescription
    from plog.client.admin.values import GroupListing as GroupListing
    from plog.client.admin.values import GroupState as GroupState
    from plog.client.admin.values import ListedOffset as ListedOffset
    from plog.client.admin.values import LogDirDescription as LogDirDescription
    from plog.client.admin.values import MemberDescription as MemberDescription
    from plog.client.admin.values import MemberToRemove as MemberToRemove
    from plog.client.admin.values import NewPartitions as NewPartitions
    from plog.client.admin.values import NewTopic as NewTopic
    from plog.client.admin.values import OffsetSpec as OffsetSpec
    from plog.client.admin.values import PartitionDescription as PartitionDescription
    from plog.client.admin.values import ProducerState as ProducerState
    from plog.client.admin.values import Reassignment as Reassignment
    from plog.client.admin.values import ReplicaInfo as ReplicaInfo
    from plog.client.admin.values import TopicDescription as TopicDescription
    from plog.client.admin.values import TopicListing as TopicListing
    from plog.client.admin.values import TopicPartitionReplica as TopicPartitionReplica
    from plog.client.admin.values import VersionRange as VersionRange
    from plog.enums import AclOperation as AclOperation
    from plog.enums import AclPatternType as AclPatternType
    from plog.enums import AclPermission as AclPermission
    from plog.enums import AclResourceType as AclResourceType
    from plog.enums import AlterOperation as AlterOperation
    from plog.enums import ConfigResourceType as ConfigResourceType
    from plog.enums import ConfigSource as ConfigSource
    from plog.enums import ElectionType as ElectionType
    from plog.enums import UpgradeType as UpgradeType

_NAMES_BY_MODULE = {
    "acls": ("Acl", "AclFilter"),
    "brokers": ("BrokerApiVersions", "FeatureMetadata", "FeatureUpdate"),
    "core": ("AdminCore",),
    "scram_credentials": (
        "ScramCredentialInfo",
        "ScramDeletion",
        "ScramMechanism",
        "ScramUpsertion",
    ),
    "log_dirs": ("ANY_LOG_DIR",),
    "quotas": ("ANY_NAME", "QuotaEntity"),
    "records": ("HIGH_WATERMARK",),
    "results": ("Results",),
    "values": (
        "AlterConfig",
        "BrokerDescription",
        "ClusterDescription",
        "ConfigEntry",
        "ConfigResource",
        "ConfigSynonym",
        "ConfigType",
        "CreatedTopic",
        "GroupDescription",
        "GroupListing",
        "GroupState",
        "ListedOffset",
        "LogDirDescription",
        "MemberDescription",
        "MemberToRemove",
        "NewPartitions",
        "NewTopic",
        "OffsetSpec",
        "PartitionDescription",
        "ProducerState",
        "Reassignment",
        "ReplicaInfo",
        "TopicDescription",
        "TopicListing",
        "TopicPartitionReplica",
        "VersionRange",
    ),
}
_ENUMS = (
    "AclOperation",
    "AclPatternType",
    "AclPermission",
    "AclResourceType",
    "AlterOperation",
    "ConfigResourceType",
    "ConfigSource",
    "ElectionType",
    "UpgradeType",
)
_MODULE_BY_NAME = dict.fromkeys(_ENUMS, "plog.enums") | {
    name: f"{__name__}.{module}" for module, names in _NAMES_BY_MODULE.items() for name in names
}


# Names are imported on first use: a command that needs one family should not wait for the others.
def __getattr__(name: str) -> object:
    module = _MODULE_BY_NAME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_BY_NAME])
