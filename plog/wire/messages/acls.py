"""DescribeAcls, CreateAcls, DeleteAcls (keys 29, 30, 31): who may do what to which resource.

  1  pattern types (KIP-290)
  2  flexible
  3  resource type "user" (KIP-373)

All three change together. Version 0 is gone since Kafka 4.0. What the numbers mean stands in
plogd/security/acl.py.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32

_LITERAL = 3


class DescribeAclsRequest(ApiMessage, api_key=ApiKey.DESCRIBE_ACLS, versions="1-3", flexible="2+"):
    """Which ACLs to describe; null names match all."""

    resource_type_filter: int8 = field()
    resource_name_filter: str | None = field()
    pattern_type_filter: int8 = field(default=_LITERAL)
    principal_filter: str | None = field()
    host_filter: str | None = field()
    operation: int8 = field()
    permission_type: int8 = field()


class AclDescription(Struct):
    """One ACL of a resource."""

    principal: str = field()
    host: str = field()
    operation: int8 = field()
    permission_type: int8 = field()


class DescribeAclsResource(Struct):
    """A resource, or a pattern of resources, with its ACLs."""

    resource_type: int8 = field()
    resource_name: str = field()
    pattern_type: int8 = field(default=_LITERAL)
    acls: list[AclDescription] = field()


class DescribeAclsResponse(ApiMessage, api_key=ApiKey.DESCRIBE_ACLS, versions="1-3", flexible="2+"):
    """ACLs, by resource."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    resources: list[DescribeAclsResource] = field()


class AclCreation(Struct):
    """An ACL to create."""

    resource_type: int8 = field()
    resource_name: str = field()
    resource_pattern_type: int8 = field(default=_LITERAL)
    principal: str = field()
    host: str = field()
    operation: int8 = field()
    permission_type: int8 = field()


class CreateAclsRequest(ApiMessage, api_key=ApiKey.CREATE_ACLS, versions="1-3", flexible="2+"):
    """ACLs to create."""

    creations: list[AclCreation] = field()


class AclCreationResult(Struct):
    """What became of one creation."""

    error_code: int16 = field()
    error_message: str | None = field()


class CreateAclsResponse(ApiMessage, api_key=ApiKey.CREATE_ACLS, versions="1-3", flexible="2+"):
    """What became of each creation, in the order of the request."""

    throttle_time_ms: int32 = field()
    results: list[AclCreationResult] = field()


class DeleteAclsFilter(Struct):
    """Which ACLs to delete; null names match all."""

    resource_type_filter: int8 = field()
    resource_name_filter: str | None = field()
    pattern_type_filter: int8 = field(default=_LITERAL)
    principal_filter: str | None = field()
    host_filter: str | None = field()
    operation: int8 = field()
    permission_type: int8 = field()


class DeleteAclsRequest(ApiMessage, api_key=ApiKey.DELETE_ACLS, versions="1-3", flexible="2+"):
    """Filters; what matches any of them goes."""

    filters: list[DeleteAclsFilter] = field()


class DeleteAclsMatchingAcl(Struct):
    """An ACL that matched, deleted unless there is an error."""

    error_code: int16 = field()
    error_message: str | None = field()
    resource_type: int8 = field()
    resource_name: str = field()
    pattern_type: int8 = field(default=_LITERAL)
    principal: str = field()
    host: str = field()
    operation: int8 = field()
    permission_type: int8 = field()


class DeleteAclsFilterResult(Struct):
    """What matched one filter."""

    error_code: int16 = field()
    error_message: str | None = field()
    matching_acls: list[DeleteAclsMatchingAcl] = field()


class DeleteAclsResponse(ApiMessage, api_key=ApiKey.DELETE_ACLS, versions="1-3", flexible="2+"):
    """What matched each filter, in the order of the request."""

    throttle_time_ms: int32 = field()
    filter_results: list[DeleteAclsFilterResult] = field()
