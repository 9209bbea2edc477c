"""StopReplica (key 5): the controller makes this broker stop replicas, and delete some of them.

Serves versions 3-4; earlier versions do not contain leader epochs (KIP-570).

  4 KRaft (KIP-866)

The directories of deleted replicas have been renamed when the response is sent; their files are
unlinked later. replica/cluster/role_changes.py contains the rules.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from plogd.replica.cluster.cluster_replicas import ClusterReplicas
from plogd.replica.cluster.role_changes import StoppedReplica


def handle_stop_replica(
    request: StopReplicaRequest, context: RequestContext, broker: Broker
) -> Later[StopReplicaResponse]:
    """Stop the replicas after all earlier requests of controllers."""
    replicas = cluster_replicas(broker)

    async def stop() -> StopReplicaResponse:
        return await _stop(request, replicas, Slices(broker.fair_queue))

    return replicas.control.run(
        stop, controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch
    )


async def _stop(
    request: StopReplicaRequest, replicas: ClusterReplicas, slices: Slices
) -> StopReplicaResponse:
    stopped = [one async for one in slices.over(_stopped(request))]
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


def _stopped(request: StopReplicaRequest) -> Iterator[StoppedReplica]:
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield StoppedReplica(
                topic_partition=TopicPartition(topic.topic_name, state.partition_index),
                leader_epoch=state.leader_epoch,
                deletes=state.delete_partition,
            )
