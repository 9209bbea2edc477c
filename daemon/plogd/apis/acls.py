"""DescribeAcls, CreateAcls, DeleteAcls (keys 29, 30, 31): ACLs are stored, but not enforced.

Serves versions 1-3 of each API. Version 1 adds prefixed patterns (KIP-290), version 2 is flexible,
and version 3 adds the resource type USER (KIP-373).

Kafka without an authorizer responds with SECURITY_DISABLED and stores nothing. This broker stores
ACLs, so that an operator can prepare them before they are enforced (docs/security.md).
security/acl.py validates ACLs, and controller/acls.py stores them.
"""

from __future__ import annotations

from plog.errors import KafkaError
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from plogd.apis.change_deadline import ChangeDeadline
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import check_changes
from plogd.broker import Broker
from plogd.fair_queue import Slices
from plogd.ports import Later, spawn
from plogd.security.acl import Acl, AclFilter, ResourcePattern
from plogd.security.unenforced_rules import NOT_ENFORCED


def handle_describe_acls(
    request: DescribeAclsRequest, context: RequestContext, broker: Broker
) -> Later[DescribeAclsResponse]:
    """Return the matching ACLs, grouped by resource."""
    found = broker.acls.describe(
        AclFilter(
            resource_type=request.resource_type_filter,
            name=request.resource_name_filter,
            pattern_type=request.pattern_type_filter,
            principal=request.principal_filter,
            host=request.host_filter,
            operation=request.operation,
            permission=request.permission_type,
        )
    )
    return spawn(_described(found, broker))


async def _described(found: Later[list[Acl]], broker: Broker) -> DescribeAclsResponse:
    # In the response, a resource appears once with all its ACLs, but the store keeps single ACLs.
    by_pattern: dict[ResourcePattern, list[Acl]] = {}
    async for acl in Slices(broker.fair_queue).over(await found):
        by_pattern.setdefault(acl.pattern, []).append(acl)
    return DescribeAclsResponse(
        resources=lazy_array(list(by_pattern.items()), lambda one: _resource(*one)),
        # Clients ignore the message in a successful result; plog's tools print it as a warning.
        error_message=NOT_ENFORCED if by_pattern else "",
    )


def _resource(pattern: ResourcePattern, acls: list[Acl]) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        acls=lazy_array(acls, _description),
    )


def _description(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def handle_create_acls(
    request: CreateAclsRequest, context: RequestContext, broker: Broker
) -> Later[CreateAclsResponse]:
    """Create the ACLs; each has its own outcome."""
    check_changes(request.creations, "ACLs")
    return spawn(_create(request, broker))


async def _create(request: CreateAclsRequest, broker: Broker) -> CreateAclsResponse:
    # A request can contain 10,000 ACLs, too many for one turn of the reactor.
    slices = Slices(broker.fair_queue)
    acls = [_acl_of(creation) async for creation in slices.over(request.creations)]
    results = await ChangeDeadline(broker).limit(lambda: broker.acls.create(acls))
    return CreateAclsResponse(results=lazy_array(results, _creation_result))


def _acl_of(creation: AclCreation) -> Acl:
    return Acl(
        pattern=ResourcePattern(
            resource_type=creation.resource_type,
            name=creation.resource_name,
            pattern_type=creation.resource_pattern_type,
        ),
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission=creation.permission_type,
    )


def _creation_result(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        # As in DescribeAcls, clients ignore the message, and plog's tools print it.
        return AclCreationResult(error_message=NOT_ENFORCED)
    return AclCreationResult(error_code=error.code, error_message=error.message)


def handle_delete_acls(
    request: DeleteAclsRequest, context: RequestContext, broker: Broker
) -> Later[DeleteAclsResponse]:
    """Delete the ACLs that match any of the filters."""
    check_changes(request.filters, "filters")
    return spawn(_delete(request, broker))


async def _delete(request: DeleteAclsRequest, broker: Broker) -> DeleteAclsResponse:
    slices = Slices(broker.fair_queue)
    filters = [_filter_of(one) async for one in slices.over(request.filters)]
    results = await ChangeDeadline(broker).limit(lambda: broker.acls.delete(filters))
    return DeleteAclsResponse(filter_results=lazy_array(results, _filter_result))


def _filter_of(one: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        resource_type=one.resource_type_filter,
        name=one.resource_name_filter,
        pattern_type=one.pattern_type_filter,
        principal=one.principal_filter,
        host=one.host_filter,
        operation=one.operation,
        permission=one.permission_type,
    )


def _filter_result(result: list[Acl] | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(result, KafkaError):
        return DeleteAclsFilterResult(error_code=result.code, error_message=result.message)
    return DeleteAclsFilterResult(
        # A filter that does not match any ACL has no effect, so a warning is not needed.
        error_message=NOT_ENFORCED if result else None,
        matching_acls=lazy_array(result, _matching),
    )


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.pattern.resource_type,
        resource_name=acl.pattern.name,
        pattern_type=acl.pattern.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def refuse_create_acls(
    request: CreateAclsRequest, context: RequestContext, error: KafkaError
) -> CreateAclsResponse:
    """Reject all ACLs with `error`."""
    return CreateAclsResponse(
        results=lazy_array(request.creations, lambda _: _creation_result(error))
    )


def refuse_delete_acls(
    request: DeleteAclsRequest, context: RequestContext, error: KafkaError
) -> DeleteAclsResponse:
    """Reject all filters with `error`."""
    return DeleteAclsResponse(
        filter_results=lazy_array(request.filters, lambda _: _filter_result(error))
    )
