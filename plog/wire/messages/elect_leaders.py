"""ElectLeaders (key 43): elect partition leaders.

Changes by version:

  1  preferred or unclean elections (KIP-460), an error code for the request
  2  flexible
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32


class TopicPartitions(Struct):
    """Partitions that elect their leaders."""

    topic: str = field()
    partitions: list[int32] = field()


class ElectLeadersRequest(ApiMessage, api_key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+"):
    """Preferred (0) or unclean (1) elections to run; null topics mean all partitions."""

    # Version 0 can only request preferred elections (KIP-183), hence the default of 0.
    election_type: int8 = field("1+")
    topic_partitions: list[TopicPartitions] | None = field()
    timeout_ms: int32 = field(default=60000)


class PartitionResult(Struct):
    """The result of one election."""

    partition_id: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()


class ReplicaElectionResult(Struct):
    """A topic's partitions."""

    topic: str = field()
    partition_result: list[PartitionResult] = field()


class ElectLeadersResponse(ApiMessage, api_key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+"):
    """The result of each election."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field("1+")
    replica_election_results: list[ReplicaElectionResult] = field()
