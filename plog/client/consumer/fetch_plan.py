"""Which partitions the next fetch from a node names, and how much it may bring.

Memory is bounded: a partition is fetched ahead while no more than max.partition.fetch.bytes of it
are buffered (one fetch to take from while the next is under way), and a node gives at most
fetch.max.bytes, what is buffered from it included. Where one partition of a node has enough
buffered, nothing is fetched from that node until some is taken: a fetch without that partition
could wait for others' data, and hold up the next one meanwhile.
What is buffered of paused partitions is not counted; it waits for its own time.

Pure. The batch at the fetch offset always comes whole, however large (KIP-74).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from plog.client.consumer.partition_state import PartitionState, Phase
from plog.client.consumer.subscription_state import SubscriptionState
from plog.types import TopicPartition


class WantedPartition(NamedTuple):
    """A partition as a fetch asks for it, and what tells later whether it is still wanted so."""

    state: PartitionState
    generation: int
    offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """What to fetch now, if anything."""

    partitions: dict[TopicPartition, WantedPartition]
    max_bytes: int = 0
    is_full: bool = False
    """Whether something waits for room in the buffer."""
    retry_at_s: float | None = None
    """When the first partition may be fetched here that had an error, or is read elsewhere."""


def plan_fetch(
    positions: SubscriptionState,
    node_id: int,
    now_s: float,
    *,
    fetch_max_bytes: int,
    partition_max_bytes: int,
) -> FetchPlan:
    """The next fetch from a node. The lock of `positions` must be held."""
    wanted: dict[TopicPartition, WantedPartition] = {}
    buffered_bytes = 0
    is_full = False
    retry_at_s: float | None = None
    for partition, state in positions.states.items():
        if not state.is_open or state.phase is not Phase.FETCHING:
            continue
        if state.node_at(now_s) != node_id:
            if state.leader == node_id:  # A follower has it until then, and nobody tells after.
                retry_at_s = min(state.replica_until_s, retry_at_s or state.replica_until_s)
            continue
        if state.retry_at_s > now_s:
            if state.retry_at_s < math.inf:
                retry_at_s = min(state.retry_at_s, retry_at_s or state.retry_at_s)
            continue
        buffered_bytes += state.buffered_bytes
        if state.buffered_bytes > partition_max_bytes:
            is_full = True
        wanted[partition] = WantedPartition(
            state, state.generation, state.fetch_offset, state.leader_epoch, partition_max_bytes
        )
    if is_full or buffered_bytes > fetch_max_bytes // 2:
        return FetchPlan(partitions={}, is_full=True, retry_at_s=retry_at_s)
    return FetchPlan(
        partitions=wanted,
        max_bytes=max(1, fetch_max_bytes - buffered_bytes),
        retry_at_s=retry_at_s,
    )
