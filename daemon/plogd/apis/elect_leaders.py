"""ElectLeaders (key 43): preferred and unclean elections, which a single broker never needs.

Serves versions 0-2. Version 0 elects preferred leaders only.

  1 unclean elections (KIP-460), top-level error      2 flexible

controller/elections.py determines why no election is held. An operator's request for an unclean
election does not depend on unclean.leader.election.enable. A partition that is listed more than
once appears in the response once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from plog.enums import ElectionType
from plog.errors import ElectionNotNeeded, KafkaError, UnknownTopicOrPartition
from plog.types import TopicPartition
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import numbers_by_topic
from plogd.broker import Broker
from plogd.controller.elections import election_outcome, election_type
from plogd.fair_queue import Slices
from plogd.metadata.cache import NO_LEADER
from plogd.ports import Later, spawn

_FIRST_VERSION_WITH_ERROR = 1  # KIP-460.


def handle_elect_leaders(
    request: ElectLeadersRequest, context: RequestContext, broker: Broker
) -> Later[ElectLeadersResponse]:
    """Elect leaders in a cluster; return, for each partition that keeps its leader, the reason."""
    broker.controller.check_active()
    # Version 0 has no election type; the field's default, 0, means PREFERRED.
    kind = election_type(request.election_type)
    if request.topic_partitions is None:
        return spawn(_elect_all(kind, broker))
    return spawn(_elect(kind, request.topic_partitions, broker))


async def _elect(
    kind: ElectionType, topics: Sequence[TopicPartitions], broker: Broker
) -> ElectLeadersResponse:
    asked = await numbers_by_topic(
        topics,
        lambda topic: topic.topic,
        lambda topic: topic.partitions,
        Slices(broker.fair_queue),
    )
    keys = [TopicPartition(name, number) for name, some in asked.items() for number in some]
    elected = await _elected(kind, keys, broker)

    def of_topic(named: tuple[str, list[int]]) -> ReplicaElectionResult:
        name, numbers = named

        def of_partition(number: int) -> PartitionResult:
            return _result(number, _outcome(kind, name, number, elected, broker))

        return ReplicaElectionResult(topic=name, partition_result=lazy_array(numbers, of_partition))

    return ElectLeadersResponse(replica_election_results=lazy_array(list(asked.items()), of_topic))


async def _elect_all(kind: ElectionType, broker: Broker) -> ElectLeadersResponse:
    slices = Slices(broker.fair_queue)
    response = ElectLeadersResponse()
    elected = await _elected(kind, None, broker)
    async for topic in slices.over(broker.cache.topics()):
        results = []
        async for state in slices.over(topic.partitions):
            outcome = _outcome(kind, topic.name, state.partition, elected, broker)
            # As in Kafka, a request for all partitions means all that need an election.
            if not isinstance(outcome, ElectionNotNeeded):
                results.append(_result(state.partition, outcome))
        # As in Kafka, the list contains every topic, even if no partition of it needs an election.
        response.replica_election_results.append(
            ReplicaElectionResult(topic=topic.name, partition_result=results)
        )
    return response


async def _elected(
    kind: ElectionType, partitions: Collection[TopicPartition] | None, broker: Broker
) -> Collection[TopicPartition]:
    """Elect leaders, if this broker is the controller of a cluster."""
    if broker.cluster_replicas is None:
        return ()
    cluster = broker.controller.cluster
    if kind == ElectionType.PREFERRED:
        return await cluster.requests.elect_preferred(partitions)
    return await cluster.unclean_elections.elect(partitions)


def _outcome(
    kind: ElectionType,
    topic: str,
    number: int,
    elected: Collection[TopicPartition],
    broker: Broker,
) -> KafkaError | None:
    """Return why the partition has no new leader, or None."""
    if (topic, number) in elected:
        return None
    state = broker.cache.topic(topic)
    if state is None or not 0 <= number < len(state.partitions):
        # Without the topic's name, which can be long and would be repeated for each partition.
        return UnknownTopicOrPartition(
            f"the topic does not exist or does not have partition {number}"
        )
    partition = state.partitions[number]
    is_offline = partition.leader == NO_LEADER or broker.replica_manager.is_offline(topic, number)
    return election_outcome(kind, partition, is_offline=is_offline)


def _result(number: int, error: KafkaError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(partition_id=number)
    return PartitionResult(partition_id=number, error_code=error.code, error_message=error.message)


def refuse_elect_leaders(
    request: ElectLeadersRequest, context: RequestContext, error: KafkaError
) -> ElectLeadersResponse:
    """Reject all listed partitions with `error`; from version 1, also set the top-level error."""

    def of_topic(topic: TopicPartitions) -> ReplicaElectionResult:
        results = lazy_array(topic.partitions, lambda number: _result(number, error))
        return ReplicaElectionResult(topic=topic.topic, partition_result=results)

    response = ElectLeadersResponse(
        # A request for all partitions lists none, so only the top-level error reaches the client.
        replica_election_results=lazy_array(request.topic_partitions or (), of_topic)
    )
    # The field is not ignorable: version 0 cannot encode an error code here.
    if context.version >= _FIRST_VERSION_WITH_ERROR:
        response.error_code = error.code
    return response
