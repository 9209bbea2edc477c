"""FindCoordinator (key 10): the coordinator of a group, a transaction or a share partition.

Changes by version:

  1  key type, error message, throttle time (KIP-98)
  3  flexible
  4  several keys (KIP-699)
  5  TRANSACTION_ABORTABLE may be returned (KIP-890)
  6  share partitions, with the key "group:topic id:partition" (KIP-932)

Version 0 only supports groups.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32


class FindCoordinatorRequest(
    ApiMessage, api_key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"
):
    """Keys to look up. ``key_type``: 0 group, 1 transaction, 2 share."""

    key: str = field("0-3")
    key_type: int8 = field("1+")
    coordinator_keys: list[str] = field("4+")


class Coordinator(Struct):
    """The coordinator of one key."""

    key: str = field()
    node_id: int32 = field()
    host: str = field()
    port: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()


class FindCoordinatorResponse(
    ApiMessage, api_key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"
):
    """Coordinators: one up to version 3, a list in version 4 and later."""

    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field("0-3")
    error_message: str | None = field("1-3", ignorable=True)
    node_id: int32 = field("0-3")
    host: str = field("0-3")
    port: int32 = field("0-3")
    coordinators: list[Coordinator] = field("4+")
