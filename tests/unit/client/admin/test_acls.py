"""AclAdmin: conversion of requests and responses, and operations on a broker."""

from __future__ import annotations

import pytest

from plog.client.admin.acls import (
    Acl,
    AclFilter,
    create_acls_request,
    describe_acls_request,
    described_acls,
)
from plog.enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from plog.errors import InvalidRequest
from plog.wire.messages.acls import AclDescription, DescribeAclsResource, DescribeAclsResponse
from tests.unit.client.admin.conftest import Site

READ = Acl(
    resource_type=AclResourceType.TOPIC,
    resource_name="a",
    principal="User:alice",
    operation=AclOperation.READ,
)
NO_WRITE = Acl(
    resource_type=AclResourceType.TOPIC,
    resource_name="pay",
    pattern_type=AclPatternType.PREFIXED,
    principal="User:*",
    host="192.0.2.1",
    operation=AclOperation.WRITE,
    permission=AclPermission.DENY,
)


# -- pure -------------------------------------------------------------------------------------


def test_rule_is_encoded_with_protocol_numbers() -> None:
    [creation] = create_acls_request([NO_WRITE]).creations
    assert (creation.resource_type, creation.resource_name) == (2, "pay")
    assert creation.resource_pattern_type == 4
    assert (creation.principal, creation.host) == ("User:*", "192.0.2.1")
    assert (creation.operation, creation.permission_type) == (4, 2)


def test_empty_filter_matches_everything() -> None:
    request = describe_acls_request(AclFilter())
    assert (request.resource_type_filter, request.pattern_type_filter) == (1, 1)
    assert (request.operation, request.permission_type) == (1, 1)
    names = (request.resource_name_filter, request.principal_filter, request.host_filter)
    assert names == (None, None, None)


def test_rule_of_a_newer_kafka_has_unknown_values() -> None:
    resource = DescribeAclsResource(
        resource_type=99, resource_name="x", acls=[AclDescription(operation=99, permission_type=3)]
    )
    [acl] = described_acls(DescribeAclsResponse(resources=[resource]))
    assert acl.resource_type is AclResourceType.UNKNOWN
    assert acl.operation is AclOperation.UNKNOWN
    assert acl.permission is AclPermission.ALLOW


# -- at a broker ------------------------------------------------------------------------------


def test_rules_are_created_described_and_deleted(site: Site) -> None:
    admin = site.admin
    assert site.run(admin.create_acls([READ, NO_WRITE])) == {READ: None, NO_WRITE: None}
    assert set(site.run(admin.describe_acls())) == {READ, NO_WRITE}
    assert site.run(admin.describe_acls(AclFilter(principal="User:alice"))) == [READ]
    covering = AclFilter(pattern_type=AclPatternType.MATCH, resource_name="payments")
    assert site.run(admin.describe_acls(covering)) == [NO_WRITE]

    unmatched = AclFilter(principal="User:bob")
    deleted = site.run(admin.delete_acls([covering, unmatched])).raise_first()
    assert deleted[covering] == {NO_WRITE: None}
    assert deleted[unmatched] == {}
    assert site.run(admin.describe_acls()) == [READ]


def test_rules_have_their_own_outcomes(site: Site) -> None:
    wrong = Acl(
        resource_type=AclResourceType.TOPIC,
        resource_name="a",
        principal="alice",
        operation=AclOperation.READ,
    )
    made = site.run(site.admin.create_acls([wrong, READ]))
    assert isinstance(made[wrong], InvalidRequest)
    assert made[READ] is None
    assert site.run(site.admin.describe_acls()) == [READ]


def test_invalid_filter_has_its_own_error(site: Site) -> None:
    wrong = AclFilter(operation=AclOperation.UNKNOWN)
    deleted = site.run(site.admin.delete_acls([wrong, AclFilter()]))
    assert isinstance(deleted[wrong], InvalidRequest)
    assert deleted.get(AclFilter()) == {}
    with pytest.raises(InvalidRequest):
        site.run(site.admin.describe_acls(wrong))


def test_stored_but_unenforced_rules_are_logged(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.run(site.admin.describe_acls())
    assert caplog.messages == []
    site.run(site.admin.create_acls([READ]))
    site.run(site.admin.describe_acls())
    site.run(site.admin.delete_acls([AclFilter()]))
    assert caplog.messages == ["ACLs: stored, not enforced"] * 3
