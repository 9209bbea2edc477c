"""ACLs: their values, validation, and matching by filters.

controller/acls.py stores ACLs; the broker does not enforce them yet (docs/security.md). Types and
operations are the protocol's numbers. Source: Kafka 4.0 ResourcePatternFilter,
AccessControlEntryFilter, AclControlManager, AclApis; KIP-290.
"""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass
from typing import Final, TypeVar

from plog.enums import AclOperation, AclPatternType, AclPermission, AclResourceType, WireEnum
from plog.errors import InvalidRequest
from plog.types import uuid_to_text
from plogd.metadata.store import Key

CLUSTER_NAME: Final = "kafka-cluster"
"""The only valid name of a resource of type CLUSTER."""
WILDCARD: Final = "*"
"""In a literal pattern, every resource; as a host or a principal's name, every client."""


E = TypeVar("E", bound=WireEnum)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ResourcePattern:
    """A single resource, or all resources whose names have a prefix."""

    resource_type: int
    name: str
    pattern_type: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Acl:
    """A rule that allows or denies `operation` on `pattern` to `principal` from `host`."""

    pattern: ResourcePattern
    principal: str
    host: str
    # Not enums, because a record of a newer Kafka may contain numbers that are unknown here.
    operation: int
    permission: int

    def validate(self) -> None:
        """Raise InvalidRequest if the rule is invalid."""
        pattern = self.pattern
        # ANY and MATCH have a meaning only in filters: as a rule, they would be ambiguous.
        _check("resource type", AclResourceType, pattern.resource_type, AclResourceType.ANY)
        _check(
            "pattern type",
            AclPatternType,
            pattern.pattern_type,
            AclPatternType.ANY,
            AclPatternType.MATCH,
        )
        _check("operation", AclOperation, self.operation, AclOperation.ANY)
        _check("permission", AclPermission, self.permission, AclPermission.ANY)
        # As a prefix, an empty name would cover all resources.
        if not pattern.name:
            raise InvalidRequest("invalid ACL: the resource name is empty")
        if not self.host:
            raise InvalidRequest("invalid ACL: the host is empty; use * for all hosts")
        if pattern.resource_type == AclResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
            raise InvalidRequest(f"invalid ACL: a CLUSTER resource must be named {CLUSTER_NAME}")
        # Kafka's SecurityUtils parses a principal as a type and a name.
        if ":" not in self.principal:
            raise InvalidRequest(
                f"invalid ACL: principal {self.principal!r} does not have a type; use"
                f" User:{self.principal}"
            )


def acl_key(acl: Acl) -> Key:
    """Return the key under which the metadata store keeps a new `acl`.

    The id is derived from the rule, because ZooKeeper stores rules without ids.
    """
    fields = "\0".join(map(str, (*astuple(acl.pattern), *astuple(acl)[1:])))
    # The bits of a UUID of version 8 (RFC 9562).
    raw = bytearray(hashlib.sha256(fields.encode()).digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    return ("acl", uuid_to_text(bytes(raw)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """A filter for ACLs, in which ANY and null match everything.

    With the pattern type MATCH, a name matches all patterns that cover a resource of that name.
    """

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def validate(self) -> None:
        """Raise InvalidRequest if a number is unknown."""
        _check("resource type", AclResourceType, self.resource_type)
        _check("pattern type", AclPatternType, self.pattern_type)
        _check("operation", AclOperation, self.operation)
        _check("permission", AclPermission, self.permission)

    def matches(self, acl: Acl) -> bool:
        """Return whether `acl` matches the filter."""
        return (
            self._matches_pattern(acl.pattern)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )

    def _matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (AclResourceType.ANY, pattern.resource_type):
            return False
        # Other filters compare names literally: only MATCH evaluates wildcards and prefixes
        # (KIP-290).
        if self.pattern_type != AclPatternType.MATCH:
            return self.pattern_type in (AclPatternType.ANY, pattern.pattern_type) and (
                self.name in (None, pattern.name)
            )
        return self.name is None or covers(pattern, self.name)


def covers(pattern: ResourcePattern, name: str) -> bool:
    """Return whether `pattern` applies to a resource with this name and the pattern's type.

    >>> prefixed = {"resource_type": AclResourceType.TOPIC, "pattern_type": AclPatternType.PREFIXED}
    >>> literal = {**prefixed, "pattern_type": AclPatternType.LITERAL}
    >>> covers(ResourcePattern(name="pay", **prefixed), "payments")
    True
    >>> covers(ResourcePattern(name="pay", **literal), "payments")
    False
    >>> covers(ResourcePattern(name="*", **literal), "payments")
    True
    """
    if pattern.pattern_type == AclPatternType.PREFIXED:
        # In a prefix, the wildcard is an ordinary character.
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)


def _check(field: str, known: type[E], number: int, *for_filters: E) -> None:
    if number in for_filters:
        raise InvalidRequest(f"invalid ACL: {field} {known(number).name} is valid only in filters")
    # A WireEnum does not raise an error: it converts undefined numbers to UNKNOWN.
    if not known(number).is_known:
        raise InvalidRequest(f"unknown {field} {number}")
