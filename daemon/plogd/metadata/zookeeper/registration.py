"""The registration of a broker: the ephemeral znode /brokers/ids/N.

Its czxid is the broker epoch. Source: Kafka 3.9 KafkaZkClient.CheckedEphemeral, KAFKA-7165.
"""

from __future__ import annotations

from plog.zookeeper.operations import (
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    SetData,
    ZnodeStat,
    ZooKeeperError,
)
from plogd.metadata.store import BrokerRegistration, DuplicateBrokerId
from plogd.metadata.zookeeper.broker_znodes import decode_broker, encode_broker
from plogd.metadata.zookeeper.paths import broker_path
from plogd.metadata.zookeeper.session import LOST, Session
from plogd.ports import Clock, Later, Timers


class Registration:
    """Registers this broker; `session_id` is the session of the present registration, or 0."""

    def __init__(self, session: Session, *, clock: Clock, timers: Timers) -> None:
        self._session = session
        self._clock = clock
        self._timers = timers
        self._former_sessions: set[int] = set()
        self.session_id = 0

    async def register(self, registration: BrokerRegistration) -> int:
        """Create the znode and return its czxid.

        If the znode exists, waits up to two session timeouts: a broker that was killed keeps its
        znode until its session expires. Fails with DuplicateBrokerId after that.
        """
        path = broker_path(registration.broker_id)
        data = encode_broker(registration, self._clock.now_ms())
        deadline_ms: float | None = None
        while True:
            await self._session.connected()
            self._former_sessions.add(self._session.session_id)
            try:
                found = await self._create(path, data)
                if found is not None:
                    return found
                now_ms = self._clock.monotonic_ms()
                if deadline_ms is None:
                    deadline_ms = now_ms + 2 * self._session.session_timeout_ms
                if now_ms >= deadline_ms:
                    raise DuplicateBrokerId(await self._taken_text(registration.broker_id))
                await self._wait_for_change(path, deadline_ms - now_ms)
            except LOST:
                continue

    async def _create(self, path: str, data: bytes) -> int | None:
        """Create the znode and return its czxid; None if it belongs to another session."""
        try:
            # Two operations, because only the second returns statistics.
            results = await self._session.multi(
                [Create(path=path, ephemeral=True), SetData(path=path, data=data, version=0)]
            )
        except MultiFailed as failure:
            if not isinstance(failure.error, NodeExists):
                raise failure.error from None
            return await self._existing(path, data)
        [_, stat] = results
        assert isinstance(stat, ZnodeStat)
        self.session_id = self._session.session_id
        return stat.czxid

    async def _existing(self, path: str, data: bytes) -> int | None:
        stat = await self._session.exists(path)
        if stat is None:
            return None
        if stat.ephemeral_owner == self._session.session_id:
            # The response to the transaction was lost, or this is a new registration.
            result = await self._session.multi([SetData(path=path, data=data)])
            assert isinstance(result[0], ZnodeStat)
            self.session_id = self._session.session_id
            return stat.czxid
        if stat.ephemeral_owner in self._former_sessions:
            # A server may fail to delete the znodes of an expired session (ZOOKEEPER-2985).
            try:
                await self._session.multi([Delete(path=path, version=stat.version)])
            except MultiFailed:
                pass  # The server has deleted it, after all.
        return None

    async def _wait_for_change(self, path: str, timeout_ms: float) -> None:
        """Wait until the znode changes, the connection is lost, or the time is over."""
        changed: Later[None] = Later()
        connection = self._session.connections

        def once() -> None:
            if not changed.done:
                changed.succeed(None)

        timer = self._timers.call_later(timeout_ms, once)
        try:
            if await self._session.exists(path, once) is not None:
                await self._session.until_disconnected(changed, connection)
        finally:
            timer.cancel()

    async def _taken_text(self, broker_id: int) -> str:
        """Return the message that names the owner of the id."""
        owner = "another broker"
        try:
            data, stat = await self._session.get(broker_path(broker_id))
            endpoints = decode_broker(broker_id, data, stat).endpoints
            if endpoints:
                owner = "the broker at " + ", ".join(f"{x.host}:{x.port}" for x in endpoints)
        except (NoNode, ValueError):
            pass  # The message is the same without the address.
        except ZooKeeperError:
            raise
        return (
            f"cannot register broker {broker_id}: {owner} is registered with this id; give each"
            " broker its own node.id, or stop the other broker"
        )
