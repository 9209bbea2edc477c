"""The partitions that one consumer owns: claiming and releasing their owner znodes.

The claims of a rebalance are transactions that apply all of their operations or none, so a conflict
with another owner usually leaves nothing to release.

Source: Kafka 0.8.2 ZookeeperConsumerConnector.reflectPartitionOwnershipDecision,
deletePartitionOwnershipFromZK.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from plog.client.network.ports import Network
from plog.client.zookeeper.consumer_registration import ConsumerRegistration, RegistrationLost
from plog.client.zookeeper.group_znodes import GroupZnodes, thread_id
from plog.client.zookeeper.zookeeper_session import ZooKeeperSession
from plog.types import TopicPartition
from plog.zookeeper.operations import (
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    parent_of,
)

CHANGES_MAX: Final = 64
"""Largest number of znodes that a transaction changes."""
_READS_MAX: Final = 256
"""Largest number of znodes that are read concurrently."""


class PartitionOwners:
    """The owner znodes of one consumer."""

    def __init__(
        self,
        session: ZooKeeperSession,
        network: Network,
        znodes: GroupZnodes,
        registration: ConsumerRegistration,
    ) -> None:
        self.claimed: set[TopicPartition] = set()
        """The partitions whose owner znode this consumer may have created."""
        self._session = session
        self._network = network
        self._znodes = znodes
        self._registration = registration
        self._owner = thread_id(registration.consumer_id).encode()
        self._is_uncertain = False
        """Whether the outcome of a transaction is unknown: its response was lost, or the task that
        waited for it was cancelled."""

    def forget(self) -> None:
        """Note that the znodes have ended with the session."""
        self.claimed.clear()
        self._is_uncertain = False

    async def claim(self, partitions: Iterable[TopicPartition]) -> TopicPartition | None:
        """Become the owner of the partitions; return a partition that has another owner, or None.

        In the first case, the caller must call `release`. Raises RegistrationLost and
        ZooKeeperError.
        """
        wanted = sorted(partitions)
        while wanted:
            chunk, wanted = wanted[:CHANGES_MAX], wanted[CHANGES_MAX:]
            conflict = await self._claim(chunk)
            if conflict is not None:
                return conflict
        return None

    async def _claim(self, chunk: list[TopicPartition]) -> TopicPartition | None:
        while chunk:
            # If the response is lost, they may have been created.
            self.claimed.update(chunk)
            failed = await self._try(
                [
                    Create(path=self._znodes.owner(one), data=self._owner, ephemeral=True)
                    for one in chunk
                ]
            )
            if failed is None:
                break
            self.claimed.difference_update(chunk)
            one = chunk[failed.index]
            if isinstance(failed.error, NoNode):
                await self._session.ensure(parent_of(self._znodes.owner(one)))
            elif not isinstance(failed.error, NodeExists):
                raise failed.error
            elif await self._has_other_owner(one):
                return one
            else:
                chunk = [each for each in chunk if each not in self.claimed]
        return None

    async def _has_other_owner(self, partition: TopicPartition) -> bool:
        session_id = await self._owner_session(partition)
        if session_id == self._session.connection.session_id:
            self.claimed.add(partition)
            return False
        return session_id is not None

    async def _owner_session(self, partition: TopicPartition) -> int | None:
        """Return the session that owns a partition, or None."""
        stat = await self._session.connection.exists(self._znodes.owner(partition))
        return None if stat is None else stat.ephemeral_owner

    async def _find_claimed(self) -> None:
        """Find out which of the znodes exist, after a transaction with an unknown outcome."""
        # If a release was applied, the next owner may have claimed the partitions already.
        await self._session.connection.sync()
        for start in range(0, len(known := sorted(self.claimed)), _READS_MAX):
            some = known[start : start + _READS_MAX]
            sessions = await self._network.gather([self._owner_session(one) for one in some])
            own = self._session.connection.session_id
            self.claimed.difference_update(
                one for one, session in zip(some, sessions, strict=True) if session != own
            )
        self._is_uncertain = False

    async def release(self, *, is_registered: bool = True) -> None:
        """Delete the owner znodes of this consumer.

        Raises RegistrationLost, unless the call is for a consumer that is not registered, and
        ZooKeeperError.
        """
        if self._is_uncertain:
            await self._find_claimed()
        while self.claimed:
            chunk = sorted(self.claimed)[:CHANGES_MAX]
            deletes = [Delete(path=self._znodes.owner(one)) for one in chunk]
            failed = await self._try(deletes, is_registered=is_registered)
            if failed is None:
                self.claimed.difference_update(chunk)
            elif isinstance(failed.error, NoNode):
                self.claimed.discard(chunk[failed.index])
            else:
                raise failed.error

    async def _try(
        self, operations: Sequence[Operation], *, is_registered: bool = True
    ) -> MultiFailed | None:
        """Apply the operations while this consumer is registered; return the first failure."""
        # Otherwise, a delayed transaction could change the znodes of the next owner.
        checks: list[Operation] = [self._registration.check] if is_registered else []
        was_uncertain, self._is_uncertain = self._is_uncertain, True
        try:
            await self._session.multi([*checks, *operations])
        except MultiFailed as failed:
            self._is_uncertain = was_uncertain
            if failed.index < len(checks):
                if isinstance(failed.error, NoNode):
                    raise RegistrationLost from failed
                raise failed.error from failed
            return MultiFailed(failed.index - len(checks), failed.error)
        self._is_uncertain = was_uncertain
        return None
