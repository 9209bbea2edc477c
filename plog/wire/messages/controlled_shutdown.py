"""ControlledShutdown (key 7): a broker asks the controller to move its leaderships before it stops.

Used in clusters with ZooKeeper; Kafka 4.0 removed it. Version 0 is missing because its header
lacks the client id, unlike the header of every other request. Changes by version:

  2  broker epoch (KIP-380)
  3  flexible
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64


class ControlledShutdownRequest(
    ApiMessage, api_key=ApiKey.CONTROLLED_SHUTDOWN, versions="1-3", flexible="3+"
):
    """The broker that is about to stop."""

    broker_id: int32 = field()
    broker_epoch: int64 = field("2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    """A partition that the broker still leads."""

    topic_name: str = field()
    partition_index: int32 = field()


class ControlledShutdownResponse(
    ApiMessage, api_key=ApiKey.CONTROLLED_SHUTDOWN, versions="1-3", flexible="3+"
):
    """The partitions that could not be moved to another broker."""

    error_code: int16 = field()
    remaining_partitions: list[RemainingPartition] = field()
