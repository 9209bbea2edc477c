"""LeaderAndIsr (key 4): the controller makes this broker leader or follower of partitions.

Serves versions 5-7; earlier versions do not contain topic ids (KIP-516).

  6 recovery state (KIP-704)      7 KRaft (KIP-866)

A request of the type FULL contains all replicas of this broker; the logs of other partitions get
``-stray`` names. In Kafka, only a KRaft controller sends this type. The response is sent when all
partitions have their new roles. replica/cluster/role_changes.py contains the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plog.errors import InvalidTopicException, KafkaError
from plog.types import TopicPartition, Uuid
from plog.wire.messages.leader_and_isr import (
    FULL,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from plogd.apis.cluster_requests import cluster_replicas
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.controller.topic_creation import validate_name
from plogd.fair_queue import Slices
from plogd.metadata.cache import PartitionState
from plogd.ports import Later
from plogd.replica.cluster.cluster_replicas import ClusterReplicas
from plogd.replica.cluster.role_changes import NewState


def handle_leader_and_isr(
    request: LeaderAndIsrRequest, context: RequestContext, broker: Broker
) -> Later[LeaderAndIsrResponse]:
    """Apply the partition states after all earlier requests of controllers."""
    replicas = cluster_replicas(broker)

    async def apply() -> LeaderAndIsrResponse:
        return await _apply(request, replicas, Slices(broker.fair_queue))

    return replicas.control.run(
        apply, controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch
    )


async def _apply(
    request: LeaderAndIsrRequest, replicas: ClusterReplicas, slices: Slices
) -> LeaderAndIsrResponse:
    states: list[NewState] = []
    invalid: dict[int, KafkaError] = {}
    """The errors of states that cannot be applied, by position in the request."""
    names: dict[str, KafkaError | None] = {}
    keys: list[tuple[TopicPartition, Uuid]] = []
    async for topic, topic_id, partition in slices.over(_partitions(request)):
        key = TopicPartition(topic, partition.partition_index)
        keys.append((key, topic_id))
        if topic not in names:
            names[topic] = _problem_of(topic)
        error = names[topic]
        if key.partition < 0:
            error = InvalidTopicException(f"invalid partition {key}")
        if error is None:
            states.append(_new_state(key, topic_id, partition))
        else:
            invalid[len(keys) - 1] = error
    outcomes = iter(await replicas.roles.apply(states))
    errors = [invalid.get(number) or next(outcomes) for number in range(len(keys))]
    if request.type == FULL:
        await replicas.roles.remove_strays({key for key, _ in keys})
        await replicas.roles.lost.all_received()
    replicas.fetchers.close_idle()
    return await _response(keys, errors, slices)


def _partitions(
    request: LeaderAndIsrRequest,
) -> Iterator[tuple[str, Uuid, LeaderAndIsrPartitionState]]:
    """Yield the topic's name, its id, and the state of each partition."""
    for topic in request.topic_states:
        for partition in topic.partition_states:
            yield topic.topic_name, topic.topic_id, partition


def _problem_of(topic: str) -> KafkaError | None:
    try:
        validate_name(topic)  # It becomes part of the name of a directory.
    except KafkaError as error:
        return error.bare()
    return None


def _new_state(
    key: TopicPartition, topic_id: Uuid, partition: LeaderAndIsrPartitionState
) -> NewState:
    return NewState(
        topic_partition=key,
        topic_id=topic_id,
        state=PartitionState(
            partition=key.partition,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            replicas=tuple(partition.replicas),
            isr=tuple(partition.isr),
            partition_epoch=partition.partition_epoch,
            adding_replicas=tuple(partition.adding_replicas),
            removing_replicas=tuple(partition.removing_replicas),
        ),
        is_new=partition.is_new,
    )


async def _response(
    keys: Sequence[tuple[TopicPartition, Uuid]],
    errors: Sequence[KafkaError | None],
    slices: Slices,
) -> LeaderAndIsrResponse:
    response = LeaderAndIsrResponse()
    topics: dict[Uuid, LeaderAndIsrTopicError] = {}
    async for (key, topic_id), error in slices.over(zip(keys, errors, strict=True)):
        result = LeaderAndIsrPartitionError(
            partition_index=key.partition, error_code=0 if error is None else error.code
        )
        if topic_id not in topics:
            topics[topic_id] = LeaderAndIsrTopicError(topic_id=topic_id)
            response.topics.append(topics[topic_id])
        topics[topic_id].partition_errors.append(result)
    return response
