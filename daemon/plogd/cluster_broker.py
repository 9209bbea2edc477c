"""A broker that shares its cluster with other brokers.

In contrast to a single broker, it does not decide which partitions it leads. `start` loads its
logs, registers the broker, and lets it campaign to become the controller. From then on, the
controller, which may be this broker itself, sends the roles of its replicas, and the topics and
brokers that clients see.

Called on the reactor's thread. Source: Kafka 3.9 KafkaServer.startup.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from plog.errors import KafkaError, LeaderNotAvailable, error_from_code
from plog.types import ZERO_UUID, TopicPartition, Uuid
from plog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from plog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from plog.zookeeper.operations import ClientClosed
from plogd.broker import Broker
from plogd.concurrency import OneAtATime
from plogd.controller.cluster.cluster_term import Cluster
from plogd.controller.controller import Controller
from plogd.controller.topic_creation import Defaults, NewTopic
from plogd.controller.topic_writes import partition_state
from plogd.coordinator.producer_ids import ProducerIds
from plogd.fair_queue import Slices
from plogd.log.recovery.log_discovery import KnownTopic
from plogd.metadata.cache import LiveBroker, TopicState
from plogd.metadata.store import Key, TopicValue
from plogd.metadata.zookeeper.zookeeper_gauges import register_zookeeper_gauges
from plogd.metadata.zookeeper.zookeeper_metadata import ZooKeeperMetadata
from plogd.notify_all import notify_all
from plogd.peers import Peers
from plogd.ports import Later, spawn
from plogd.replica.cluster.cluster_gauges import register_cluster_gauges
from plogd.replica.cluster.cluster_replicas import ClusterReplicas
from plogd.topic_config import TopicConfig
from plogd.waiters import Waiters

_CREATION_TIMEOUT_MS = 30_000
_LANE = "topics"
_HAND_OVER_TRIES = 3
"""The default of Kafka's controlled.shutdown.max.retries."""
_HAND_OVER_RETRY_MS = 1_000
_HAND_OVER_MAX_MS = 10_000
"""How long the controller may take to respond."""
_LOADING_MAX_MS = 10_000
"""How long the start waits for this broker to load all topics as the controller."""

MakePeers: TypeAlias = Callable[["ClusterBroker"], Peers]


