"""AlterPartitionReassignments (key 45) and ListPartitionReassignments (key 46) (KIP-455).

Serves versions 0-1 of the former, in which version 1 adds AllowReplicationFactorChange (KIP-860),
and version 0 of the latter.

controller/reassignments.py validates a reassignment. In a cluster,
controller/cluster/partition_reassignments.py carries it out; the response is sent when its first
step has been written. With the embedded store, the only valid reassignment assigns a partition to
the broker that already hosts it, and thus completes immediately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from plog.errors import KafkaError, RequestTimedOut
from plog.types import TopicPartition
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from plog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from plogd.apis.error_responses import refuse_at_top_level
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import ask_in_slices, by_topic
from plogd.broker import Broker
from plogd.concurrency import shielded, within
from plogd.controller.reassignments import plan_reassignment
from plogd.fair_queue import Slices
from plogd.metadata.cache import PartitionState
from plogd.ports import Later, ready, spawn

_Wanted: TypeAlias = Mapping[int, Sequence[int] | None]
"""The target replicas of a topic's partitions; None to cancel."""
_Errors: TypeAlias = Mapping[int, KafkaError]


def handle_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext, broker: Broker
) -> Later[AlterPartitionReassignmentsResponse]:
    """Begin, replace or cancel reassignments; each partition has its own outcome."""
    broker.controller.check_active()
    return spawn(_alter_all(request, broker))


async def _alter_all(
    request: AlterPartitionReassignmentsRequest, broker: Broker
) -> AlterPartitionReassignmentsResponse:
    slices = Slices(broker.fair_queue)
    asked = await by_topic(
        request.topics,
        lambda topic: topic.name,
        lambda topic: topic.partitions,
        lambda partition: partition.partition_index,
        slices,
    )
    may_change_factor = request.allow_replication_factor_change

    def ask(named: tuple[str, Mapping[int, Sequence[ReassignablePartition]]]) -> Later[_Errors]:
        name, partitions = named
        # Of the elements for a repeated partition, the last one counts.
        wanted = {number: some[-1].replicas for number, some in partitions.items()}
        if broker.cluster_replicas is None:
            return spawn(_check(name, wanted, may_change_factor, broker))
        altered = broker.controller.cluster.reassignments.alter(
            name, wanted, may_change_factor=may_change_factor
        )
        # A timeout and a disconnected client end only the wait: the first step of a reassignment
        # may consist of several writes.
        return within(
            shielded(spawn(altered)),
            request.timeout_ms,
            broker.timers,
            lambda: RequestTimedOut("the reassignment is still being written"),
        )

    outcomes = await ask_in_slices(asked.items(), ask, broker)

    def of_topic(
        one: tuple[tuple[str, Mapping[int, object]], _Errors | KafkaError],
    ) -> ReassignableTopicResponse:
        (name, partitions), outcome = one
        responses = lazy_array(list(partitions), lambda number: _altered(number, outcome))
        return ReassignableTopicResponse(name=name, partitions=responses)

    return AlterPartitionReassignmentsResponse(
        # KIP-860: the response repeats the value that the broker has applied.
        allow_replication_factor_change=may_change_factor,
        error_message=None,
        responses=lazy_array(list(zip(asked.items(), outcomes, strict=True)), of_topic),
    )


async def _check(
    name: str, wanted: _Wanted, may_change_factor: bool, broker: Broker
) -> Mapping[int, KafkaError]:
    """Return the errors of reassignments on a single broker, which change nothing."""
    errors: dict[int, KafkaError] = {}
    brokers = broker.cache.live_broker_ids
    async for number, replicas in Slices(broker.fair_queue).over(wanted.items()):
        try:
            plan_reassignment(
                broker.cache.topic(name),
                number,
                replicas,
                brokers=brokers,
                may_change_factor=may_change_factor,
            )
        except KafkaError as error:
            errors[number] = error.bare()
    return errors


def _altered(number: int, outcome: _Errors | KafkaError) -> ReassignablePartitionResponse:
    response = ReassignablePartitionResponse(partition_index=number, error_message=None)
    error = outcome if isinstance(outcome, KafkaError) else outcome.get(number)
    if error is not None:
        response.error_code, response.error_message = error.code, error.message
    return response


def handle_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext, broker: Broker
) -> Later[ListPartitionReassignmentsResponse]:
    """Return the reassignments in progress, of the listed partitions or of all."""
    broker.controller.check_active()
    if broker.cluster_replicas is None:
        # A reassignment completes before its response is sent, so none is ever in progress.
        return ready(ListPartitionReassignmentsResponse(error_message=None))
    return spawn(_list(request, broker))


async def _list(
    request: ListPartitionReassignmentsRequest, broker: Broker
) -> ListPartitionReassignmentsResponse:
    partitions = None if request.topics is None else _listed(request)
    slices = Slices(broker.fair_queue)
    found = await broker.controller.cluster.reassignments.ongoing(partitions, slices)

    def of_topic(named: tuple[str, Sequence[PartitionState]]) -> OngoingTopicReassignment:
        name, states = named
        return OngoingTopicReassignment(name=name, partitions=lazy_array(states, _ongoing))

    return ListPartitionReassignmentsResponse(
        error_message=None, topics=lazy_array(list(found.items()), of_topic)
    )


def _listed(request: ListPartitionReassignmentsRequest) -> Iterator[TopicPartition]:
    for topic in request.topics or ():
        for number in topic.partition_indexes:
            yield TopicPartition(topic.name, number)


def _ongoing(state: PartitionState) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=state.partition,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
    )


refuse_alter_partition_reassignments = refuse_at_top_level(AlterPartitionReassignmentsResponse)


refuse_list_partition_reassignments = refuse_at_top_level(ListPartitionReassignmentsResponse)
