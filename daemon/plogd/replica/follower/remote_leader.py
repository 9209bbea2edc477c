"""A follower's requests to the leader of its partitions, through the port `Peers`.

Fetch identifies topics by id, so it requires version 13. The broker epoch of a follower, which
protects against a follower that has lost its disk (KIP-903), requires version 15.

Source: Kafka 3.9 RemoteLeaderEndPoint.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Final

from plog.errors import UnsupportedVersion, error_from_code
from plog.wire.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from plog.wire.schema import ApiMessage
from plogd.peers import Peers, VersionedRequest
from plogd.ports import Later, spawn
from plogd.replica.offset_lookup import EARLIEST, LATEST
from plogd.replica.partition import Partition

_FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13


class RemoteLeader:
    """The requests of one fetcher to the broker that leads its partitions.

    Args:
        own_id: the id of this broker.
        lane: the name of the fetcher's connection; see peers.py.
        timeout_ms: returns ``replica.socket.timeout.ms``.
    """

    def __init__(
        self,
        peers: Peers,
        broker_id: int,
        *,
        own_id: int,
        lane: str,
        timeout_ms: Callable[[], float],
    ) -> None:
        self.broker_id = broker_id
        self._peers = peers
        self._own_id = own_id
        self._lane = lane
        self._timeout_ms = timeout_ms

    def fetch(self, request: FetchRequest) -> Later[FetchResponse]:
        """Send a Fetch. Fails with the errors of `Peers.ask`."""
        versioned = VersionedRequest(FetchRequest, lambda version: _in_version(request, version))
        return self._ask(versioned)

    def offsets(self, partition: Partition) -> Later[tuple[int, int]]:
        """Return the start and the end of the leader's log, in the partition's leader epoch.

        Fails with the errors of `Peers.ask`, and with the KafkaError of the leader.
        """
        return spawn(self._offsets(partition))

    async def _offsets(self, partition: Partition) -> tuple[int, int]:
        epoch = partition.leader_epoch
        start_offset = await self._offset(partition, EARLIEST, epoch)
        return start_offset, await self._offset(partition, LATEST, epoch)

    async def _offset(self, partition: Partition, timestamp: int, leader_epoch: int) -> int:
        # In two requests: the leader rejects a request that lists a partition twice.
        topic, number = partition.topic_partition
        asked = ListOffsetsPartition(
            partition_index=number, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        response: ListOffsetsResponse = await self._ask(
            ListOffsetsRequest(
                replica_id=self._own_id, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
            )
        )
        found: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
        if found.error_code:
            raise error_from_code(found.error_code, f"cannot look up an offset of {topic}-{number}")
        return found.offset

    def _ask(self, request: ApiMessage | VersionedRequest) -> Later:  # type: ignore[type-arg]
        return self._peers.ask(self.broker_id, request, self._lane, timeout_ms=self._timeout_ms())


def _in_version(request: FetchRequest, version: int) -> FetchRequest:
    """Return the request for a leader with this version. Raises UnsupportedVersion."""
    if version >= _FIRST_VERSION_WITH_REPLICA_STATE:
        return request
    if version < _FIRST_VERSION_WITH_TOPIC_IDS:
        raise UnsupportedVersion(
            f"cannot replicate from a broker that supports Fetch only up to version {version}:"
            f" version {_FIRST_VERSION_WITH_TOPIC_IDS} is required; upgrade that broker"
        )
    older = copy(request)
    older.replica_id, older.replica_state = request.replica_state.replica_id, ReplicaState()
    return older
