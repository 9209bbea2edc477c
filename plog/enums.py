"""Protocol enums that both the client and the broker use.

An enum that only one side uses belongs in that side's modules. Enums with behavior have their own
modules (plog/scram.py, plog/error_codes.py).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class WireEnum(IntEnum):
    """Base class of enums whose members are protocol numbers; undefined numbers become UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        # A newer peer may send numbers that this version does not define.
        # For other types, None makes the enum raise ValueError: they are an error of the caller,
        # not of a newer peer.
        return cls["UNKNOWN"] if isinstance(value, int) else None

    @property
    def is_known(self) -> bool:
        """Whether this version of plog defines the number.

        >>> AclPermission(3).is_known, AclPermission(99).is_known
        (True, False)
        """
        return self.name != "UNKNOWN"


# -- access control -------------------------------------------------------------------------------


class AclOperation(WireEnum):
    """The operation that an ACL allows or denies. ANY is only used in filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13  # KIP-373: tokens for other users.
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15  # KIP-939.


class AclResourceType(WireEnum):
    """The type of resource that an ACL protects. ANY is only used in filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6  # KIP-48.
    USER = 7  # KIP-373: the owners of the tokens.


class AclPatternType(WireEnum):
    """How an ACL matches resource names. ANY and MATCH are only used in filters.

    MATCH selects all ACLs that apply to a name: literal, prefixed and wildcard ACLs.
    """

    UNKNOWN = 0
    ANY = 1
    # With the prefixes of KIP-290, a filter by the exact name does not find all ACLs of a resource.
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermission(WireEnum):
    """Whether an ACL allows or denies the operation. ANY is only used in filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


# -- settings -------------------------------------------------------------------------------------


class ConfigResourceType(WireEnum):
    """The type of a resource that has settings."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8  # KIP-412.
    CLIENT_METRICS = 16  # KIP-714.
    GROUP = 32  # KIP-848.


class ConfigSource(WireEnum):
    """The source of a setting's value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class AlterOperation(WireEnum):
    """How a setting is changed; APPEND and SUBTRACT change single entries of a list."""

    # Kafka numbers the operations from 0 (KIP-339), so UNKNOWN needs another number here.
    UNKNOWN = -1
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# -- the cluster ----------------------------------------------------------------------------------


class ElectionType(WireEnum):
    """The replica to elect: the preferred leader, or any available replica (may lose records)."""

    # As above, 0 is a valid number (KIP-460).
    UNKNOWN = -1
    PREFERRED = 0
    UNCLEAN = 1


class UpgradeType(WireEnum):
    """Whether an update can downgrade a feature, and whether the downgrade can lose metadata."""

    UNKNOWN = 0
    UPGRADE = 1
    # A controller refuses a safe downgrade that would lose metadata (KIP-778).
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
