"""What an ACL is, which ones can be, and which ones a filter matches.

Pure values. Keeping them is controller/acls.py's work; nobody enforces them yet
(docs/security.md). The numbers are the protocol's. Source: Kafka 4.0 ResourcePatternFilter,
AccessControlEntryFilter, AclControlManager, AclApis; KIP-290.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from plog.enums import AclOperation, AclPatternType, AclPermission, AclResourceType, WireEnum
from plog.errors import InvalidRequest

CLUSTER_NAME: Final = "kafka-cluster"
"""The only name a resource of type CLUSTER may have."""
WILDCARD: Final = "*"
"""As the name of a literal pattern: every resource. As a host, or a principal's name: everybody."""


E = TypeVar("E", bound=WireEnum)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ResourcePattern:
    """A resource, or all whose names begin alike."""

    resource_type: int
    name: str
    pattern_type: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Acl:
    """One rule: `principal` from `host` is allowed, or denied, `operation` on `pattern`.

    Holds numbers as they came: a record of a newer Kafka may have some that we cannot name.
    """

    pattern: ResourcePattern
    principal: str
    host: str
    operation: int
    permission: int

    def validate(self) -> None:
        """Raise InvalidRequest if there can be no such rule."""
        pattern = self.pattern
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
        if not pattern.name:
            raise InvalidRequest("the name of the resource is empty")
        if not self.host:
            raise InvalidRequest("the host is empty; * means every host")
        if pattern.resource_type == AclResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
            raise InvalidRequest(f"the only name of a CLUSTER resource is {CLUSTER_NAME}")
        if ":" not in self.principal:
            raise InvalidRequest(
                f"the principal {self.principal!r} has no type; write it like User:{self.principal}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Which ACLs are meant: ANY and null match everything.

    With the pattern type MATCH and a name, all patterns match that cover a resource of that name.
    """

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def validate(self) -> None:
        """Raise InvalidRequest if some number is unknown."""
        _check("resource type", AclResourceType, self.resource_type)
        _check("pattern type", AclPatternType, self.pattern_type)
        _check("operation", AclOperation, self.operation)
        _check("permission", AclPermission, self.permission)

    def matches(self, acl: Acl) -> bool:
        """Whether `acl` is meant."""
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
        if self.pattern_type != AclPatternType.MATCH:
            return self.pattern_type in (AclPatternType.ANY, pattern.pattern_type) and (
                self.name in (None, pattern.name)
            )
        return self.name is None or covers(pattern, self.name)


def covers(pattern: ResourcePattern, name: str) -> bool:
    """Whether `pattern` is about a resource of this name (and of its type).

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
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)


def _check(what: str, known: type[E], number: int, *for_filters: E) -> None:
    if number in for_filters:
        raise InvalidRequest(f"{what} {known(number).name} is for filters only")
    if not known(number).is_known:
        raise InvalidRequest(f"there is no {what} {number}")
