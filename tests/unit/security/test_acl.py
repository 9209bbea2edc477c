"""Validation of ACLs, and matching them with filters."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from plog.errors import InvalidRequest
from plogd.security.acl import Acl, AclFilter, ResourcePattern

ANYTHING = AclFilter(
    resource_type=AclResourceType.ANY,
    name=None,
    pattern_type=AclPatternType.ANY,
    principal=None,
    host=None,
    operation=AclOperation.ANY,
    permission=AclPermission.ANY,
)
NAMES = st.sampled_from(["*", "a", "ab", "abc", "b"])
ACLS = st.builds(
    Acl,
    pattern=st.builds(
        ResourcePattern,
        resource_type=st.sampled_from([AclResourceType.TOPIC, AclResourceType.GROUP]),
        name=NAMES,
        pattern_type=st.sampled_from([AclPatternType.LITERAL, AclPatternType.PREFIXED]),
    ),
    principal=st.sampled_from(["User:*", "User:a"]),
    host=st.sampled_from(["*", "192.0.2.1"]),
    operation=st.sampled_from([AclOperation.ALL, AclOperation.READ]),
    permission=st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)


def acl(**fields: Any) -> Acl:
    pattern = ResourcePattern(
        resource_type=fields.pop("resource_type", AclResourceType.TOPIC),
        name=fields.pop("name", "t"),
        pattern_type=fields.pop("pattern_type", AclPatternType.LITERAL),
    )
    values: dict[str, Any] = {
        "principal": "User:a",
        "host": "*",
        "operation": AclOperation.READ,
        "permission": AclPermission.ALLOW,
    }
    return Acl(pattern=pattern, **(values | fields))


def exact_filter(one: Acl) -> AclFilter:
    return AclFilter(
        resource_type=one.pattern.resource_type,
        name=one.pattern.name,
        pattern_type=one.pattern.pattern_type,
        principal=one.principal,
        host=one.host,
        operation=one.operation,
        permission=one.permission,
    )


@given(ACLS, ACLS)
def test_filter_without_any_matches_exactly_one_acl(one: Acl, other: Acl) -> None:
    assert exact_filter(one).matches(other) is (one == other)


@given(ACLS)
def test_filter_of_any_matches_everything(one: Acl) -> None:
    assert ANYTHING.matches(one)


@given(ACLS, ACLS, st.sets(st.sampled_from(dataclasses.fields(AclFilter))))
def test_field_set_to_any_is_ignored(
    one: Acl, other: Acl, ignored: set[dataclasses.Field[Any]]
) -> None:
    names = {field.name for field in ignored}
    loose = {name: getattr(ANYTHING, name) for name in names}
    wanted, got = exact_filter(one), exact_filter(other)
    fields = [x.name for x in dataclasses.fields(AclFilter) if x.name not in names]
    same = all(getattr(wanted, name) == getattr(got, name) for name in fields)
    assert dataclasses.replace(wanted, **loose).matches(other) is same


@given(ACLS, NAMES)
def test_match_returns_patterns_that_cover_a_resource(one: Acl, name: str) -> None:
    asked = dataclasses.replace(ANYTHING, pattern_type=AclPatternType.MATCH, name=name)
    pattern = one.pattern
    if pattern.pattern_type == AclPatternType.PREFIXED:
        expected = name[: len(pattern.name)] == pattern.name
    else:
        expected = pattern.name in ("*", name)
    assert asked.matches(one) is expected


@given(ACLS)
def test_match_without_a_name_matches_every_pattern(one: Acl) -> None:
    assert dataclasses.replace(ANYTHING, pattern_type=AclPatternType.MATCH).matches(one)


def test_wildcard_is_an_ordinary_name_except_with_match() -> None:
    everybody = acl(name="*", principal="User:*", host="*")
    named = dataclasses.replace(ANYTHING, pattern_type=AclPatternType.LITERAL, name="t")
    assert not named.matches(everybody)
    assert dataclasses.replace(named, pattern_type=AclPatternType.MATCH).matches(everybody)
    assert not dataclasses.replace(ANYTHING, principal="User:a").matches(everybody)
    assert not dataclasses.replace(ANYTHING, host="192.0.2.1").matches(everybody)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"resource_type": 0}, "unknown resource type 0"),
        ({"resource_type": AclResourceType.ANY}, "resource type ANY is valid only in filters"),
        ({"resource_type": 99}, "unknown resource type 99"),
        ({"pattern_type": AclPatternType.ANY}, "pattern type ANY is valid only in filters"),
        ({"pattern_type": AclPatternType.MATCH}, "pattern type MATCH is valid only in filters"),
        ({"pattern_type": 0}, "unknown pattern type 0"),
        ({"operation": AclOperation.ANY}, "operation ANY is valid only in filters"),
        ({"operation": 16}, "unknown operation 16"),
        ({"permission": AclPermission.ANY}, "permission ANY is valid only in filters"),
        ({"permission": 0}, "unknown permission 0"),
        ({"host": ""}, "the host is empty"),
        ({"name": ""}, "the resource name is empty"),
        ({"resource_type": AclResourceType.CLUSTER}, "kafka-cluster"),
        ({"principal": "a"}, "does not have a type; use User:a"),
    ],
)
def test_invalid_acl_is_rejected(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        acl(**fields).validate()


def test_valid_acls_are_accepted() -> None:
    acl().validate()
    acl(resource_type=AclResourceType.CLUSTER, name="kafka-cluster").validate()
    acl(resource_type=AclResourceType.USER, pattern_type=AclPatternType.PREFIXED).validate()
    acl(operation=AclOperation.TWO_PHASE_COMMIT).validate()


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission"])
@pytest.mark.parametrize("number", [0, 77, -1])
def test_filter_with_an_unknown_number_is_rejected(field: str, number: int) -> None:
    with pytest.raises(InvalidRequest, match=str(number)):
        dataclasses.replace(ANYTHING, **{field: number}).validate()
    ANYTHING.validate()
