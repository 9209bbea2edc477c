"""Numbers of the protocol that have names, as client and broker both use them.

What only one of the two needs is with what needs it, and so are enums that are more than names
(plog/scram.py, plog/error_codes.py).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class WireEnum(IntEnum):
    """A number of the protocol; one that a newer peer may know is its class's UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls["UNKNOWN"] if isinstance(value, int) else None

    @property
    def is_known(self) -> bool:
        """Whether it means something.

        >>> AclPermission(3).is_known, AclPermission(99).is_known
        (True, False)
        """
        return self.name != "UNKNOWN"


# -- access control -------------------------------------------------------------------------------


class AclOperation(WireEnum):
    """What somebody may want to do. ANY is for filters."""

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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResourceType(WireEnum):
    """What is protected. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(WireEnum):
    """How a resource's name is meant. ANY and MATCH, whatever covers the name, are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermission(WireEnum):
    """Whether they may. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


# -- settings -------------------------------------------------------------------------------------


class ConfigResourceType(WireEnum):
    """What can have settings."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(WireEnum):
    """Where a value comes from."""

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
    """What to do with a setting; APPEND and SUBTRACT are for lists."""

    UNKNOWN = -1
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# -- the cluster ----------------------------------------------------------------------------------


class ElectionType(WireEnum):
    """Of the replica that should lead, or of any that is there, whatever is lost by it."""

    UNKNOWN = -1
    PREFERRED = 0
    UNCLEAN = 1


class UpgradeType(WireEnum):
    """What a new level of a feature may cost."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
