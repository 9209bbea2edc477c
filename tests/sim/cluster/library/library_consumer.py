"""An application that reads records with the library's consumer, usually as a member of a group.

It polls, commits, seeks, pauses for too long, closes its consumer, or is killed. Its history is
that of the records that polls have returned: each position begins at the committed offset or where
a seek has put it, and no record is skipped, repeated or out of order after that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from plog.client.consumer.rebalance_listener import RebalanceListener
from plog.client.errors import CommitFailed, MaxPollIntervalExceeded
from plog.client.faces.polling_consumer import PollingConsumer
from plog.client.network.cluster import Cluster
from plog.client.settings import ConsumerSettings
from plog.client.values import ConsumerRecord
from plog.errors import KafkaError, OffsetOutOfRange
from plog.records.codec import Record
from plog.types import TopicPartition
from plog.wire.schema import ApiMessage
from tests.sim.checker import Anomaly, Poll
from tests.sim.cluster.library.group_watcher import GroupWatcher
from tests.sim.cluster.library.library_client import LIBRARY_TOPICS, LibraryClient
from tests.sim.cluster.library.library_network import LibraryNetwork, OnResponse
from tests.sim.network import Connection

if TYPE_CHECKING:
    from tests.sim.cluster.cluster_world import ClusterWorld
    from tests.sim.group_plan import GroupPlan

_CLOSE_S = 5.0
_COMMIT_S = 5.0


class LibraryConsumer(LibraryClient):
    """Reads topics that keep all records: as a member of a group or, without `plan`, alone."""

    def __init__(self, cluster: ClusterWorld, name: str, plan: GroupPlan | None) -> None:
        super().__init__(cluster, name)
        self._plan = plan
        self._positions: dict[TopicPartition, int] = {}
        """The offset after the last record that a poll has returned."""
        self._watcher = None if plan is None else GroupWatcher(cluster, plan, self._positions.get)
        self._ended: list[Any] = []
        """The consumers of killed processes, which must not be collected during the run."""

    def sending(
        self, request: ApiMessage, version: int, connection: Connection
    ) -> OnResponse | None:
        if self._watcher is None:
            return None
        return self._watcher.sending(request, version, connection)

    async def work(self) -> None:
        if not await self.until_topics_are_known():
            return
        while self.cluster.working:
            if self._plan is None or self._plan.is_founded():
                await self._live()
            await self.network.sleep(self.chance.uniform(0, 0.5))

    # -- the life of a consumer ---------------------------------------------------------------

    async def _live(self) -> None:
        chance = self.chance
        options = self.options(
            auto_offset_reset="earliest",
            fetch_min_bytes=chance.choice((1, 1, 300)),
            fetch_max_wait_ms=chance.choice((20, 200)),
            max_partition_fetch_bytes=chance.choice((1, 500, 1 << 20)),
            max_poll_records=chance.choice((1, 10, 500)),
        )
        if self._plan is not None:
            options |= self._group_options(self._plan)
        settings = ConsumerSettings.from_options(None, **options)
        cluster = self.cluster_client(settings)
        core = PollingConsumer(cluster, self.network, settings)
        self._positions.clear()
        if self._plan is None:
            partitions = [
                TopicPartition(plan.name, number)
                for plan in self.cluster.plans
                if plan.name in LIBRARY_TOPICS
                for number in range(plan.partitions)
            ]
            core.assign(partitions)
            self._positions.update(dict.fromkeys(partitions, 0))
        else:
            topics = sorted({one.topic for one in self._plan.partitions})
            core.subscribe(topics, listener=_Listener(self._positions))
        is_alive = True
        for _ in range(chance.choice((10, 100, 1_000))):
            if not self.cluster.working or not is_alive:
                break
            is_alive = await self._step(core)
        if is_alive:
            await core.close(_CLOSE_S)
            await cluster.close()
        else:
            self._kill(core, cluster)

    def _group_options(self, plan: GroupPlan) -> dict[str, Any]:
        strategy = "cooperative-sticky" if plan.is_cooperative else "range"
        return {
            "group_id": plan.name,
            "session_timeout_ms": plan.session_timeout_ms,
            "heartbeat_interval_ms": plan.session_timeout_ms // 4,
            "max_poll_interval_ms": plan.rebalance_timeout_ms,
            "partition_assignment_strategy": strategy,
            "enable_auto_commit": self.chance.random() < 0.5,
            "auto_commit_interval_ms": self.chance.choice((100, 1_000)),
        }

    def _kill(self, core: PollingConsumer, cluster: Cluster) -> None:
        """End the process without a word to the group; another one begins."""
        self.network.end()
        self._ended.append((core, cluster, self.network))
        self.network = LibraryNetwork(self.cluster, self.chance, self)
        self.cluster.count("library consumers killed")

    async def _step(self, core: PollingConsumer) -> bool:
        """Poll, then perform one random action; return False to be killed."""
        chance = self.chance
        await self._poll(core)
        how = chance.random()
        if how < 0.1 and self._plan is not None:
            await self._commit(core)
        elif how < 0.2 and self._plan is not None:
            core.commit_async()
        elif how < 0.23:
            self._seek(core)
        elif how < 0.24 and self._plan is not None:
            await self.network.sleep(self._plan.rebalance_timeout_ms * chance.uniform(0, 2) / 1000)
        elif how < 0.26:
            self.network.drop_one()
        elif how < 0.27:
            return False
        await self.pause()
        return True

    async def _poll(self, core: PollingConsumer) -> None:
        try:
            records = await core.consume(timeout_s=self.chance.choice((0.0, 0.1, 1.0)))
        except OffsetOutOfRange as error:
            raise Anomaly("false-out-of-range", f"{self.name}: {error}") from error
        except MaxPollIntervalExceeded:
            self.cluster.count("library polls that were late")
            return
        by_partition = groupby(records, lambda record: record.topic_partition)
        for partition, some in by_partition:
            self._received(partition, list(some))

    def _received(self, partition: TopicPartition, records: Sequence[ConsumerRecord]) -> None:
        position = self._positions.get(partition)
        if position is None:
            assert self._watcher is not None, "a consumer without a group knows its positions"
            # Without a committed offset, it begins at the start, since nothing is ever deleted.
            position = max(0, self._watcher.committed[partition])
        poll = Poll(
            position=position,
            known_end=0,
            records=[
                Record(one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
                for one in records
            ],
            high_watermark=records[-1].offset + 1,
            log_start_offset=-1,
        )
        self.cluster.count("library records polled", len(records))
        history = self.cluster.history
        self._positions[partition] = history.polled(self.key_of(partition), poll)

    async def _commit(self, core: PollingConsumer) -> None:
        try:
            await core.commit(timeout_s=_COMMIT_S)
        except (CommitFailed, KafkaError) as error:
            self.cluster.count(f"library commits failed: {type(error).__name__}")

    def _seek(self, core: PollingConsumer) -> None:
        known = sorted(partition for partition in self._positions if partition in core.assignment)
        if not known:
            return
        partition = self.chance.choice(known)
        offset = self.chance.randint(0, self._positions[partition])
        core.seek(partition, offset)
        self._positions[partition] = offset


class _Listener(RebalanceListener):
    """Forgets the positions of assigned partitions, which begin at the committed offset."""

    def __init__(self, positions: dict[TopicPartition, int]) -> None:
        self._positions = positions

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)