class ClusterBroker(Broker):
    """One of several brokers. `make_peers` is called once, when the broker starts."""

    metadata: ZooKeeperMetadata
    cluster_replicas: ClusterReplicas

    def __init__(self, *args: Any, make_peers: MakePeers, **more: Any) -> None:
        super().__init__(*args, **more)
        self._make_peers = make_peers
        # With fewer replicas, committed offsets could be lost with a single broker.
        self.group_coordinator.may_lower_replication = False
        self._stops: list[Callable[[], object]] = []
        self._registrations = OneAtATime()
        self._ended_registrations = 0
        self.broker_epoch = -1
        self._loaded: Waiters[object] = Waiters()
        """Wait until this broker has become the controller for the first time."""

    async def _start(self) -> None:
        await self.log_manager.open_directories(self.metadata.cluster_id)
        self.store = await self.metadata.open()
        self._load_dynamic_settings()
        self.store.watch(("config",), self._settings_changed)
        self.peers = self._make_peers(self)
        self._stops.append(self.peers.close)
        self.cluster_replicas = self._make_cluster_replicas()
        self._stops.append(self.cluster_replicas.stop)
        await self._load_known_logs()
        self.metadata.on_unregistered = self._unregistered
        self.metadata.on_registered = lambda epoch: _start(self._registered(epoch))
        self.cluster_replicas.roles.confirm_strays = lambda keys: spawn(self._strays(keys))
        self.cluster_replicas.metadata.confirm_deleted = lambda names: spawn(self._deleted(names))
        await self._registered(await self.metadata.register(self._registration()))
        self.producer_ids = ProducerIds(
            self.store, broker_id=self.config.node_id, broker_epoch=self.broker_epoch
        )
        self._make_controller()
        self._start_security()
        # Not awaited, because another broker may be the controller for years.
        self.controller.load().then(self._loaded.succeed, self._not_loaded)
        self.cluster_replicas.start()
        await self._show_cluster()
        self.is_ready = True
        self.metadata.started()

    # -- logs ---------------------------------------------------------------------------------

    async def _load_known_logs(self) -> None:
        """Load the logs in the log directories; the controller decides what happens to others."""
        stored = await self.metadata.read_cluster()
        values = stored.values
        configs: dict[str, TopicConfig] = {}

        def known(key: TopicPartition) -> KnownTopic | None:
            topic = values.get(("topic", key.topic))
            if key.topic in stored.damaged_topics:
                # Kept as it is, without retention.
                topic_id = ZERO_UUID if topic is None else topic.topic_id
                return KnownTopic(topic_id=topic_id, config=TopicConfig(cleanup_policy=()))
            if topic is None or key.partition not in topic.assignments:
                return None
            if key.topic not in configs:
                overrides = self._topic_overrides(key.topic)
                configs[key.topic] = TopicConfig.resolve(self.config, overrides)
            state = values.get(("partition", *key))
            epoch = -1 if state is None else state.leader_epoch
            return KnownTopic(
                topic_id=topic.topic_id,
                config=configs[key.topic],
                leader_epoch=epoch,
                has_other_replicas=len(topic.assignments[key.partition]) > 1,
                is_being_deleted=self._is_being_deleted(key.topic, values),
            )

        await self.log_manager.load_logs(known)

    async def _strays(self, keys: Sequence[TopicPartition]) -> list[TopicPartition]:
        # Only these topics, because all brokers do this when the controller changes.
        stored = await self.metadata.read_topics({key.topic for key in keys})

        def is_assigned(key: TopicPartition) -> bool:
            topic = stored.values.get(("topic", key.topic))
            log = self.log_manager.get(key)
            return (
                topic is not None
                and self.config.node_id in topic.assignments.get(key.partition, ())
                and (log is None or log.topic_id == topic.topic_id)
            )

        return [
            key for key in keys if key.topic not in stored.damaged_topics and not is_assigned(key)
        ]

    async def _deleted(self, names: Collection[str]) -> Collection[str]:
        stored = await self.metadata.read_topics(names)
        return [
            name
            for name in names
            if name not in stored.damaged_topics and ("topic", name) not in stored.values
        ]

    def _is_being_deleted(self, name: str, values: Mapping[Key, Any]) -> bool:
        """Return whether the logs of a topic may be missing, because other brokers delete it."""
        return self.config.delete_topic_enable and ("delete_topic", name) in values

    def _topic_overrides(self, name: str) -> Mapping[str, str]:
        overrides: Mapping[str, str] | None = self.store.get(("config", "topic", name))[0]
        return overrides or {}

    def _make_cluster_replicas(self) -> ClusterReplicas:
        replicas = ClusterReplicas(
            self.replica_manager,
            self.log_manager,
            self.cache,
            self.peers,
            self.ports,
            config=lambda: self.config,
            broker_epoch=lambda: self.broker_epoch,
            is_leased=self._is_leased,
            topic_overrides=self._topic_overrides,
            fair_queue=self.fair_queue,
            stats=self.topic_stats,
            on_bug=self.report_bug,
        )
        register_cluster_gauges(
            self.metrics, self.replica_manager, replicas.fetchers, replicas.alter_partition
        )
        register_zookeeper_gauges(self.metrics, self.metadata)
        replicas.roles.on_elected = self.group_coordinator.partition_elected
        replicas.roles.on_resigned = self.group_coordinator.partition_resigned
        return replicas

    # -- the registration ---------------------------------------------------------------------

    def _registered(self, broker_epoch: int) -> Later[None]:
        # After the roles of the earlier registration have ended.
        ended = self._ended_registrations
        return self._registrations.run(lambda: self._accept(broker_epoch, ended))

    async def _accept(self, broker_epoch: int, ended: int) -> None:
        """Accept requests for this registration; do not lead in an epoch that exists (rule C1)."""
        stored = await self.metadata.read_cluster()
        if ended != self._ended_registrations:
            return  # The session has expired again.
        values, roles, own_id = stored.values, self.cluster_replicas.roles, self.config.node_id
        epoch_floors: dict[tuple[Uuid, int], int] = {}
        expected: set[tuple[Uuid, int]] = set()
        async for key, value in Slices(self.fair_queue).over(values.items()):
            if key[0] == "partition" and ("topic", key[1]) in values:
                partition = (values["topic", key[1]].topic_id, int(key[2]))
                epoch_floors[partition] = value.leader_epoch
                if own_id in value.isr and not self._is_being_deleted(str(key[1]), values):
                    expected.add(partition)
        if ended != self._ended_registrations:
            return
        roles.epoch_floors = epoch_floors
        await roles.lost.registered(expected)
        if ended != self._ended_registrations:
            return
        self.broker_epoch = broker_epoch

    async def _show_cluster(self) -> None:
        """Show clients the cluster as it is in ZooKeeper, until the controller sends its state.

        Otherwise, the first clients would see a cluster without brokers and topics; some clients
        then wait for minutes before they ask again.
        """
        controller_id = await self.metadata.controller_known()
        if controller_id == self.config.node_id and not self.controller.is_active:
            # It has all topics in a moment. Clients may not repeat a request that it rejects.
            with contextlib.suppress(TimeoutError):
                await self._loaded.wait_until(_LOADING_MAX_MS, self.timers, TimeoutError)
        values = (await self.metadata.read_cluster()).values
        if self.cache.controller_id >= 0:  # This broker is the controller.
            return
        for key, topic in values.items():
            if key[0] == "topic":
                self.cache.update(self._topic_state(str(key[1]), topic, values))
        brokers = [LiveBroker.of(value) for key, value in values.items() if key[0] == "broker"]
        self.cache.update_brokers(brokers, controller_id=controller_id)

    def _topic_state(self, name: str, topic: TopicValue, values: Mapping[Key, Any]) -> TopicState:
        return TopicState(
            name=name,
            topic_id=topic.topic_id,
            partitions=tuple(
                partition_state(number, topic, values.get(("partition", name, number)))
                for number in sorted(topic.assignments)
            ),
            config=self._topic_overrides(name),
        )

    def _is_leased(self) -> bool:
        """Return whether no other broker can have taken this one's place (rule C3)."""
        return self.clock.monotonic_ms() < self.store.lease_end_ms

    def _unregistered(self) -> None:
        # Another broker may lead its partitions now.
        self.broker_epoch = -1
        self._ended_registrations += 1
        _start(self._registrations.run(self.cluster_replicas.roles.resign_all))

    def _not_loaded(self, error: Exception) -> None:
        # It may keep other brokers from becoming the controller.
        if not isinstance(error, ClientClosed):
            self.on_must_stop(f"cannot become the controller: {error}")

    # -- the controller -----------------------------------------------------------------------

    def _new_controller(self) -> Controller:
        return Controller(
            store=self.store,
            brokers=self.replica_manager.topics,
            defaults=self._topic_defaults,
            random=self.ports.random,
            fair_queue=self.fair_queue,
            report=self._report,
            cluster=Cluster(
                broker_id=self.config.node_id,
                inter_broker_listener=self.config.used_inter_broker_listener_name,
                peers=self.peers,
                store=self.store,
                is_leased=self._is_leased,
                timers=self.timers,
                fair_queue=self.fair_queue,
                config=lambda: self.config,
                unclean_elections=self.unclean_elections,
                report=self._report,
            ),
        )

    def create_topic(self, new: NewTopic) -> Later[Any]:
        """Create a topic, on the controller; clients see it a moment later."""
        if self.controller.is_active:
            return self.controller.create_topic(new)
        return self.create_elsewhere(new)

    def create_elsewhere(self, new: NewTopic) -> Later[None]:
        """Create a topic on the controller, which is another broker."""
        return spawn(self._create_on_controller(new))

    async def _create_on_controller(self, new: NewTopic) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=new.name,
                    num_partitions=new.num_partitions,
                    replication_factor=new.replication_factor,
                    configs=[
                        CreatableTopicConfig(name=name, value=value)
                        for name, value in new.config.items()
                    ],
                )
            ],
            timeout_ms=_CREATION_TIMEOUT_MS,
        )
        controller_id = self.cache.controller_id
        if controller_id < 0:
            raise LeaderNotAvailable(f"cannot create topic '{new.name}': no controller is known")
        response: CreateTopicsResponse = await self.peers.ask(controller_id, request, _LANE)
        [result] = response.topics
        if result.error_code:
            raise error_from_code(result.error_code, result.error_message or "")

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Return the host and port of another broker's inter-broker listener, if it is running."""
        known = self.cache.live_brokers.get(broker_id)
        # The controller knows all brokers first, and the others learn them from it.
        registration = self.store.get(("broker", broker_id))[0]
        if registration is not None:
            known = LiveBroker.of(registration)
        if known is None:
            return None
        endpoint = known.endpoints.get(self.config.used_inter_broker_listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _topic_defaults(self) -> Defaults:
        defaults = super()._topic_defaults()
        brokers = defaults.brokers
        if not brokers:
            return defaults
        # As in Kafka, a random broker leads the first partition of a topic, and another random
        # broker is its first follower.
        start, shift = (
            int.from_bytes(self.ports.random.random_bytes(4)) % len(brokers) for _ in range(2)
        )
        return replace(defaults, start=start, shift=shift)

    # -- stopping -----------------------------------------------------------------------------

    async def _stop(self) -> None:
        if self.broker_epoch >= 0:
            await self._hand_over()
        # The start may have failed at any point.
        notify_all(reversed(self._stops))
        await super()._stop()

    async def _hand_over(self) -> None:
        """Let other replicas lead the partitions of this broker, before it stops (KIP-46)."""
        for left_tries in reversed(range(_HAND_OVER_TRIES)):
            others = self.cache.live_broker_ids - {self.config.node_id}
            if not others or self.cache.controller_id < 0:
                return
            request = ControlledShutdownRequest(
                broker_id=self.config.node_id, broker_epoch=self.broker_epoch
            )
            asked = self.peers.ask(
                self.cache.controller_id, request, _LANE, timeout_ms=_HAND_OVER_MAX_MS
            )
            try:
                response: ControlledShutdownResponse = await asked
            except KafkaError as error:
                problem = error.message
            else:
                left = len(response.remaining_partitions)
                problem = f"no other replica of {left} partitions is in sync" if left else ""
                if response.error_code:
                    problem = error_from_code(response.error_code).message
            if not problem:
                return
            self._report("cannot hand over partitions: {problem}", problem=problem, level="warn")
            if left_tries:
                await self._sleep(_HAND_OVER_RETRY_MS)

    async def _sleep(self, duration_ms: float) -> None:
        woken: Later[None] = Later()
        self.timers.call_later(duration_ms, lambda: woken.succeed(None))
        await woken


def _start(work: Later[None]) -> None:
    work.then(_ignore, _raise)


def _ignore(_: object) -> None:
    """Do nothing."""


def _raise(error: Exception) -> None:
    if not isinstance(error, ClientClosed):  # The broker is stopping.
        raise error
