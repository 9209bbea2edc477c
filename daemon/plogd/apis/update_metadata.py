"""UpdateMetadata (key 6): the controller sends the live brokers and partition states.

Serves versions 7-8; earlier versions do not contain topic ids (KIP-516).

  8 type, KRaft (KIP-866)

replica/cluster/metadata_updates.py updates the metadata cache, which clients see.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from plog.types import Uuid
from plog.wire.messages.leader_and_isr import FULL
from plog.wire.messages.update_metadata import (
    LEADER_DURING_DELETE,
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from plogd.apis.cluster_requests import cluster_replicas
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.config.listener import SECURITY_PROTOCOLS
from plogd.fair_queue import Slices
from plogd.metadata.cache import LiveBroker, PartitionState
from plogd.metadata.store import Endpoint
from plogd.ports import Later
from plogd.replica.cluster.cluster_replicas import ClusterReplicas
from plogd.replica.cluster.metadata_updates import TopicUpdate

_FIRST_VERSION_WITH_TYPE: Final = 8


def handle_update_metadata(
    request: UpdateMetadataRequest, context: RequestContext, broker: Broker
) -> Later[UpdateMetadataResponse]:
    """Update the metadata cache after all earlier requests of controllers."""
    replicas = cluster_replicas(broker)

    async def update() -> UpdateMetadataResponse:
        return await _update(request, context.version, replicas, Slices(broker.fair_queue))

    return replicas.control.run(
        update, controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch
    )


async def _update(
    request: UpdateMetadataRequest, version: int, replicas: ClusterReplicas, slices: Slices
) -> UpdateMetadataResponse:
    brokers = [_live_broker(one) async for one in slices.over(request.live_brokers)]
    changes: dict[tuple[str, Uuid], dict[int, PartitionState | None]] = {}
    async for name, topic_id, state in slices.over(_partitions(request)):
        # A negative number is not a partition, and a client cannot ask for it.
        if state.partition_index >= 0:
            changes.setdefault((name, topic_id), {})[state.partition_index] = _state(state)
    await replicas.metadata.apply(
        brokers,
        request.controller_id,
        [
            TopicUpdate(name=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in changes.items()
        ],
        is_full=version >= _FIRST_VERSION_WITH_TYPE and request.type == FULL,
    )
    return UpdateMetadataResponse()


def _live_broker(broker: UpdateMetadataBroker) -> LiveBroker:
    endpoints: dict[str, Endpoint] = {}
    for one in broker.endpoints:
        number = one.security_protocol
        known = 0 <= number < len(SECURITY_PROTOCOLS)
        protocol = SECURITY_PROTOCOLS[number] if known else str(number)
        endpoints[one.listener] = Endpoint(
            name=one.listener, host=one.host, port=one.port, security_protocol=protocol
        )
    return LiveBroker(broker_id=broker.id, endpoints=endpoints, rack=broker.rack or None)


def _partitions(
    request: UpdateMetadataRequest,
) -> Iterator[tuple[str, Uuid, UpdateMetadataPartitionState]]:
    """Yield the topic's name, its id, and the state of each partition."""
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, topic.topic_id, state


def _state(state: UpdateMetadataPartitionState) -> PartitionState | None:
    """Return the partition's state, or None if the partition was deleted."""
    if state.leader == LEADER_DURING_DELETE:
        return None
    return PartitionState(
        partition=state.partition_index,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        partition_epoch=state.zk_version,
        offline_replicas=tuple(state.offline_replicas),
    )
