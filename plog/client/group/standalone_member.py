"""The subscription of a consumer without a group: it reads all partitions of its topics.

It replaces a `GroupMember`. Without a coordinator, offsets cannot be committed. New partitions, and
new topics that match a pattern, are added in the next poll.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping

from plog.client.consumer.rebalance_listener import CallUser, ConsumerRebalanceListener
from plog.client.consumer.subscription import ConsumerSubscription
from plog.client.group.group_metadata import GroupMetadata
from plog.client.group.positions_port import PositionsPort
from plog.client.network.cluster import Cluster
from plog.client.network.metadata import ClusterMetadata
from plog.client.settings import ConsumerSettings
from plog.client.values import OffsetAndMetadata
from plog.errors import InvalidGroupId
from plog.types import TopicPartition


class StandaloneMember(ConsumerSubscription):
    """The subscription of a consumer without a group, with the methods of a `GroupMember`."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        positions: PositionsPort,
        *,
        call_user: CallUser,
    ) -> None:
        super().__init__(cluster, settings, call_user)
        self._positions = positions
        self._attending = False
        # If a poll is cancelled, the listener may not have been called for these new partitions.
        self._unannounced: frozenset[TopicPartition] = frozenset()
        cluster.on_update.append(self._metadata_changed)

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        super().subscribe(topics, pattern, listener)
        self.on_attention()

    @property
    def needs_attention(self) -> bool:
        """Whether `attend` has work to do."""
        return self._selection is not None and bool(
            self._unannounced or self._wanted() != self._positions.assigned
        )

    def polled(self, *, waits: bool = False) -> None:
        """Do nothing: without a group, there is no poll interval."""

    def commit_when_due(self) -> None:
        """Do nothing: without a group, there are no commits."""

    async def attend(self) -> None:
        """Assign new partitions and revoke removed partitions. Raises the listener's exceptions."""
        # While the listener runs, another poll may call this method.
        if self._attending:
            return
        self._attending = True
        try:
            wanted, assigned = self._wanted(), self._positions.assigned
            # As in a group, call the listener for revocations first.
            if gone := assigned - wanted:
                await self._listening.revoked(gone)
                if self._selection is None:
                    return  # The listener has ended the subscription.
            self._positions.assign(sorted(wanted))
            # If this poll is cancelled, the next poll must still call the listener for these
            # partitions.
            self._unannounced = (wanted - assigned) | (self._unannounced & wanted)
            if self._unannounced:
                await self._listening.assigned(self._unannounced)
            self._unannounced = frozenset()
        finally:
            self._attending = False
        self._listening.raise_error()

    async def leave(self, reason: str) -> None:
        """Drop the subscription."""
        self._unannounced = frozenset()
        self._unsubscribe()

    async def abandon(self) -> None:
        """Do nothing: there is no group to leave."""

    async def close(self, timeout_s: float) -> None:
        """Remove the subscription and stop receiving metadata."""
        self._unsubscribe()
        if self._metadata_changed in self._cluster.on_update:
            self._cluster.on_update.remove(self._metadata_changed)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None = None
    ) -> None:
        """Raise InvalidGroupId: offsets are committed for a group."""
        raise _no_group()

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        callback: Callable[..., object] | None = None,
    ) -> None:
        """Raise InvalidGroupId."""
        raise _no_group()

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Raise InvalidGroupId."""
        raise _no_group()

    @property
    def metadata(self) -> GroupMetadata:
        """Raise InvalidGroupId."""
        raise _no_group()

    def metrics(self) -> dict[str, float]:
        """Return an empty dict: there are no group metrics."""
        return {}

    def _wanted(self) -> frozenset[TopicPartition]:
        metadata = self._cluster.metadata
        return frozenset(
            TopicPartition(topic, number)
            for topic in self.subscription
            for number in range(metadata.partition_count(topic) or 0)
        )

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        if self.needs_attention:
            self.on_attention()


def _no_group() -> InvalidGroupId:
    return InvalidGroupId("offsets are committed for a group; set group.id")
