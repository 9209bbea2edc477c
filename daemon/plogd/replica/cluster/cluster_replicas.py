"""The replicas of a broker in a cluster: roles, fetchers, changes of the ISR, control requests.

`ClusterReplicas` builds these parts and owns their timer. A broker with the embedded store does not
have it: its own controller calls hosted_topics.py directly.

Called on the reactor thread. Source: Kafka 3.9 ReplicaManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from plog.types import TopicPartition
from plogd.config import BrokerConfig
from plogd.config.replication_settings import RACK_AWARE_REPLICA_SELECTOR
from plogd.fair_queue import FairQueue, Slices
from plogd.log.log_manager import LogManager
from plogd.metadata.cache import MetadataCache
from plogd.peers import Peers
from plogd.ports import Later, Ports, Timer, spawn
from plogd.replica.cluster.alter_partition_manager import AlterPartitionManager
from plogd.replica.cluster.control_requests import ControlRequests
from plogd.replica.cluster.metadata_updates import MetadataUpdates
from plogd.replica.cluster.out_of_sync import find_out_of_sync
from plogd.replica.cluster.replication_quota import ReplicationQuota
from plogd.replica.cluster.role_changes import RoleChanges
from plogd.replica.fetch.replica_selector import RackAwareReplicaSelector
from plogd.replica.follower.follower_fetcher import FollowerFetcher
from plogd.replica.follower.remote_leader import RemoteLeader
from plogd.replica.follower.replica_fetcher_manager import ReplicaFetcherManager
from plogd.replica.replica_manager import ReplicaManager
from plogd.replica.topic_stats import TopicStats
from plogd.topic_config import TopicConfig


class ClusterReplicas:
    """The parts that take part in replication; created before any partition is hosted.

    Args:
        config: returns the current settings.
        broker_epoch: returns the epoch of this broker's registration.
        is_leased: returns whether no other broker can have taken this one's place (rule C3).
        topic_overrides: returns the own settings of a topic.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        log_manager: LogManager,
        cache: MetadataCache,
        peers: Peers,
        ports: Ports,
        *,
        config: Callable[[], BrokerConfig],
        broker_epoch: Callable[[], int],
        is_leased: Callable[[], bool],
        topic_overrides: Callable[[str], Mapping[str, str]],
        fair_queue: FairQueue,
        stats: TopicStats,
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._manager = manager
        self._cache = cache
        self._peers = peers
        self._ports = ports
        self._config = config
        self._broker_id = config().node_id
        self._broker_epoch = broker_epoch
        self._queue = fair_queue
        self._stats = stats
        self._on_bug = on_bug
        self._timer: Timer | None = None
        self._is_stopped = False
        self.alter_partition = self._make_alter_partition()
        self.leader_quota = self._make_quota(
            lambda topic: topic.leader_replication_throttled_replicas,
            lambda: config().leader_replication_throttled_rate,
        )
        self.follower_quota = self._make_quota(
            lambda topic: topic.follower_replication_throttled_replicas,
            lambda: config().follower_replication_throttled_rate,
        )
        manager.use_cluster(
            # The controller knows the broker epochs of all brokers, and checks those in the request
            # (KIP-903).
            is_eligible=lambda broker_id, broker_epoch: broker_id in cache.live_broker_ids,
            is_leased=is_leased,
            max_lag_ms=lambda: config().replica_lag_time_max_ms,
            isr_changes=self.alter_partition,
            replica_selector=self._make_replica_selector(),
            leader_quota=self.leader_quota,
            on_stop=self.stop,
        )
        manager.topics.on_unhosted = self._unhosted
        self.fetchers = ReplicaFetcherManager(self._make_fetcher)
        self.control = ControlRequests(broker_epoch)
        self.roles = self._make_roles(log_manager, topic_overrides)
        self.metadata = MetadataUpdates(
            cache, manager.topics, topic_overrides=topic_overrides, fair_queue=fair_queue
        )
        self.metadata.on_brokers = manager.brokers_changed

    def _make_alter_partition(self) -> AlterPartitionManager:
        return AlterPartitionManager(
            self._peers,
            self._ports,
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            controller_id=lambda: self._cache.controller_id,
            on_bug=self._on_bug,
        )

    def _make_roles(
        self, log_manager: LogManager, topic_overrides: Callable[[str], Mapping[str, str]]
    ) -> RoleChanges:
        return RoleChanges(
            self._manager.topics,
            log_manager,
            self.fetchers,
            broker_id=self._broker_id,
            topic_overrides=topic_overrides,
            fair_queue=self._queue,
            report=self._ports.report,
            on_bug=self._on_bug,
        )

    def _make_replica_selector(self) -> RackAwareReplicaSelector | None:
        if self._config().replica_selector_class != RACK_AWARE_REPLICA_SELECTOR:
            return None
        return RackAwareReplicaSelector(lambda: self._cache.live_brokers)

    def _make_quota(
        self, throttled_replicas: Callable[[TopicConfig], tuple[str, ...]], limit: Callable[[], int]
    ) -> ReplicationQuota:
        return ReplicationQuota(
            broker_id=self._broker_id,
            throttled_replicas=throttled_replicas,
            limit=limit,
            monotonic_ms=self._ports.clock.monotonic_ms,
            samples=self._config().replication_quota_window_num,
            sample_ms=self._config().replication_quota_window_size_seconds * 1000,
        )

    def _unhosted(self, key: TopicPartition) -> None:
        for quota in (self.leader_quota, self.follower_quota):
            quota.forget(key.topic)

    def _make_fetcher(self, leader: int, log_dir: str) -> FollowerFetcher:
        return FollowerFetcher(
            RemoteLeader(
                self._peers,
                leader,
                own_id=self._broker_id,
                lane=f"fetch {log_dir}",
                timeout_ms=lambda: self._config().replica_socket_timeout_ms,
            ),
            self._ports,
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            settings=self._config,
            fair_queue=self._queue,
            quota=self.follower_quota,
            listen=self._manager.listen,
            stop_listening=self._manager.stop_listening,
            on_bug=self._on_bug,
            on_copied=self._stats.replication_bytes_in.inc,
        )

    def start(self) -> None:
        """Check the ISR of the partitions that this broker leads at regular intervals."""
        # As in Kafka: a follower leaves the ISR after at most 1.5 times the setting.
        interval_ms = self._config().replica_lag_time_max_ms / 2
        self._timer = self._ports.timers.call_later(interval_ms, self._check_isr)

    def _check_isr(self) -> None:
        self._timer = None
        spawn(self._check_in_slices()).then(self._checked, self._check_failed)

    async def _check_in_slices(self) -> None:
        async for partition in Slices(self._queue).over(list(self._manager.partitions)):
            partition.check_isr()

    def _checked(self, _: None) -> None:
        if not self._is_stopped:
            self.start()

    def _check_failed(self, error: Exception) -> None:
        self._on_bug("checking in-sync replicas", error)
        self._checked(None)

    def out_of_sync(self) -> Later[list[TopicPartition]]:
        """Return the partitions whose replica on this broker is not in sync."""
        finding = find_out_of_sync(
            self._cache,
            self._manager.topics.partitions,
            self.fetchers,
            broker_id=self._broker_id,
            fair_queue=self._queue,
        )
        return spawn(finding)

    def stop(self) -> None:
        """Stop following leaders and changing the ISR, because the broker is stopping."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.fetchers.close()
        self.alter_partition.close()
