"""DescribeAcls, CreateAcls and DeleteAcls: requests and responses as frames."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from plog.enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from plog.errors import ErrorCode
from plog.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from plogd.security.unenforced_rules import NOT_ENFORCED
from tests.helpers.sim.sim_broker import SimBroker

every_version = pytest.mark.parametrize("version", [1, 2, 3])
INVALID = ErrorCode.INVALID_REQUEST


def make() -> SimBroker:
    return SimBroker().start()


def creation(name: str = "t", **fields: Any) -> AclCreation:
    values: dict[str, Any] = {
        "resource_type": AclResourceType.TOPIC,
        "resource_pattern_type": AclPatternType.LITERAL,
        "principal": "User:a",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": AclPermission.ALLOW,
    }
    return AclCreation(resource_name=name, **(values | fields))


def create(broker: SimBroker, *creations: AclCreation, version: int = 3) -> list[int]:
    answer = broker.ask(CreateAclsRequest(creations=list(creations)), version)
    assert all(one.error_message for one in answer.results)
    assert all(
        (one.error_message == NOT_ENFORCED) is (one.error_code == 0) for one in answer.results
    )
    return [one.error_code for one in answer.results]


def filter_fields(**fields: Any) -> dict[str, Any]:
    values = {
        "resource_type_filter": AclResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": AclPatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermission.ANY,
    }
    return values | fields


def describe(broker: SimBroker, version: int = 3, **fields: Any) -> list[tuple[str, str]]:
    """Return (resource, principal) of the matching ACLs."""
    answer = broker.ask(DescribeAclsRequest(**filter_fields(**fields)), version)
    assert answer.error_code == 0, answer.error_message
    return [
        (resource.resource_name, acl.principal)
        for resource in answer.resources
        for acl in resource.acls
    ]


@every_version
def test_created_acl_is_described_completely_and_deleted(version: int) -> None:
    broker = make()
    wanted = creation("logs-", resource_pattern_type=AclPatternType.PREFIXED, host="192.0.2.1")
    assert create(broker, wanted, version=version) == [0]
    [resource] = broker.ask(DescribeAclsRequest(**filter_fields()), version).resources
    assert (resource.resource_type, resource.resource_name) == (AclResourceType.TOPIC, "logs-")
    assert resource.pattern_type == AclPatternType.PREFIXED
    [acl] = resource.acls
    assert (acl.principal, acl.host) == ("User:a", "192.0.2.1")
    assert (acl.operation, acl.permission_type) == (AclOperation.READ, AclPermission.ALLOW)

    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**filter_fields())])
    [result] = broker.ask(request, version).filter_results
    [deleted] = result.matching_acls
    assert (result.error_code, deleted.error_code) == (0, 0)
    assert (deleted.resource_name, deleted.pattern_type) == ("logs-", AclPatternType.PREFIXED)
    assert (deleted.principal, deleted.host) == ("User:a", "192.0.2.1")
    assert describe(broker) == []


def test_acls_are_described_by_resource() -> None:
    broker = make()
    create(broker, creation("b"), creation("a", principal="User:z"), creation("a"))
    answer = broker.ask(DescribeAclsRequest(**filter_fields()), 3)
    actual = [(one.resource_name, [acl.principal for acl in one.acls]) for one in answer.resources]
    assert actual == [("a", ["User:a", "User:z"]), ("b", ["User:a"])]


def test_match_filter_finds_wildcard_and_prefix() -> None:
    broker = make()
    create(
        broker,
        creation("*", principal="User:wild"),
        creation("pay", resource_pattern_type=AclPatternType.PREFIXED, principal="User:prefix"),
        creation("payments", principal="User:literal"),
        creation("pay", principal="User:other"),
    )
    asked = {"resource_type_filter": AclResourceType.TOPIC, "resource_name_filter": "payments"}
    found = describe(broker, pattern_type_filter=AclPatternType.MATCH, **asked)
    assert {principal for _, principal in found} == {"User:wild", "User:prefix", "User:literal"}
    found = describe(broker, pattern_type_filter=AclPatternType.LITERAL, **asked)
    assert found == [("payments", "User:literal")]
    found = describe(broker, pattern_type_filter=AclPatternType.PREFIXED)
    assert found == [("pay", "User:prefix")]


def test_duplicate_acl_is_created_once_without_an_error() -> None:
    broker = make()
    assert create(broker, creation(), creation()) == [0, 0]
    assert create(broker, creation()) == [0]
    assert len(broker.broker.store.load(("acl",))) == 1


def test_concurrent_requests_create_one_acl() -> None:
    broker = make()
    asked = [broker.begin(CreateAclsRequest(creations=[creation()]), 3) for _ in range(2)]
    broker.settle()
    assert [one.response().results[0].error_code for one in asked] == [0, 0]
    assert len(broker.broker.store.load(("acl",))) == 1


def test_concurrent_requests_delete_one_acl() -> None:
    broker = make()
    create(broker, creation())
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**filter_fields())])
    asked = [broker.begin(request, 3) for _ in range(2)]
    broker.settle()
    deleted = [len(one.response().filter_results[0].matching_acls) for one in asked]
    assert deleted == [1, 0]


def test_each_acl_of_a_request_has_its_own_outcome() -> None:
    broker = make()
    outcomes = create(
        broker,
        creation("good"),
        creation(""),
        creation("x", resource_type=AclResourceType.CLUSTER),
        creation("x", operation=99),
        creation("x", resource_pattern_type=AclPatternType.MATCH),
        creation("x", principal="nobody"),
        creation("kafka-cluster", resource_type=AclResourceType.CLUSTER),
    )
    assert outcomes == [0, INVALID, INVALID, INVALID, INVALID, INVALID, 0]
    assert [name for name, _ in describe(broker)] == ["good", "kafka-cluster"]


def test_acl_matching_two_filters_is_reported_for_both() -> None:
    broker = make()
    create(broker, creation("a"), creation("b"))
    filters = [
        DeleteAclsFilter(**filter_fields(resource_name_filter="a")),
        DeleteAclsFilter(**filter_fields(principal_filter="User:a")),
        DeleteAclsFilter(**filter_fields(operation=0)),
        DeleteAclsFilter(**filter_fields(resource_name_filter="nothing")),
    ]
    results = broker.ask(DeleteAclsRequest(filters=filters), 3).filter_results
    actual = [(one.error_code, [x.resource_name for x in one.matching_acls]) for one in results]
    assert actual == [(0, ["a"]), (0, ["a", "b"]), (INVALID, []), (0, [])]
    assert describe(broker) == []


def test_invalid_filter_is_refused() -> None:
    broker = make()
    answer = broker.ask(DescribeAclsRequest(**filter_fields(resource_type_filter=0)), 3)
    assert (answer.error_code, answer.resources) == (INVALID, [])
    assert "resource type 0" in answer.error_message


def test_acls_and_their_deletion_survive_power_loss() -> None:
    broker = make()
    create(broker, creation("kept"), creation("gone"))
    filters = [DeleteAclsFilter(**filter_fields(resource_name_filter="gone"))]
    broker.ask(DeleteAclsRequest(filters=filters), 3)
    again = broker.restart(broker.files.crash(broker.ports.random))
    assert describe(again) == [("kept", "User:a")]
    assert create(again, creation("kept")) == [0]
    assert len(again.broker.store.load(("acl",))) == 1


def test_change_of_acls_logs_that_they_are_not_enforced() -> None:
    broker = make()
    create(broker, creation("a"), creation("b"))
    create(broker, creation("a"))
    filters = [DeleteAclsFilter(**filter_fields(resource_name_filter="a"))]
    deleted = broker.ask(DeleteAclsRequest(filters=filters), 3)
    assert [one.error_message for one in deleted.filter_results] == [NOT_ENFORCED]
    again = broker.ask(DeleteAclsRequest(filters=filters), 3)
    assert [one.error_message for one in again.filter_results] == [None]
    assert [line.partition(" (")[0] for line in broker.reports if NOT_ENFORCED in line] == [
        "created 2 ACLs",
        "deleted 1 ACLs",
    ]


def test_description_and_metrics_say_that_acls_are_not_enforced() -> None:
    broker = make()
    request = DescribeAclsRequest(**filter_fields())
    assert broker.ask(request, 3).error_message == ""
    create(broker, creation("a"), creation("b"))
    assert broker.ask(request, 3).error_message == NOT_ENFORCED
    assert b"plog_acls_stored_not_enforced 2\n" in broker.metrics.expose()


def test_failed_disk_is_reported_for_every_acl() -> None:
    broker = make()
    broker.broker.store.storage_failed()
    assert create(broker, creation("a"), creation("b")) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**filter_fields())])
    [result] = broker.ask(request, 3).filter_results
    assert result.error_code == 0, "there was nothing to delete"


def overlapping_filters() -> list[DeleteAclsFilter]:
    """Return 64 distinct filters, each of which matches every ACL of `creation`."""
    choices = itertools.product(
        (AclResourceType.ANY, AclResourceType.TOPIC),
        (AclPatternType.ANY, AclPatternType.LITERAL),
        (None, "User:a"),
        (None, "*"),
        (AclOperation.ANY, AclOperation.READ),
        (AclPermission.ANY, AclPermission.ALLOW),
    )
    names = (
        "resource_type_filter",
        "pattern_type_filter",
        "principal_filter",
        "host_filter",
        "operation",
        "permission_type",
    )
    return [
        DeleteAclsFilter(**filter_fields(**dict(zip(names, choice, strict=True))))
        for choice in choices
    ]


def test_filters_with_too_many_overlapping_matches_are_refused() -> None:
    broker = make()
    create(broker, *(creation(f"t{number}") for number in range(200)))
    filters = overlapping_filters()
    answer = broker.ask(DeleteAclsRequest(filters=filters[:51]), 3)
    assert {one.error_code for one in answer.filter_results} == {ErrorCode.POLICY_VIOLATION}
    answer = broker.ask(DeleteAclsRequest(filters=filters[:50]), 3)
    assert {len(one.matching_acls) for one in answer.filter_results} == {200}


def test_filter_named_repeatedly_is_handled_once() -> None:
    broker = make()
    create(broker, *(creation(f"t{number}") for number in range(200)))
    everything = DeleteAclsFilter(**filter_fields())
    answer = broker.ask(DeleteAclsRequest(filters=[everything] * 1000), 3)
    assert {one.error_code for one in answer.filter_results} == {0}
    assert [len(one.matching_acls) for one in answer.filter_results] == [200] + [0] * 999


def test_too_many_comparisons_are_refused() -> None:
    broker = make()
    create(broker, *(creation(f"t{number}") for number in range(600)))
    filters = [
        DeleteAclsFilter(**filter_fields(resource_name_filter=f"x{n}")) for n in range(9_000)
    ]
    answer = broker.ask(DeleteAclsRequest(filters=filters), 3)
    assert {one.error_code for one in answer.filter_results} == {ErrorCode.POLICY_VIOLATION}


def test_many_comparisons_are_made_in_slices() -> None:
    broker = make()
    create(broker, *(creation(f"t{number}") for number in range(200)))
    nothing = DeleteAclsFilter(**filter_fields(resource_name_filter="x"))
    deletion = broker.begin(DeleteAclsRequest(filters=[nothing] * 101), 3)
    assert not deletion.is_done
    broker.settle()
    assert [one.matching_acls for one in deletion.response().filter_results] == [[]] * 101


def test_invalid_filter_named_repeatedly_is_an_error_each_time() -> None:
    broker = make()
    create(broker, creation("a"))
    invalid = DeleteAclsFilter(**filter_fields(operation=99))
    answer = broker.ask(DeleteAclsRequest(filters=[invalid, invalid]), 3)
    assert {one.error_code for one in answer.filter_results} == {ErrorCode.INVALID_REQUEST}
