"""ACLs, quotas and SCRAM users compared with Apache Kafka, which has an authorizer for this."""

from __future__ import annotations

import time
from typing import Any

from plog.enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from plog.wire.api_keys import ApiKey
from plog.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from plog.wire.messages.client_quotas import (
    AlterationEntry,
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from plog.wire.messages.user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from plog.wire.schema import ApiMessage
from tests.helpers.side_by_side import Comparison, Pair
from tests.integration.kafka_comparison.versions import lowest_and_highest

LISTS = ("resources", "acls", "matching_acls", "entries", "entity", "values", "credential_infos")
"""Kafka returns them in hash order."""


def eventually_same(pair: Pair, request: ApiMessage, version: int) -> None:
    """Wait for equal responses: Kafka's brokers apply its controller's records late."""
    deadline = time.monotonic() + 60
    compare = Comparison(unordered=LISTS)
    while any(compare.differences(*pair.ask(request, version))):
        assert time.monotonic() < deadline, f"{pair.ask(request, version)} still differ"


def creation(name: str, **fields: Any) -> AclCreation:
    values: dict[str, Any] = {
        "resource_type": AclResourceType.TOPIC,
        "resource_pattern_type": AclPatternType.LITERAL,
        "principal": "User:a",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": AclPermission.ALLOW,
    }
    return AclCreation(resource_name=name, **(values | fields))


def filter_fields(name: str | None, pattern_type: int, **fields: Any) -> dict[str, Any]:
    values = {
        "resource_type_filter": AclResourceType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermission.ANY,
    }
    return {"resource_name_filter": name, "pattern_type_filter": pattern_type} | values | fields


def some_acls(version: int) -> tuple[str, list[AclCreation]]:
    prefix = f"acl-{version}"
    return prefix, [
        creation(f"{prefix}-topic"),
        creation(f"{prefix}-topic", principal="User:b", permission_type=AclPermission.DENY),
        creation(f"{prefix}-to", resource_pattern_type=AclPatternType.PREFIXED, host="192.0.2.1"),
        creation(
            f"{prefix}-topic", resource_type=AclResourceType.GROUP, operation=AclOperation.ALL
        ),
        creation(f"{prefix}-topic"),
    ]


@lowest_and_highest(ApiKey.CREATE_ACLS)
def test_acls_are_created_or_refused_independently(pair: Pair, version: int) -> None:
    _, acls = some_acls(version)
    wrong = [  # Kafka treats values for filters only, such as ANY, as a bug: UNKNOWN_SERVER_ERROR.
        creation(""),
        creation("x", resource_type=AclResourceType.CLUSTER),
        creation("x", resource_type=99),
        creation("x", resource_pattern_type=99),
        creation("x", operation=99),
        creation("x", permission_type=99),
        creation("kafka-cluster", resource_type=AclResourceType.CLUSTER, principal="User:nobody"),
    ]
    pair.same(CreateAclsRequest(creations=acls), version)
    for one in wrong:
        pair.same(CreateAclsRequest(creations=[one]), version)


@lowest_and_highest(ApiKey.DESCRIBE_ACLS)
def test_acls_are_found(pair: Pair, version: int) -> None:
    prefix, acls = some_acls(version)
    pair.same(CreateAclsRequest(creations=acls), version)
    name = f"{prefix}-topic"
    every = DescribeAclsRequest(**filter_fields(None, AclPatternType.ANY))
    eventually_same(pair, every, version)
    for fields in (
        filter_fields(name, AclPatternType.LITERAL),
        filter_fields(name, AclPatternType.ANY),
        filter_fields(f"{prefix}-to", AclPatternType.PREFIXED),
        filter_fields(name, AclPatternType.MATCH, resource_type_filter=AclResourceType.TOPIC),
        filter_fields(name, AclPatternType.MATCH, principal_filter="User:b"),
        filter_fields(name, AclPatternType.MATCH, host_filter="192.0.2.1"),
        filter_fields(name, AclPatternType.MATCH, operation=AclOperation.ALL),
        filter_fields(name, AclPatternType.MATCH, permission_type=AclPermission.DENY),
        filter_fields(f"{prefix}-nothing", AclPatternType.LITERAL),
    ):
        pair.same(DescribeAclsRequest(**fields), version, unordered=LISTS)


@lowest_and_highest(ApiKey.DELETE_ACLS)
def test_acls_are_deleted_and_returned_per_filter(pair: Pair, version: int) -> None:
    prefix, acls = some_acls(version)
    pair.same(CreateAclsRequest(creations=acls), version)
    filters = [
        DeleteAclsFilter(**filter_fields(f"{prefix}-topic", AclPatternType.LITERAL)),
        DeleteAclsFilter(**filter_fields(f"{prefix}-topic", AclPatternType.MATCH)),
        DeleteAclsFilter(**filter_fields(f"{prefix}-nothing", AclPatternType.LITERAL)),
        DeleteAclsFilter(**filter_fields("x", AclPatternType.LITERAL, operation=99)),
    ]
    for _ in range(2):
        pair.same(DeleteAclsRequest(filters=filters), version, unordered=LISTS)


def entry(entity: dict[str, str | None], **ops: float | None) -> AlterationEntry:
    return AlterationEntry(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()
        ],
    )


