"""The port through which `Commits` stores a group's offsets, and the errors of outdated members.

Implementations: coordinator_offsets.py stores offsets in the group's coordinator, and
plog/client/zookeeper/zookeeper_offsets.py in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final, Protocol

from plog.client.errors import CommitFailed
from plog.client.group.member_state import Generation, Membership
from plog.client.network.deadline import Deadline
from plog.client.settings import ConsumerSettings
from plog.client.values import OffsetAndMetadata
from plog.errors import RebalanceInProgress
from plog.types import TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

NO_MEMBER: Final = Generation()
"""The generation of commits for partitions that the group has not assigned."""


class OffsetStore(Protocol):
    """The place where a group's offsets are stored."""

    @property
    def group_id(self) -> str:
        """The group."""
        ...

    async def connected(self, deadline: Deadline | None = None) -> object:
        """Wait until a commit can be sent. Raises a retriable KafkaError at the deadline."""
        ...

    def send(
        self, offsets: Offsets, generation: Generation, deadline: Deadline | None = None
    ) -> Awaitable[None]:
        """Send a commit, after all commits of earlier calls; return an awaitable for its outcome.

        A commit with `NO_MEMBER` is for partitions that the group has not assigned. The awaitable
        raises CommitFailed if the member has lost `generation`, RebalanceInProgress during a
        rebalance, and other KafkaErrors.
        """
        ...


def generation_error(membership: Membership, settings: ConsumerSettings) -> Exception:
    """Return the error for a commit in a missing or changed generation."""
    if membership.is_rebalancing:
        return rebalance_in_progress(settings)
    return commit_failed(settings, "this consumer is not a member of the group")


def rebalance_in_progress(settings: ConsumerSettings) -> RebalanceInProgress:
    """Return the error for a commit during a rebalance."""
    return RebalanceInProgress(
        f"group {settings.group_id} is rebalancing; poll, then retry the commit for the partitions"
        " that this consumer still owns"
    )


def commit_failed(settings: ConsumerSettings, why: str) -> CommitFailed:
    """Return the error for a commit of a consumer that has lost its partitions."""
    return CommitFailed(
        f"cannot commit offsets for group {settings.group_id}: {why}; its partitions may belong to"
        " another member, which will read the uncommitted records again. Poll more often: process"
        " fewer records per poll (max.poll.records) or raise"
        f" max.poll.interval.ms={settings.max_poll_interval_ms}"
    )
