"""DescribeAcls, CreateAcls, DeleteAcls (keys 29, 30, 31): access control lists.

Changes by version:

  1  pattern types (KIP-290)
  2  flexible
  3  resource type "user" (KIP-373)

All three APIs have the same versions. Version 0 was removed in Kafka 4.0. plog/enums.py defines the
numbers.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32

# The default, because all patterns were literal before KIP-290.
_LITERAL = 3


class DescribeAclsRequest(ApiMessage, api_key=ApiKey.DESCRIBE_ACLS, versions="1-3", flexible="2+"):
    """A filter for the ACLs to describe; null names match all."""

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
    """A resource or a pattern of resources, with its ACLs."""

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
    """The result of creating one ACL."""

    error_code: int16 = field()
    error_message: str | None = field()


class CreateAclsResponse(ApiMessage, api_key=ApiKey.CREATE_ACLS, versions="1-3", flexible="2+"):
    """The result of each creation, in the order of the request."""

    throttle_time_ms: int32 = field()
    results: list[AclCreationResult] = field()


class DeleteAclsFilter(Struct):
    """A filter for the ACLs to delete; null names match all."""

    resource_type_filter: int8 = field()
    resource_name_filter: str | None = field()
    pattern_type_filter: int8 = field(default=_LITERAL)
    principal_filter: str | None = field()
    host_filter: str | None = field()
    operation: int8 = field()
    permission_type: int8 = field()


class DeleteAclsRequest(ApiMessage, api_key=ApiKey.DELETE_ACLS, versions="1-3", flexible="2+"):
    """Filters; ACLs that match any of them are deleted."""

    filters: list[DeleteAclsFilter] = field()


class DeleteAclsMatchingAcl(Struct):
    """An ACL that matched; it was deleted unless an error is set."""

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
    """The ACLs that matched one filter."""

    error_code: int16 = field()
    error_message: str | None = field()
    matching_acls: list[DeleteAclsMatchingAcl] = field()


class DeleteAclsResponse(ApiMessage, api_key=ApiKey.DELETE_ACLS, versions="1-3", flexible="2+"):
    """The ACLs that matched each filter, in the order of the request."""

    throttle_time_ms: int32 = field()
    filter_results: list[DeleteAclsFilterResult] = field()
