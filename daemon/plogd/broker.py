"""A complete broker without sockets, which builds, starts and stops its parts in order.

service.py, the tests and the simulator pass it ports and settings, call `start`, and then pass each
request to a `Dispatcher` that they build for the broker (apis/dispatch.py). The broker accesses
time and disks only through the ports.

`start` opens the log directories and the metadata store, registers the broker, becomes the
controller, and loads the topics and their logs. Every partition gets a new leader epoch. Only then
does the broker serve requests.

Called on the reactor's thread. Source: Kafka 4.0 BrokerServer, BrokerMetadataPublisher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from plog.errors import CoordinatorNotAvailable
from plog.types import TopicPartition
from plogd.advertised_addresses import AdvertisedAddresses
from plogd.concurrency import within
from plogd.config import BrokerConfig, Listener
from plogd.config.dynamic_broker_config import DynamicBrokerConfig
from plogd.config.dynamic_config import describe_changes
from plogd.config.loggers import Logs
from plogd.connection_context import ConnectionContext
from plogd.controller.acls import Acls
from plogd.controller.auto_topic_creation import AutoTopicCreation
from plogd.controller.client_quotas import ClientQuotas
from plogd.controller.configs import Configs
from plogd.controller.controller import Controller
from plogd.controller.controller_gauges import (
    count_unclean_elections,
    register_controller_gauges,
)
from plogd.controller.scram_users import ScramUsers
from plogd.controller.security_gauges import register_security_gauges
from plogd.controller.topic_creation import Defaults, NewTopic
from plogd.coordinator.group.group_coordinator import OFFSETS_TOPIC, GroupCoordinator
from plogd.coordinator.group.group_gauges import register_group_gauges
from plogd.coordinator.group.group_memory import GroupMemory
from plogd.coordinator.group.group_metadata_manager import GroupMetadataManager
from plogd.coordinator.group.group_records import check_group_record
from plogd.coordinator.producer_ids import ProducerIds
from plogd.coordinator.runtime.shard_runtime import RuntimeContext
from plogd.coordinator.runtime.shard_timers import ShardTimers
from plogd.fair_queue import FairQueue
from plogd.log.compaction.cleaner_gauges import register_cleaner_gauges
from plogd.log.log import Log
from plogd.log.log_manager import LogManager
from plogd.log.recovery.log_discovery import KnownTopic
from plogd.metadata.cache import LiveBroker, MetadataCache, TopicState
from plogd.metadata.cluster_metadata import ClusterMetadata
from plogd.metadata.embedded_metadata import EmbeddedMetadata
from plogd.metadata.embedded_store import EmbeddedStore
from plogd.metadata.store import BrokerRegistration, Endpoint, Key, MetadataStore
from plogd.metrics import Registry
from plogd.ports import CopyMemory, Later, Ports, spawn
from plogd.quota import Quotas
from plogd.reliable_timers import ReliableTimers
from plogd.replica.cluster.cluster_replicas import ClusterReplicas
from plogd.replica.fetch.fetch_sessions import FetchSessionCache
from plogd.replica.replica_gauges import register_gauges
from plogd.replica.replica_manager import ReplicaManager
from plogd.replica.time_lookup_queue import TimeLookupQueue
from plogd.replica.topic_start import TopicStart, shown_partitions
from plogd.replica.topic_stats import TopicStats
from plogd.topic_config import TopicConfig

_INTERNAL_TOPIC_TIMEOUT_MS = 5_000
"""Maximum time that a request waits for its coordinator's topic; after that, the creation
continues."""
MakeMetadata: TypeAlias = Callable[[BrokerConfig, Ports, Callable[[str], None]], ClusterMetadata]
"""Gets the settings, the ports, and a function that ends the broker for a reason."""


class Broker:
    """A broker and its parts, which are public because request handlers use them."""

    acls: Acls
    auto_topic_creation: AutoTopicCreation
    client_quotas: ClientQuotas
    create_elsewhere: Callable[[NewTopic], Later[None]] | None = None
    cluster_replicas: ClusterReplicas | None = None
    configs: Configs
    controller: Controller
    producer_ids: ProducerIds
    scram_users: ScramUsers
    store: MetadataStore

    def __init__(
        self,
        config: BrokerConfig,
        ports: Ports,
        *,
        metrics: Registry,
        on_bug: Callable[[str, Exception], None] | None = None,
        make_metadata: MakeMetadata | None = None,
    ) -> None:
        """`make_metadata` returns the metadata of a cluster; None for the embedded metadata."""
        self.config = config
        """The settings in use: from the files, overridden by settings that clients have set."""
        self._settings = DynamicBrokerConfig(config)
        self.clock = ports.clock
        self.timers = ReliableTimers(ports, on_bug=self.report_bug)
        self.ports = replace(ports, timers=self.timers)
        self.fair_queue = FairQueue(self.timers)
        """Schedules slices for requests with many elements."""
        self.jobs = ports.jobs
        self.metrics = metrics
        self.is_ready = False
        """Whether requests can be served."""
        self.copy_memory: CopyMemory | None = None
        """Counts copies of requests; None if the memory for requests is unbounded."""
        self.on_must_stop: Callable[[str], None] = lambda why: None
        """Called with the reason when the broker cannot continue."""
        self.on_config: Callable[[BrokerConfig], None] = lambda config: None
        """Called with the new settings each time they change."""
        self.logs: Logs | None = None
        """Sets the levels of the broker's loggers; None if clients may not change them."""
        self.on_address_advertised: Callable[[ConnectionContext, str, int], None] = lambda *_: None
        """Called with a client's connection and the host and port advertised to that client."""
        self.on_client_works: Callable[[ConnectionContext], None] = lambda _: None
        """Called when a connection sends its first request that is not for discovery."""
        self._report = ports.report
        self._on_bug = on_bug
        self._bugs = metrics.counter(
            "plog_unexpected_errors_total", "Unexpected errors (bugs); each is logged."
        )
        self._addresses = AdvertisedAddresses(config)
        self._endpoints: Sequence[Endpoint] = ()
        self._stop_controller: Callable[[], None] = lambda: None
        self.cache = MetadataCache()
        self.topic_stats = TopicStats(metrics)
        self.log_manager = self._make_log_manager()
        self.replica_manager = self._make_replica_manager()
        self.time_lookups = TimeLookupQueue(self.jobs, self.log_manager.check_suspects)
        self.fetch_sessions = self._make_fetch_sessions()
        self.quotas = self._make_quotas()
        self.group_coordinator = self._make_group_coordinator()
        self.metadata = (make_metadata or self._make_embedded_metadata)(
            config, self.ports, lambda why: self.on_must_stop(why)
        )
        register_gauges(
            metrics, self.replica_manager, self.log_manager, self.cache, self.fetch_sessions
        )
        register_cleaner_gauges(metrics, self.log_manager.cleaner)

    def _make_log_manager(self) -> LogManager:
        log_manager = LogManager(
            self.config,
            self.config.data_dirs,
            self.ports,
            fair_queue=self.fair_queue,
            on_bug=self.report_bug,
        )
        log_manager.on_offline = self._log_dir_failed
        # As in Kafka (KIP-112). A lambda, because service.py assigns the callback later.
        log_manager.on_last_offline = lambda: self.on_must_stop("all log directories have failed")
        return log_manager

    def _make_embedded_metadata(
        self, config: BrokerConfig, ports: Ports, _must_stop: Callable[[str], None]
    ) -> ClusterMetadata:
        return EmbeddedMetadata(
            self.log_manager,
            ports,
            config=config,
            metrics=self.metrics,
            fair_queue=self.fair_queue,
            refuse_writes=self.replica_manager.topics.refuse_writes,
            may_retry=lambda: self.is_ready,
        )

    def _make_replica_manager(self) -> ReplicaManager:
        return ReplicaManager(
            self.ports,
            config=self.config,
            log_manager=self.log_manager,
            cache=self.cache,
            fair_queue=self.fair_queue,
            stats=self.topic_stats,
            on_bug=self.report_bug,
        )

    def _make_fetch_sessions(self) -> FetchSessionCache:
        return FetchSessionCache(
            self.config.max_incremental_fetch_session_cache_slots,
            max_partitions=self.config.plog_fetch_session_max_partitions,
            max_total=self.config.plog_fetch_sessions_max_partitions,
            clock=self.clock,
            random=self.ports.random,
            fair_queue=self.fair_queue,
        )

    def _make_quotas(self) -> Quotas:
        return Quotas(
            self.metrics,
            samples=self.config.quota_window_num,
            sample_ms=self.config.quota_window_size_seconds * 1000,
        )

    def _make_group_coordinator(self) -> GroupCoordinator[GroupMetadataManager]:
        around = RuntimeContext(
            replica_manager=self.replica_manager,
            # A function, because `_use_settings` replaces the settings while the broker runs.
            config=lambda: self.config,
            ports=self.ports,
            on_bug=self.report_bug,
            skipped_records=self.metrics.counter(
                "plog_coordinator_skipped_records_total",
                "Records in coordinator topics that could not be replayed during loading.",
            ),
        )
        self.group_memory = GroupMemory(lambda: self.config, self.clock, self._report)
        coordinator = GroupCoordinator(
            self._make_groups,
            around,
            cache=self.cache,
            create_topic=self._make_internal_topic,
            brokers=lambda: len(self._topic_defaults().brokers),
            metrics=self.metrics,
            memory=self.group_memory,
        )
        register_group_gauges(self.metrics, coordinator, self.group_memory)
        self.replica_manager.topics.on_topic_started = coordinator.topic_started
        self.replica_manager.topics.on_topic_stopped = coordinator.topic_stopped
        # Kafka's tools may write to this topic. A record that cannot be replayed would be skipped
        # by every load.
        self.replica_manager.topics.record_checks[OFFSETS_TOPIC] = check_group_record
        return coordinator

    def _make_groups(self, timers: ShardTimers) -> GroupMetadataManager:
        return GroupMetadataManager(
            self.ports,
            config=lambda: self.config,
            shard_timers=timers,
            memory=self.group_memory,
        )

    def create_topic(self, new: NewTopic) -> Later[Any]:
        """Create a topic that a request needs. Fails with the KafkaError for the client."""
        return self.controller.create_topic(new)

    def _make_internal_topic(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str]
    ) -> Later[Any]:
        new = NewTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=config,
        )
        return within(
            self.create_topic(new),
            _INTERNAL_TOPIC_TIMEOUT_MS,
            self.timers,
            lambda: CoordinatorNotAvailable(f"topic {name} is being created"),
        )

    # -- start and stop -----------------------------------------------------------------------

    def start(self, bound: Sequence[Listener] = (), host_name: str = "") -> Later[None]:
        """Load all data, then serve requests. Fails with PlogError if the broker cannot start.

        Other brokers get the ports of `bound`, the open listeners, which default to the configured
        listeners, and `host_name` if a listener has no host.
        """
        listeners = bound or self.config.bound_listeners()
        self._endpoints = self._addresses.endpoints(listeners, host_name)
        return spawn(self._start())

    async def _start(self) -> None:
        await self.log_manager.open_directories(self.metadata.cluster_id)
        self.store = await self.metadata.open()
        # Before the first record is written, so that other files cannot take the space that it
        # needs.
        await self.keep_room()
        # Before the logs are loaded: topics inherit settings that clients have set for the broker.
        self._load_dynamic_settings()
        self.store.watch(("config",), self._settings_changed)
        broker_epoch = await self.metadata.register(self._registration())
        self._list_brokers()
        self.producer_ids = ProducerIds(
            self.store, broker_id=self.config.node_id, broker_epoch=broker_epoch
        )
        self._make_controller()
        self._start_security()
        # Loaded after the registration, which gives every partition a new leader epoch.
        topics = await self.controller.load()
        await self._load_logs(topics)
        start = TopicStart(
            self.replica_manager.topics,
            timers=self.timers,
            report=self._report,
            # A missing log may be in a directory that is offline.
            may_retry=lambda: self.is_ready and not self.log_manager.offline_dirs,
            exclusively=self.controller.run_exclusively,
        )
        await start.start(topics)
        self.is_ready = True
        self.metadata.started()

    def _new_controller(self) -> Controller:
        return Controller(
            store=self.store,
            brokers=self.replica_manager.topics,
            defaults=self._topic_defaults,
            random=self.ports.random,
            fair_queue=self.fair_queue,
            report=self._report,
        )

    def _make_controller(self) -> None:
        self.unclean_elections = count_unclean_elections(self.metrics)
        self.controller = self._new_controller()
        self._stop_controller = self.controller.stop
        register_controller_gauges(self.metrics, self.controller)
        self.auto_topic_creation = AutoTopicCreation(
            self.controller,
            self.ports,
            max_per_second=lambda: self.config.plog_auto_create_topics_max_per_second,
            create_elsewhere=self.create_elsewhere,
        )
        self.configs = Configs(
            self.store,
            self.controller,
            lambda: self.config,
            lambda name: self.cache.topic(name) is not None,
        )

    def _list_brokers(self) -> None:
        """Show this broker to clients as the only broker and the controller."""
        node_id = self.config.node_id
        registration: BrokerRegistration = self.store.get(("broker", node_id))[0]
        self.cache.update_brokers([LiveBroker.of(registration)], controller_id=node_id)

    def _start_security(self) -> None:
        self.acls = Acls(self.store, fair_queue=self.fair_queue, report=self._report)
        self.client_quotas = ClientQuotas(self.store, self.fair_queue)
        self.scram_users = ScramUsers(self.store, self.fair_queue, self._report)
        register_security_gauges(self.metrics, self.acls, self.scram_users)
        self.client_quotas.watch(self.quotas.update)

    def keep_room(self) -> Later[bool]:
        """Reserve disk space for metadata records; return whether enough space is reserved."""
        return self.metadata.keep_room()

    async def _load_logs(self, topics: Sequence[TopicState]) -> None:
        known = {
            TopicPartition(topic.name, state.partition): KnownTopic(
                topic_id=topic.topic_id, config=config, leader_epoch=state.leader_epoch
            )
            for topic in topics
            # Settings are resolved once per topic, which may have thousands of partitions.
            for config in [TopicConfig.resolve(self.config, topic.config)]
            for state in topic.partitions
        }
        await self.log_manager.load_logs(known.get)
        missing = [key for key in known if self.log_manager.get(key) is None]
        if self.log_manager.offline_dirs:
            # A missing log may be in a directory that cannot be read. A new log in another
            # directory would serve an empty partition even though its records exist.
            self.replica_manager.topics.set_without_log(missing)
        elif missing:
            self._report(
                "cannot find the directories of {count} partitions in log.dirs: created empty logs "
                "for {partitions}; this is correct if the broker stopped while creating them; "
                "otherwise, to recover the records, stop the broker, replace the new directories "
                "with those from a backup, and start the broker again",
                count=len(missing),
                partitions=shown_partitions(missing),
                topic_partitions=missing,
                level="warn",
            )

    def stop(self) -> Later[None]:
        """Stop serving, make all data durable, and write the clean shutdown marker."""
        # Before anything is closed: retries that are due during the shutdown must not write.
        self.is_ready = False
        return spawn(self._stop())

    async def _stop(self) -> None:
        # A shutdown during startup must not wait until large logs are recovered.
        self.log_manager.stop_loading()
        self.replica_manager.stop()
        # Before the logs are closed, because a coordinator that is still loading reads them.
        await self.group_coordinator.shutdown()
        self._stop_controller()
        await self.metadata.stop()
        await self.log_manager.shutdown()

    # -- settings -----------------------------------------------------------------------------

    def update_config(self, config: BrokerConfig) -> None:
        """Replace the settings from the files; settings set by clients still override them."""
        self._settings.update_static(config)
        self._use_settings()

    def _load_dynamic_settings(self) -> None:
        for entity in ("", str(self.config.node_id)):
            self._settings.update(entity, self.store.get(("config", "broker", entity))[0] or {})
        self._use_settings()

    def _use_settings(self) -> None:
        """Apply the settings that may change while the broker runs."""
        config, problems = self._settings.effective()
        for problem in problems:
            self._report("{problem}", problem=problem, level="warn")
        self.config = config
        self.log_manager.update_config(config)
        self.replica_manager.topics.update_config(config)
        self.on_config(config)

    def _settings_changed(self, key: Key, value: Mapping[str, str] | None, _version: int) -> None:
        """Apply settings that a client has changed; the change is durable."""
        match key:
            case _ if self.store.problem(key) is not None:
                return  # They look missing; the defaults could delete records that must be kept.
            case ("config", "topic", str(name)):
                topic = self.cache.topic(name)
                is_known = topic is not None and self.store.get(("topic", name))[0] is not None
                # Only the controller's store contains topics.
                if topic is None or (self.controller.is_active and not is_known):
                    return  # The topic's logs are being created or deleted.
                changes = describe_changes(topic.config, value or {})
                self._report_change(f"topic {name}", changes, topic=name)
                self.replica_manager.topics.update_topic_config(name, value or {})
            case ("config", "broker", str(entity)):
                changed = self._settings.update(entity, value or {})
                if changed is not None:
                    self._report_change(f"broker {entity}" if entity else "all brokers", changed)
                    self._use_settings()

    def _report_change(self, what: str, changes: str, **fields: object) -> None:
        self._report("settings of {what} changed: {changes}", what=what, changes=changes, **fields)

    def _topic_defaults(self) -> Defaults:
        return Defaults(
            num_partitions=self.config.num_partitions,
            replication_factor=self.config.default_replication_factor,
            brokers=tuple(self.cache.live_brokers),
            racks={
                broker_id: broker.rack
                for broker_id, broker in self.cache.live_brokers.items()
                if broker.rack is not None
            },
            delete_topic_enable=self.config.delete_topic_enable,
        )

    # -- identity -----------------------------------------------------------------------------

    @property
    def embedded_store(self) -> EmbeddedStore:
        """The store, for APIs that exist only with the embedded store."""
        assert isinstance(self.store, EmbeddedStore)
        return self.store

    @property
    def cluster_id(self) -> str:
        """The cluster id from meta.properties."""
        return self.log_manager.cluster_id

    def address_for(self, connection: ConnectionContext) -> tuple[str, int]:
        """Return the host and port at which the client of `connection` reaches this broker."""
        return self._addresses.address_for(connection.listener_name, connection.local_address)

    def _registration(self) -> BrokerRegistration:
        return BrokerRegistration(
            broker_id=self.config.node_id,
            # As in KRaft (KIP-631), it distinguishes two runs of the same broker.
            incarnation_id=self.ports.random.random_bytes(16),
            endpoints=tuple(self._endpoints),
            rack=self.config.broker_rack,
        )

    # -- failures -----------------------------------------------------------------------------

    def report_bug(self, where: str, error: Exception) -> None:
        """Count an unexpected error, and pass it to `on_bug` or report it."""
        self._bugs.value += 1
        if self._on_bug is not None:
            self._on_bug(where, error)
        else:
            self._report(
                "unexpected error: {where}: {error}", where=where, error=repr(error), level="error"
            )

    def _log_dir_failed(self, log_dir: str, logs: Sequence[Log]) -> None:
        self.metadata.logs_failed([log.topic_partition for log in logs])
        self.replica_manager.log_dir_failed(logs)