@lowest_and_highest(ApiKey.ALTER_CLIENT_QUOTAS)
def test_quotas_are_changed_or_refused_per_entity(pair: Pair, version: int) -> None:
    user: dict[str, str | None] = {"user": f"altered-{version}"}
    for one in (
        entry(user, producer_byte_rate=1e6, request_percentage=12.5, controller_mutation_rate=0.5),
        entry(user, producer_byte_rate=None, consumer_byte_rate=None),
        entry(user, producer_byte_rate=0.0),
        entry(user, producer_byte_rate=-1.0),
        entry(user, producer_byte_rate=1.5),
        entry(user, producer_byte_rate=1e19),
        entry(user, connection_creation_rate=1.0),
        entry(user, nonsense=1.0),
        entry({}, producer_byte_rate=1e6),
        entry({"user": ""}, producer_byte_rate=1e6),
        entry({"planet": "x"}, producer_byte_rate=1e6),
        entry({**user, "ip": "192.0.2.1"}, connection_creation_rate=1.0),
        entry({"ip": "192.0.2.1"}, connection_creation_rate=5.0),
        entry({"ip": "192.0.2.1"}, producer_byte_rate=5.0),
    ):
        request = AlterClientQuotasRequest(entries=[one])
        pair.same(request, version, unordered=LISTS)
    trial = AlterClientQuotasRequest(
        entries=[entry(user, consumer_byte_rate=9.0)], validate_only=True
    )
    pair.same(trial, version, unordered=LISTS)
    eventually_same(pair, DescribeClientQuotasRequest(), version)
    described = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type="user", match_type=0, match=user["user"])]
    )
    pair.same(described, version, unordered=LISTS)


@lowest_and_highest(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def test_quotas_are_found(pair: Pair, version: int) -> None:
    user = f"described-{version}"
    entities: list[dict[str, str | None]] = [
        {"user": user},
        {"user": user, "client-id": None},
        {"user": user, "client-id": "c"},
        {"client-id": f"{user}-client"},
    ]
    setting = AlterClientQuotasRequest(
        entries=[entry(one, producer_byte_rate=1e9) for one in entities]
    )
    pair.same(setting, version, unordered=LISTS)
    eventually_same(pair, DescribeClientQuotasRequest(), version)
    for parts in (
        [("user", 0, user)],
        [("user", 0, user), ("client-id", 1, None)],
        [("user", 0, user), ("client-id", 2, None)],
        [("client-id", 0, f"{user}-client")],
        [("user", 0, None)],
        [("user", 1, "x")],
        [("user", 9, None)],
        [("", 0, "x")],
        [("planet", 0, "x")],
        [("user", 0, "x"), ("user", 1, None)],
        [("user", 0, "x"), ("ip", 2, None)],
    ):
        components = [
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in parts
        ]
        for strict in (False, True):
            asked = DescribeClientQuotasRequest(components=components, strict=strict)
            pair.same(asked, version, unordered=LISTS)


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=b"salted",
    )


@lowest_and_highest(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
def test_scram_users_are_changed_or_refused_per_user(pair: Pair, version: int) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[
            ScramCredentialDeletion(name="nobody", mechanism=1),
            ScramCredentialDeletion(name="odd", mechanism=0),
        ],
        upsertions=[
            upsertion("altered"),
            upsertion("few", iterations=4095),
            upsertion("many", iterations=16385),
            upsertion("strange", 3),
            upsertion(""),
            upsertion("twice"),
            upsertion("twice", 2),
        ],
    )
    pair.same(request, version, unordered=(*LISTS, "results"))
    removal = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="altered", mechanism=1)]
    )
    for _ in range(2):
        pair.same(removal, version)


@lowest_and_highest(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
def test_scram_users_are_described(pair: Pair, version: int) -> None:
    for mechanism in (1, 2):
        request = AlterUserScramCredentialsRequest(
            upsertions=[upsertion("described", mechanism, 5000)]
        )
        pair.same(request, version)
        described = DescribeUserScramCredentialsRequest(users=[UserName(name="described")])
        eventually_same(pair, described, version)
    for names in (None, [], ["described"], ["described", "nobody", "twice", "twice"]):
        users = None if names is None else [UserName(name=name) for name in names]
        asked = DescribeUserScramCredentialsRequest(users=users)
        pair.same(asked, version, unordered=(*LISTS, "results"))
