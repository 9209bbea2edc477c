"""The plan of the next fetch from a node: its partitions, and how much it may return.

Memory is bounded. A partition is fetched ahead while at most max.partition.fetch.bytes of its data
are buffered, so that one fetch can be consumed while the next is in flight. A node returns at most
fetch.max.bytes, less the data buffered from it.

Pure. A response always contains the complete batch at the fetch offset, whatever its size (KIP-74).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from plog.client.consumer.partition_state import PartitionState, Phase
from plog.client.consumer.subscription_state import SubscriptionState
from plog.types import TopicPartition


class WantedPartition(NamedTuple):
    """A partition in a fetch request, and the state that shows later whether it is still wanted."""

    state: PartitionState
    generation: int
    offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """The next fetch from a node; `partitions` may be empty."""

    partitions: dict[TopicPartition, WantedPartition]
    max_bytes: int = 0
    is_full: bool = False
    """Whether the next fetch must wait for room in the buffer."""
    retry_at_s: float | None = None
    """When to plan again for the first partition that had an error or is read from a follower."""


def plan_fetch(
    positions: SubscriptionState,
    node_id: int,
    now_s: float,
    *,
    fetch_max_bytes: int,
    partition_max_bytes: int,
) -> FetchPlan:
    """Return the next fetch from a node. The caller holds the lock of `positions`."""
    wanted: dict[TopicPartition, WantedPartition] = {}
    buffered_bytes = 0
    is_full = False
    retry_at_s: float | None = None
    for partition, state in positions.states.items():
        # Skipped before its buffered bytes are counted, because data of a paused partition may stay
        # in the buffer for a long time.
        if not state.is_open or state.phase is not Phase.FETCHING:
            continue
        if state.node_at(now_s) != node_id:
            # No event announces the end of the follower's lease, so the leader's loop sets a timer.
            if state.leader == node_id:
                retry_at_s = min(state.replica_until_s, retry_at_s or state.replica_until_s)
            continue
        if state.retry_at_s > now_s:
            # After corrupt data, the retry time is infinite until the application has received the
            # error (`FetchBuffer.add`).
            if state.retry_at_s < math.inf:
                retry_at_s = min(state.retry_at_s, retry_at_s or state.retry_at_s)
            continue
        buffered_bytes += state.buffered_bytes
        # Wait for this partition: a fetch without it could wait for data of the others and thereby
        # delay the next fetch of this one.
        if state.buffered_bytes > partition_max_bytes:
            is_full = True
        wanted[partition] = WantedPartition(
            state, state.generation, state.fetch_offset, state.leader_epoch, partition_max_bytes
        )
    # At least half of the limit remains for the next response.
    if is_full or buffered_bytes > fetch_max_bytes // 2:
        return FetchPlan(partitions={}, is_full=True, retry_at_s=retry_at_s)
    return FetchPlan(
        partitions=wanted,
        # With 0, the broker could return nothing at all.
        max_bytes=max(1, fetch_max_bytes - buffered_bytes),
        retry_at_s=retry_at_s,
    )
