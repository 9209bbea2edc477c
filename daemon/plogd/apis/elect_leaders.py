"""ElectLeaders (key 43): what becomes of elections where one broker leads everything.

Versions served 0-2. In version 0 elections are of preferred leaders.

  1 unclean elections (KIP-460), an error as a whole      2 flexible

Why none is held is controller/elections.py's knowledge. A request for all partitions is answered
with those that could do with an election only, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from plog.enums import ElectionType
from plog.errors import ElectionNotNeeded, KafkaError, UnknownTopicOrPartition
from plog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from plogd.apis.context import RequestContext
from plogd.controller.elections import election_outcome, election_type

if TYPE_CHECKING:
    from plogd.broker import Broker

_FIRST_VERSION_WITH_ERROR = 1


def handle_elect_leaders(
    request: ElectLeadersRequest, context: RequestContext, broker: Broker
) -> ElectLeadersResponse:
    """Tell of each partition why it keeps its leader, or has none."""
    kind = election_type(request.election_type)
    if request.topic_partitions is None:
        return ElectLeadersResponse(replica_election_results=list(_of_all(kind, broker)))
    return ElectLeadersResponse(
        replica_election_results=[
            _result(
                topic.topic,
                [(n, _outcome(kind, topic.topic, n, broker)) for n in topic.partitions],
            )
            for topic in request.topic_partitions
        ]
    )


def _of_all(kind: ElectionType, broker: Broker) -> Iterator[ReplicaElectionResult]:
    for topic in broker.cache.topics():
        numbers = [state.partition for state in topic.partitions]
        outcomes = [(n, _outcome(kind, topic.name, n, broker)) for n in numbers]
        yield _result(topic.name, [x for x in outcomes if not isinstance(x[1], ElectionNotNeeded)])


def _outcome(kind: ElectionType, topic: str, number: int, broker: Broker) -> KafkaError:
    state = broker.cache.topic(topic)
    if state is None or not 0 <= number < len(state.partitions):
        # Not with the topic's name, which may be long: it would be told as often as it has numbers.
        return UnknownTopicOrPartition(f"there is no partition {number} of such a topic")
    is_offline = broker.replica_manager.is_offline(topic, number)
    return election_outcome(kind, state.partitions[number], is_offline=is_offline)


def _result(topic: str, outcomes: Sequence[tuple[int, KafkaError]]) -> ReplicaElectionResult:
    return ReplicaElectionResult(
        topic=topic,
        partition_result=[
            PartitionResult(partition_id=number, error_code=error.code, error_message=error.message)
            for number, error in outcomes
        ],
    )


def refuse_elect_leaders(
    request: ElectLeadersRequest, context: RequestContext, error: KafkaError
) -> ElectLeadersResponse:
    """The answer in which every partition named gets `error`, and the whole where that can be."""
    response = ElectLeadersResponse(
        replica_election_results=[
            _result(topic.topic, [(number, error) for number in topic.partitions])
            for topic in request.topic_partitions or ()
        ]
    )
    if context.version >= _FIRST_VERSION_WITH_ERROR:
        response.error_code = error.code
    return response
