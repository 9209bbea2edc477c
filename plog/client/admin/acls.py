"""Access control lists: create, describe and delete rules.

The controller changes the rules; any broker describes them. plog brokers store rules but do not
enforce them yet (docs/security.md). Source: KIP-140, KIP-290.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from plog.client.admin.base import AdminBase
from plog.client.admin.results import Results, log_notes, outcome, raise_if_error
from plog.enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from plog.errors import ErrorCode, KafkaError
from plog.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """A rule that allows or denies an operation for a principal, such as "User:alice", from a host.

    `host` is an IP address or "*".
    """

    resource_type: AclResourceType
    resource_name: str
    pattern_type: AclPatternType = AclPatternType.LITERAL
    principal: str
    host: str = "*"
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """A filter for rules; None and ANY match all values."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    pattern_type: AclPatternType = AclPatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY


class AclAdmin(AdminBase):
    """The operations on ACLs."""

    async def create_acls(self, acls: Iterable[Acl]) -> Results[Acl, None]:
        """Create rules; an existing rule is not an error. Errors: InvalidRequest, ..."""
        # The outcomes are keyed by rule, so a duplicate's outcome would be lost.
        listed = list(dict.fromkeys(acls))
        response = await self._cluster.ask_controller(
            create_acls_request(listed),
            CreateAclsResponse,
            # A broker that is no longer the controller reports NOT_CONTROLLER in each result.
            retry_on=lambda answer: any(
                x.error_code == ErrorCode.NOT_CONTROLLER for x in answer.results
            ),
        )
        # plog brokers warn that they store rules without enforcing them (docs/security.md).
        log_notes("ACLs", ((x.error_code, x.error_message) for x in response.results))
        return Results(
            {
                # The results do not identify their rules; they are in request order.
                acl: outcome(result.error_code, result.error_message, f"the rule {acl}", None)
                for acl, result in zip(listed, response.results, strict=True)
            }
        )

    async def describe_acls(self, which: AclFilter | None = None) -> list[Acl]:
        """Return the rules that match the filter, by default all rules."""
        # Every broker has all rules in its metadata, so any broker can serve the request.
        request = describe_acls_request(which or AclFilter())
        response = await self._cluster.ask_any(request, DescribeAclsResponse)
        raise_if_error(response.error_code, response.error_message, "the rules")
        log_notes("ACLs", [(response.error_code, response.error_message)])
        return described_acls(response)

    async def delete_acls(
        self, filters: Iterable[AclFilter]
    ) -> Results[AclFilter, Results[Acl, None]]:
        """Delete the rules that match any of `filters`; return the outcomes by filter and rule."""
        listed = list(dict.fromkeys(filters))
        response = await self._cluster.ask_controller(
            DeleteAclsRequest(filters=[_wire_filter(one) for one in listed]),
            DeleteAclsResponse,
            # As for CreateAcls, each result can contain the error.
            retry_on=lambda answer: any(
                x.error_code == ErrorCode.NOT_CONTROLLER for x in answer.filter_results
            ),
        )
        log_notes("ACLs", ((x.error_code, x.error_message) for x in response.filter_results))
        return Results(
            {
                one: outcome(
                    result.error_code, result.error_message, f"the filter {one}", _matched(result)
                )
                # As in a CreateAcls response, the results are in request order.
                for one, result in zip(listed, response.filter_results, strict=True)
            }
        )


# -- requests ---------------------------------------------------------------------------------


def create_acls_request(acls: Iterable[Acl]) -> CreateAclsRequest:
    """Return the request to create rules."""
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )


def describe_acls_request(which: AclFilter) -> DescribeAclsRequest:
    """Return the request to describe rules."""
    return DescribeAclsRequest(
        resource_type_filter=which.resource_type,
        resource_name_filter=which.resource_name,
        pattern_type_filter=which.pattern_type,
        principal_filter=which.principal,
        host_filter=which.host,
        operation=which.operation,
        permission_type=which.permission,
    )


def _wire_filter(which: AclFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=which.resource_type,
        resource_name_filter=which.resource_name,
        pattern_type_filter=which.pattern_type,
        principal_filter=which.principal,
        host_filter=which.host,
        operation=which.operation,
        permission_type=which.permission,
    )


# -- responses --------------------------------------------------------------------------------


def described_acls(response: DescribeAclsResponse) -> list[Acl]:
    """Return the rules in a response."""
    return [
        Acl(
            resource_type=AclResourceType(resource.resource_type),
            resource_name=resource.resource_name,
            pattern_type=AclPatternType(resource.pattern_type),
            principal=acl.principal,
            host=acl.host,
            operation=AclOperation(acl.operation),
            permission=AclPermission(acl.permission_type),
        )
        for resource in response.resources
        for acl in resource.acls
    ]


def _matched(result: DeleteAclsFilterResult) -> Results[Acl, None]:
    matched: dict[Acl, KafkaError | None] = {}
    for found in result.matching_acls:
        acl = Acl(
            resource_type=AclResourceType(found.resource_type),
            resource_name=found.resource_name,
            pattern_type=AclPatternType(found.pattern_type),
            principal=found.principal,
            host=found.host,
            operation=AclOperation(found.operation),
            permission=AclPermission(found.permission_type),
        )
        matched[acl] = outcome(found.error_code, found.error_message, f"the rule {acl}", None)
    return Results(matched)
