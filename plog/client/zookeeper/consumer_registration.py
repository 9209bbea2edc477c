"""The registration of one consumer in its group, an ephemeral znode with the consumer's topics.

The registration also protects the other znodes. All of them end with the session, so a transaction
that checks the registration (`check`) is applied only while the consumer still owns its
partitions. A write that is delayed until the session has ended thus changes nothing.

Source: Kafka 0.8.2 ZookeeperConsumerConnector.registerConsumerInZK,
ZkUtils.createEphemeralPathExpectConflictHandleZKBug.
"""

from __future__ import annotations

import platform

from plog.client.network.ports import Network
from plog.client.zookeeper.group_znodes import GroupZnodes, Registration
from plog.client.zookeeper.zookeeper_session import ZooKeeperSession
from plog.error_base import PlogError
from plog.zookeeper.operations import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    parent_of,
)


class RegistrationLost(PlogError):
    """The registration does not exist any more, because an operator has deleted it."""


class ConsumerRegistration:
    """The registration of a consumer, which keeps its id in all sessions."""

    def __init__(
        self, session: ZooKeeperSession, network: Network, znodes: GroupZnodes, group_id: str
    ) -> None:
        host = platform.node() or "unknown"
        # As in Kafka 0.8: the group, the host, the time and a random part.
        random_part = int(network.random() * (1 << 32))
        self.consumer_id = f"{group_id}_{host}-{network.wall_ms()}-{random_part:08x}"
        self.may_exist = False
        """Whether the znode may exist."""
        self._session = session
        self._network = network
        self._path = znodes.registration(self.consumer_id)
        self._registered: Registration | None = None
        self._exists = False

    @property
    def check(self) -> Check:
        """The operation that fails with NoNode unless the registration exists."""
        return Check(path=self._path, version=ANY_VERSION)

    def forget(self) -> None:
        """Note that the znode has ended with the session, or was deleted."""
        self.may_exist = self._exists = False
        self._registered = None

    async def ensure(self, registration: Registration) -> bool:
        """Register, or change the registration; return False if an older session must end first.

        Raises a ZooKeeperError.
        """
        if self._registered == registration:
            return True
        data = registration.encode(self._network.wall_ms())
        self.may_exist = True
        while True:
            write: Operation = SetData(path=self._path, data=data)
            if not self._exists:
                write = Create(path=self._path, data=data, ephemeral=True)
            try:
                await self._session.multi([write])
            except MultiFailed as failed:
                if isinstance(failed.error, NoNode):
                    self._exists = False
                    await self._session.ensure(parent_of(self._path))
                    continue
                if not isinstance(failed.error, NodeExists):
                    raise
                # The response to an earlier attempt may have been lost.
                stat = await self._session.connection.exists(self._path)
                if stat is not None and stat.ephemeral_owner != self._session.connection.session_id:
                    return False
                self._exists = stat is not None
                continue
            self._exists = True
            self._registered = registration
            return True

    async def remove(self) -> None:
        """Delete the registration. Raises a ZooKeeperError."""
        try:
            await self._session.multi([Delete(path=self._path)])
        except MultiFailed as failed:
            if not isinstance(failed.error, NoNode):
                raise
        self.forget()
