"""One assigned partition as its consumer knows it: what phase it is in, and how far it has come.

Plain state; the rules of its changes are those of `SubscriptionState` (subscription_state.py).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from plog.client.consumer.offset_reset import ResetTo
from plog.client.network.metadata import NO_NODE
from plog.types import ZERO_UUID, TopicPartition, Uuid

NO_EPOCH = -1


class Phase(Enum):
    """What a partition needs before it can be fetched from."""

    NO_OFFSET = "no offset"
    RESETTING = "resetting"
    VALIDATING = "validating"
    FETCHING = "fetching"


class PartitionState:
    """One assigned partition. Mutable, and guarded by the lock of its `SubscriptionState`."""

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
        self.is_withheld = False
        """Whether it is about to be given up, so that nothing more of it is handed out."""
        self.reset: ResetTo | None = None
        """Where the position is to be, while it is being found."""
        self.position: int | None = None
        """The next offset the application gets; only None without an offset or when resetting."""
        self.position_epoch = NO_EPOCH
        """The leader epoch of the record before it."""
        self.fetch_offset = 0
        self.buffered_bytes = 0
        self.leader = NO_NODE
        self.leader_epoch = NO_EPOCH
        self.topic_id: Uuid = ZERO_UUID
        self.replica = NO_NODE
        """The follower to fetch from, if the leader has named one (KIP-392)."""
        self.replica_until_s = 0.0
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.failures = 0
        """Since the last success, for the backoff; until `retry_at_s` nothing is asked."""
        self.retry_at_s = 0.0
        self.unknown_since_s: float | None = None
        """Since when the cluster has not known it."""

    @property
    def is_open(self) -> bool:
        """Whether it may be fetched, and handed out."""
        return not (self.is_paused or self.is_withheld)

    def node_at(self, now_s: float) -> int:
        """Whom to fetch it from; `NO_NODE` if nobody can be asked."""
        if self.replica != NO_NODE and now_s < self.replica_until_s:
            return self.replica
        return self.leader


class Inquiry(NamedTuple):
    """A question to ask of a partition's leader: where a reset leads to, or where an epoch ends."""

    state: PartitionState
    generation: int
    leader: int
    leader_epoch: int
    reset: ResetTo | None
    position: int | None
    position_epoch: int
