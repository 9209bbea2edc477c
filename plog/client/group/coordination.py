"""The interface between a group member and the service that coordinates its group.

A `GroupMember` determines the order of events in an application's polls. A `Coordination` does what
this requires outside the process: it joins and leaves the group, notices when the group changes,
and stores offsets. Implementations: broker_coordination.py uses the group's coordinator, which is a
broker, and plog/client/zookeeper/zookeeper_coordination.py uses ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from plog.client.assignors import Assignment, RebalanceProtocol
from plog.client.group.group_metadata import GroupMetadata
from plog.client.group.member_state import Generation
from plog.client.group.offset_commits import Commits
from plog.client.network.deadline import Deadline
from plog.client.values import OffsetAndMetadata
from plog.types import TopicPartition


class Coordination(Protocol):
    """One member's part in the coordination of its group.

    It changes the member's `Membership`, and passes errors for the application to the function
    `fail` of its constructor. Use only in the network's thread, except for `polled`.
    """

    @property
    def protocol(self) -> RebalanceProtocol:
        """What the member does with its partitions before it joins."""
        ...

    @property
    def commits(self) -> Commits:
        """The commits of the member."""
        ...

    @property
    def poll_left_s(self) -> float:
        """The seconds until the next poll is due; negative if it is overdue."""
        ...

    def polled(self, *, waits: bool = False) -> None:
        """Record a poll; with `waits`, the poll lasts until the next call. Thread-safe."""
        ...

    def start(self) -> None:
        """Start to maintain the membership; the member calls this before each join."""
        ...

    def stop(self) -> None:
        """Stop maintaining the membership until the next `start`."""
        ...

    def membership_changed(self) -> None:
        """Consider the new state of the membership."""
        ...

    def metadata_changed(self) -> None:
        """Consider the new metadata of the brokers; the member does not call this during a join."""
        ...

    async def join(
        self, topics: Collection[str], owned: Collection[TopicPartition]
    ) -> Assignment | None:
        """Enter a generation, and return this member's partitions in it.

        `owned` are the partitions that a cooperative member keeps. Returns None if the generation
        ended before the assignment was complete; then the membership already has its next state.
        Raises permanent errors.
        """
        ...

    def join_cancelled(self) -> None:
        """Clean up after the task that runs `join` was cancelled."""
        ...

    def on_assignment(self, assignment: Assignment, generation: Generation) -> None:
        """Record that the member applies an assignment. May raise an exception of an assignor."""
        ...

    async def leave(
        self, reason: str, deadline: Deadline | None = None, *, is_last: bool = False
    ) -> None:
        """End the membership, and let the other members have the partitions.

        After a call with `is_last`, the member makes no other calls, except for `close`.
        """
        ...

    def close(self) -> None:
        """Close all connections, even after an error."""
        ...

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each partition, or None.

        Raises RequestTimedOut and other KafkaErrors after `timeout_s` (default
        ``default.api.timeout.ms``).
        """
        ...

    def for_transaction(self, metadata: GroupMetadata) -> GroupMetadata:
        """Return the metadata for a transaction. Raises IllegalState if that is not possible."""
        ...

    def metrics(self) -> Mapping[str, float]:
        """Return metrics, named as in Kafka's consumer-coordinator-metrics."""
        ...
