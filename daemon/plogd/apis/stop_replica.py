"""StopReplica (key 5): the controller makes this broker stop replicas, and delete some of them.

Serves versions 0-4.

  1 broker epoch, topics (KIP-380)     3 leader epoch and deletion per partition (KIP-570)

The directories of deleted replicas have been renamed when the response is sent; their files are
unlinked later. replica/role_changes.py contains the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from plog.types import TopicPartition
from plog.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from plogd.apis.cluster_requests import cluster_replicas
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.fair_queue import Slices
from plogd.ports import Later
from plogd.replica.cluster_replicas import ClusterReplicas
from plogd.replica.role_changes import StoppedReplica

_FIRST_VERSION_WITH_TOPICS: Final = 1
_FIRST_VERSION_WITH_EPOCHS: Final = 3
_NO_EPOCH: Final = -1


def handle_stop_replica(
    request: StopReplicaRequest, context: RequestContext, broker: Broker
) -> Later[StopReplicaResponse]:
    """Stop the replicas after all earlier requests of controllers."""
    replicas = cluster_replicas(broker)

    async def stop() -> StopReplicaResponse:
        return await _stop(request, context.version, replicas, Slices(broker.fair_queue))

    return replicas.control.run(
        stop, controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch
    )


async def _stop(
    request: StopReplicaRequest, version: int, replicas: ClusterReplicas, slices: Slices
) -> StopReplicaResponse:
    stopped = [one async for one in slices.over(_stopped(request, version))]
    errors = await replicas.roles.stop(stopped)
    replicas.fetchers.close_idle()
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(
                topic_name=one.topic_partition.topic,
                partition_index=one.topic_partition.partition,
                error_code=0 if error is None else error.code,
            )
            async for one, error in slices.over(zip(stopped, errors, strict=True))
        ]
    )


def _stopped(request: StopReplicaRequest, version: int) -> Iterator[StoppedReplica]:
    if version >= _FIRST_VERSION_WITH_EPOCHS:
        for topic in request.topic_states:
            for state in topic.partition_states:
                yield StoppedReplica(
                    topic_partition=TopicPartition(topic.topic_name, state.partition_index),
                    leader_epoch=state.leader_epoch,
                    deletes=state.delete_partition,
                )
        return
    if version >= _FIRST_VERSION_WITH_TOPICS:
        keys = (
            (topic.name, number) for topic in request.topics for number in topic.partition_indexes
        )
    else:
        keys = ((one.topic_name, one.partition_index) for one in request.ungrouped_partitions)
    for name, number in keys:
        yield StoppedReplica(
            topic_partition=TopicPartition(name, number),
            leader_epoch=_NO_EPOCH,
            deletes=request.delete_partitions,
        )
