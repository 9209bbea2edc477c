"""A group's committed offsets in ZooKeeper: an `OffsetStore` for `Commits`.

A znode contains only the offset, as text, so there is neither metadata nor a leader epoch. Commits
of a member check its registration in the same transaction: a consumer whose session has ended
cannot overwrite the offsets of the next owner. Offsets that have not changed are not written,
because each write of ZooKeeper is synced to the disks of a majority.

Source: Kafka 0.8.2 ZookeeperConsumerConnector.commitOffsetToZooKeeper.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Coroutine
from typing import Any, Final

from plog.client.group.member_state import Generation
from plog.client.group.offset_store import NO_MEMBER, Offsets, commit_failed
from plog.client.network.cluster import Cluster
from plog.client.network.deadline import Deadline
from plog.client.network.ports import Network, Signal
from plog.client.settings import ConsumerSettings
from plog.client.values import OffsetAndMetadata
from plog.client.zookeeper.consumer_registration import ConsumerRegistration
from plog.client.zookeeper.group_znodes import GroupZnodes, decode_offset
from plog.client.zookeeper.zookeeper_session import ZooKeeperSession, kafka_error
from plog.error_base import PlogError
from plog.errors import KafkaError
from plog.types import TopicPartition
from plog.zookeeper.operations import (
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SessionExpired,
    SetData,
    ZooKeeperError,
    parent_of,
)

_CHANGES_MAX: Final = 64
"""Largest number of offsets in a transaction."""
_READS_MAX: Final = 256
"""Largest number of offsets that are read concurrently."""


class ZooKeeperOffsets:
    """The offsets of one group, as one consumer reads and writes them."""

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        settings: ConsumerSettings,
        session: ZooKeeperSession,
        znodes: GroupZnodes,
        registration: ConsumerRegistration,
    ) -> None:
        assert settings.group_id is not None, "offsets belong to a group"
        self.group_id = settings.group_id
        self._cluster = cluster
        self._network = network
        self._settings = settings
        self._session = session
        self._znodes = znodes
        self._registration = registration
        self._stored: dict[TopicPartition, bytes | None] = {}
        """The data of znodes as far as it is known; None if the znode does not exist."""
        self._last: Signal | None = None
        """Set when the last commit has ended."""

    def forget(self) -> None:
        """Discard the known offsets, because other consumers may write them."""
        self._stored.clear()

    # -- commits ------------------------------------------------------------------------------

    async def connected(self, deadline: Deadline | None = None) -> None:
        """Wait for the connection to ZooKeeper. Raises ConnectionFailed."""
        await self._session.connected(deadline)

    def send(
        self, offsets: Offsets, generation: Generation, deadline: Deadline | None = None
    ) -> Awaitable[None]:
        """Write offsets after all earlier commits have ended.

        Raises ValueError for an offset with metadata.
        """
        for partition, offset in offsets.items():
            if offset.metadata:
                raise ValueError(
                    f"cannot commit metadata for {partition}: with coordination=zookeeper, only"
                    " offsets are stored; commit an offset without metadata"
                )
        before, self._last = self._last, self._network.signal()
        texts = {one: str(offset.offset).encode() for one, offset in offsets.items()}
        writing = self._in_order(before, self._last, texts, generation)
        if deadline is None:
            return writing
        return self._session.within(deadline, writing, self._failed_commit)

    @property
    def _failed_commit(self) -> str:
        return f"cannot commit offsets for group {self.group_id}"

    async def _in_order(
        self,
        before: Signal | None,
        done: Signal,
        offsets: dict[TopicPartition, bytes],
        generation: Generation,
    ) -> None:
        try:
            if before is not None:
                await before.wait()
            await self._write(offsets, generation)
        except ZooKeeperError as error:
            raise self._error(error, generation) from error
        finally:
            done.set()

    def _error(self, error: ZooKeeperError, generation: Generation) -> PlogError:
        if isinstance(error, SessionExpired) and generation != NO_MEMBER:
            return commit_failed(self._settings, "the session with ZooKeeper has expired")
        return kafka_error(error, self._failed_commit)

    async def _write(self, offsets: dict[TopicPartition, bytes], generation: Generation) -> None:
        changed = [one for one in sorted(offsets) if self._stored.get(one) != offsets[one]]
        # Whether a znode exists decides how it is written.
        await self._read([one for one in changed if one not in self._stored])
        for start in range(0, len(changed), _CHANGES_MAX):
            chunk = {one: offsets[one] for one in changed[start : start + _CHANGES_MAX]}
            while not await self._try(chunk, generation):
                pass

    async def _try(self, chunk: dict[TopicPartition, bytes], generation: Generation) -> bool:
        """Write the offsets; return False if another attempt can succeed."""
        checks: list[Operation] = [] if generation == NO_MEMBER else [self._registration.check]
        known = {one: self._stored.pop(one, None) for one in chunk}
        writes: list[Operation] = []
        for one, data in chunk.items():
            path, exists = self._znodes.offset(one), known[one] is not None
            writes.append(SetData(path=path, data=data) if exists else Create(path=path, data=data))
        try:
            await self._session.multi([*checks, *writes])
        except MultiFailed as failed:
            if failed.index < len(checks):
                if isinstance(failed.error, NoNode):
                    why = "the registration of this consumer was removed from ZooKeeper"
                    raise commit_failed(self._settings, why) from failed
                raise
            one = list(chunk)[failed.index - len(checks)]
            # Nothing was written, so only this offset has to be looked at again.
            self._stored.update(known)
            await self._resolve(one, failed)
            return False
        self._stored.update(chunk)
        return True

    async def _resolve(self, partition: TopicPartition, failed: MultiFailed) -> None:
        """Find out why the offset of `partition` could not be written, and correct it."""
        path = self._znodes.offset(partition)
        if isinstance(failed.error, NoNode):
            self._stored[partition] = None
            await self._session.ensure(parent_of(path))
        elif isinstance(failed.error, NodeExists):
            await self._read([partition])
        else:
            raise failed

    # -- committed offsets --------------------------------------------------------------------

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each partition, or None.

        Raises RequestTimedOut and ConnectionFailed after `timeout_s` (default
        ``default.api.timeout.ms``).
        """
        if not partitions:
            return {}
        limit_s = self._settings.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s
        backoff = self._cluster.backoff(self._cluster.deadline(limit_s))
        what = f"cannot fetch the committed offsets of group {self.group_id}"
        while True:
            try:
                await self._session.connected(backoff.deadline)
                reading = self._read_all(list(partitions), what)
                found = await self._session.within(backoff.deadline, reading, what)
            except KafkaError as error:
                if not error.retriable:
                    raise
                await backoff.wait_or_raise(error)
            else:
                return {one: self._decode(one, data) for one, data in found.items()}

    def _decode(self, partition: TopicPartition, data: bytes | None) -> OffsetAndMetadata | None:
        if data is None:
            return None
        return OffsetAndMetadata(decode_offset(self._znodes.offset(partition), data))

    async def _read_all(
        self, partitions: list[TopicPartition], what: str
    ) -> dict[TopicPartition, bytes | None]:
        try:
            await self._read(partitions)
        except ZooKeeperError as error:
            raise kafka_error(error, what) from error
        return {one: self._stored[one] for one in partitions}

    async def _read(self, partitions: list[TopicPartition]) -> None:
        """Read offsets from ZooKeeper into `_stored`."""
        for start in range(0, len(partitions), _READS_MAX):
            some = partitions[start : start + _READS_MAX]
            reads: list[Coroutine[Any, Any, bytes | None]] = [self._read_one(one) for one in some]
            self._stored.update(zip(some, await self._network.gather(reads), strict=True))

    async def _read_one(self, partition: TopicPartition) -> bytes | None:
        try:
            data, _ = await self._session.connection.get(self._znodes.offset(partition))
        except NoNode:
            return None
        return data
