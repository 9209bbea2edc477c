"""The plan of the next fetch from a node: its partitions and its maximum size.

The plan limits the memory for buffered data. A partition is fetched while at most
max.partition.fetch.bytes of its data are buffered, so that one fetch can be consumed while the next
is in flight. A node returns at most fetch.max.bytes minus the data buffered from it. The limits can
be exceeded by one batch, because a response always contains the complete first batch (KIP-74).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from plog.client.consumer.partition_state import PartitionState, Phase
from plog.client.consumer.subscription_state import SubscriptionState
from plog.types import TopicPartition


class WantedPartition(NamedTuple):
    """A partition in a fetch request; the generation later shows if the response still applies."""

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
    """When to plan again, because a backoff or a follower's lease ends; None if no time is set."""


def plan_fetch(
    positions: SubscriptionState,
    node_id: int,
    now_s: float,
    *,
    fetch_max_bytes: int,
    partition_max_bytes: int,
) -> FetchPlan:
    """Return the next fetch from a node. The caller must hold the lock of `positions`."""
    wanted: dict[TopicPartition, WantedPartition] = {}
    buffered_bytes = 0
    is_full = False
    retry_at_s: float | None = None
    for partition, state in positions.states.items():
        # Do not count the buffered bytes of a paused partition: they may stay in the buffer for a
        # long time and would block the other partitions.
        if not state.is_open or state.phase is not Phase.FETCHING:
            continue
        if state.node_at(now_s) != node_id:
            # The end of a follower's lease is not an event, so the leader's fetch loop needs a
            # timer.
            if state.leader == node_id:
                retry_at_s = min(state.replica_until_s, retry_at_s or state.replica_until_s)
            continue
        if state.retry_at_s > now_s:
            # An infinite time means that the data is corrupt and the application has not received
            # the error yet (`FetchBuffer.add`).
            if state.retry_at_s < math.inf:
                retry_at_s = min(state.retry_at_s, retry_at_s or state.retry_at_s)
            continue
        buffered_bytes += state.buffered_bytes
        # Delay the fetch until this partition has room. A fetch without the partition could wait at
        # the broker for data from other partitions, and delay this partition's next fetch.
        if state.buffered_bytes > partition_max_bytes:
            is_full = True
        wanted[partition] = WantedPartition(
            state, state.generation, state.fetch_offset, state.leader_epoch, partition_max_bytes
        )
    # Wait until at least half of the limit is available for the next response.
    if is_full or buffered_bytes > fetch_max_bytes // 2:
        return FetchPlan(partitions={}, is_full=True, retry_at_s=retry_at_s)
    return FetchPlan(
        partitions=wanted,
        # With a limit of 0, the broker could return an empty response.
        max_bytes=max(1, fetch_max_bytes - buffered_bytes),
        retry_at_s=retry_at_s,
    )
