"""The state of one assigned partition: its phase, positions and leader.

The classes are plain data; `SubscriptionState` (subscription_state.py) contains the rules.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from plog.client.consumer.reset_target import ResetTo
from plog.client.network.metadata import NO_NODE
from plog.types import ZERO_UUID, TopicPartition, Uuid

NO_EPOCH = -1


class Phase(Enum):
    """The next step for a partition: find a position, validate it, or fetch records."""

    NO_OFFSET = "no offset"
    RESETTING = "resetting"
    VALIDATING = "validating"
    FETCHING = "fetching"


class PartitionState:
    """The mutable state of one assigned partition, guarded by the lock of `SubscriptionState`."""

    __slots__ = (
        "buffered_bytes",
        "failures",
        "fetch_offset",
        "generation",
        "high_watermark",
        "is_paused",
        "is_withheld",
        "last_stable_offset",
        "leader",
        "leader_epoch",
        "log_start_offset",
        "partition",
        "phase",
        "position",
        "position_epoch",
        "replica",
        "replica_until_s",
        "reset",
        "retry_at_s",
        "topic_id",
        "unknown_since_s",
    )

    def __init__(self, partition: TopicPartition, generation: int) -> None:
        self.partition = partition
        self.generation = generation
        self.phase = Phase.NO_OFFSET
        self.is_paused = False
        # Only the application changes `is_paused`, so a revocation needs a flag of its own.
        self.is_withheld = False
        """Whether the partition is being revoked; its records are then no longer handed out."""
        self.reset: ResetTo | None = None
        """The target of a reset in progress."""
        self.position: int | None = None
        """The offset that `take` returns next; None only in NO_OFFSET and RESETTING."""
        self.position_epoch = NO_EPOCH
        """The leader epoch of the record before the position."""
        # The records from `position` to `fetch_offset` are in the buffer.
        self.fetch_offset = 0
        self.buffered_bytes = 0
        self.leader = NO_NODE
        self.leader_epoch = NO_EPOCH
        self.topic_id: Uuid = ZERO_UUID
        self.replica = NO_NODE
        """The follower to fetch from, if the leader has chosen one (KIP-392)."""
        self.replica_until_s = 0.0
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.failures = 0
        """The number of failures since the last success, which determines `retry_at_s`."""
        self.retry_at_s = 0.0
        self.unknown_since_s: float | None = None
        """When the partition was first missing from the metadata; None if it is known."""

    @property
    def is_open(self) -> bool:
        """Whether the partition may be fetched and its records returned."""
        return not (self.is_paused or self.is_withheld)

    def node_at(self, now_s: float) -> int:
        """Return the broker to fetch from, or `NO_NODE`."""
        # KIP-392: return to the leader from time to time, because only the leader can select a
        # better follower.
        if self.replica != NO_NODE and now_s < self.replica_until_s:
            return self.replica
        return self.leader


class Inquiry(NamedTuple):
    """A query to a leader: the offset for a reset, or the end offset of an epoch."""

    state: PartitionState
    generation: int
    leader: int
    leader_epoch: int
    reset: ResetTo | None
    position: int | None
    position_epoch: int
