"""DescribeCluster (key 60): the brokers and the controller (KIP-700).

Changes by version:

  1  brokers or controllers (KIP-919)
  2  fenced brokers (KIP-1073)
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32

NO_OPERATIONS = -(2**31)
"""The value of authorized operations if they were not requested."""


class DescribeClusterRequest(
    ApiMessage, api_key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+"
):
    """The endpoint type: brokers (1) or controllers (2)."""

    include_cluster_authorized_operations: bool = field()
    endpoint_type: int8 = field("1+", default=1)
    include_fenced_brokers: bool = field("2+")


class DescribeClusterBroker(Struct):
    """A broker and its address."""

    broker_id: int32 = field()
    host: str = field()
    port: int32 = field()
    rack: str | None = field(default=None)
    is_fenced: bool = field("2+")


class DescribeClusterResponse(
    ApiMessage, api_key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+"
):
    """The cluster; authorized operations are a bit field of KIP-430's codes."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    endpoint_type: int8 = field("1+", default=1)
    cluster_id: str = field()
    controller_id: int32 = field(default=-1)
    brokers: list[DescribeClusterBroker] = field()
    cluster_authorized_operations: int32 = field(default=NO_OPERATIONS)
