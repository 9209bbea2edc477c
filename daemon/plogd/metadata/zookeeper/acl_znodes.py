"""The znodes of ACLs: one for each resource, with a list of rules.

Rules that plog cannot read are kept. Source: Kafka 3.9 AclEntry, ResourceZNode,
LiteralAclChangeStore, ExtendedAclChangeStore.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from plog.enums import AclOperation, AclPatternType, AclPermission, AclResourceType, WireEnum
from plogd.metadata.zookeeper.paths import pattern_of, resource_path
from plogd.metadata.zookeeper.znode_json import (
    decode_object,
    encode_json,
    int_of,
    merged,
    text_of,
)
from plogd.security.acl import Acl, ResourcePattern

E = TypeVar("E", bound=WireEnum)

_VERSION = 1


def decode_acls(path: str, data: bytes) -> list[Acl]:
    """Return the rules in the znode `path`. Raises ValueError."""
    pattern = pattern_of(path)
    return [_acl_of(pattern, item) for item in _items_of(data)]


def encode_acls(acls: Iterable[Acl], path: str, old: bytes | None = None) -> bytes:
    """Return the contents of a znode with these rules; `old` are its present contents."""
    wanted = list(acls)
    pattern = pattern_of(path)
    items: list[dict[str, Any]] = []
    # In their present order, with the fields that plog does not know.
    for item in _items_of(old or b""):
        acl = _acl_of(pattern, item)
        if acl in wanted:
            wanted.remove(acl)
            items.append(item)
    items += [_item_of(acl) for acl in wanted]
    return encode_json(merged(old, {"version": _VERSION, "acls": items}))


def _items_of(data: bytes) -> list[dict[str, Any]]:
    if not data:
        return []
    value = decode_object(data)
    if int_of(value, "version") != _VERSION:
        raise ValueError(f"unknown version {value['version']} of ACLs")
    items = value.get("acls")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError("acls is not a list of objects")
    return items


def _acl_of(pattern: ResourcePattern, item: dict[str, Any]) -> Acl:
    return Acl(
        pattern=pattern,
        principal=text_of(item, "principal"),
        host=text_of(item, "host"),
        operation=_member(AclOperation, text_of(item, "operation")),
        permission=_member(AclPermission, text_of(item, "permissionType")),
    )


def _item_of(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "permissionType": _pascal_case(AclPermission(acl.permission)),
        "operation": _pascal_case(AclOperation(acl.operation)),
        "host": acl.host,
    }


def _pascal_case(member: WireEnum) -> str:
    return "".join(word.capitalize() for word in member.name.split("_"))


def _member(enum: type[E], name: str) -> int:
    # A rule of a newer Kafka must not be ignored: it may be the removal of a permission.
    names = {_pascal_case(member): int(member) for member in enum}
    return names.get(name, int(enum["UNKNOWN"]))


def encode_acl_change(pattern: ResourcePattern) -> bytes:
    """Return the contents of the notification that the rules of a resource have changed."""
    type_name = AclResourceType(pattern.resource_type).name
    if pattern.pattern_type == AclPatternType.LITERAL:
        return f"{type_name}:{pattern.name}".encode()
    return encode_json(
        {
            "version": 1,
            "resourceType": type_name,
            "name": pattern.name,
            "patternType": AclPatternType(pattern.pattern_type).name,
        }
    )


def changed_acl_path(data: bytes, *, is_literal: bool) -> str:
    """Return the znode whose change a notification reports. Raises ValueError."""
    if is_literal:
        type_name, separator, name = data.decode().partition(":")
        if not separator:
            raise ValueError("not a resource type and a name, separated by a colon")
        pattern_type = "LITERAL"
    else:
        value = decode_object(data)
        type_name, name = text_of(value, "resourceType"), text_of(value, "name")
        pattern_type = text_of(value, "patternType")
    try:
        return resource_path(
            ResourcePattern(
                # Kafka's ResourceType.fromString ignores case.
                resource_type=AclResourceType[type_name.upper()],
                name=name,
                pattern_type=AclPatternType[pattern_type.upper()],
            )
        )
    except KeyError as error:
        raise ValueError(f"unknown type {error}") from None
