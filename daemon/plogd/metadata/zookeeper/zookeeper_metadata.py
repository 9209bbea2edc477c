"""The metadata of a broker whose cluster stores it in ZooKeeper.

`ZooKeeperMetadata` connects, checks that the log directories belong to this cluster, and keeps the
broker registered: when its session has expired, it registers again. broker.py uses it as a
`ClusterMetadata`. Source: Kafka 3.9 KafkaServer.startup, KafkaController.RegisterBrokerAndReelect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from plog.error_base import PlogError
from plog.types import TopicPartition
from plog.zookeeper.operations import ClientClosed, SessionState
from plogd.concurrency import within
from plogd.config import BrokerConfig
from plogd.metadata.store import BrokerRegistration, MetadataStore
from plogd.metadata.zookeeper.paths import CLUSTER_ID, MIGRATION
from plogd.metadata.zookeeper.port import ZooKeeperConnection
from plogd.metadata.zookeeper.store import ZooKeeperStore
from plogd.metadata.zookeeper.stored_cluster import StoredCluster
from plogd.ports import Later, Ports, Timer, ready, spawn

_CLOSE_MAX_MS: Final = 5_000
"""Longest time for ending the session; without an answer, it ends after its timeout."""
_SILENT_MS: Final = 2_000
"""Time after which a wait during startup is logged."""


class WrongCluster(PlogError):
    """The log directories and the znodes do not belong together."""


class ZooKeeperMetadata:
    """A `ClusterMetadata` in ZooKeeper.

    Args:
        make_client: returns a client that has not been started.
        must_stop: ends the broker for the reason that it gets.
    """

    def __init__(
        self,
        make_client: Callable[[BrokerConfig], ZooKeeperConnection],
        config: BrokerConfig,
        ports: Ports,
        must_stop: Callable[[str], None],
    ) -> None:
        self._make_client = make_client
        self._config = config
        self._ports = ports
        self._report = ports.report
        self._must_stop = must_stop
        self._is_lost = False
        self.expirations = self.disconnects = 0
        """How often the session has expired, and how often the connection was lost."""
        self._registration: BrokerRegistration | None = None
        self._client: ZooKeeperConnection
        self._store: ZooKeeperStore
        self._has_begun = False
        self.on_unregistered: Callable[[], None] = lambda: None
        """Called whenever the registration has ended."""
        self.on_registered: Callable[[int], None] = lambda broker_epoch: None
        """Called with the new broker epoch whenever this broker has registered again."""

    # -- starting -----------------------------------------------------------------------------

    def cluster_id(self, known: str, new: str) -> Later[str]:
        """Connect, and return the id of the cluster, which is created if it is new.

        Fails with ZooKeeperUnavailable, or with WrongCluster if `known` is another cluster's id.
        """
        return spawn(self._cluster_id(known, new))

    async def _cluster_id(self, known: str, new: str) -> str:
        config = self._config
        self._client = self._make_client(config)
        # Before the client starts, because the store has to see all of its states.
        self._store = ZooKeeperStore(self._client, broker_id=config.node_id, ports=self._ports)
        self._client.listen(self._on_state)
        self._has_begun = True
        self._client.start()
        timeout_ms = config.zookeeper_connection_timeout_ms or config.zookeeper_session_timeout_ms
        reminder = self._remind(
            lambda: f"waiting for ZooKeeper, at most {timeout_ms} ms: {self._client.problem}"
        )
        try:
            await self._store.open(connection_timeout_ms=timeout_ms)
        finally:
            reminder.cancel()
        self._store.unregistered(self._unregistered)
        where = f"in ZooKeeper at {config.zookeeper_connect}"
        if await self._store.exists(MIGRATION):
            raise WrongCluster(
                f"cannot join the cluster {where}: a KRaft controller has taken over its znodes;"
                " set another chroot in zookeeper.connect, or end the migration as described in"
                " Kafka's documentation"
            )
        try:
            found = await self._store.cluster_id(new)
        except ValueError as error:
            raise WrongCluster(
                f"cannot join the cluster {where}: cannot decode the znode {CLUSTER_ID}: {error};"
                " correct it with plog zookeeper-shell"
            ) from error
        if known and found != known:
            there = f"the cluster {where} is {found}" if found else f"there is no cluster {where}"
            raise WrongCluster(
                f"log.dirs belong to cluster {known}, but {there}; correct zookeeper.connect or"
                " log.dirs"
            )
        self._report("connected to the cluster {cluster_id} {where}", cluster_id=found, where=where)
        return found

    def _remind(self, text: Callable[[], str]) -> Timer:
        """Log why the startup waits, unless the wait is short."""

        def remind() -> None:
            self._report("{text}", text=text(), level="warn")

        return self._ports.timers.call_later(_SILENT_MS, remind)

    def open(self) -> Later[MetadataStore]:
        """Return the store, which `cluster_id` has loaded."""
        return ready(self._store)

    def keep_room(self) -> Later[bool]:
        """Do nothing: the metadata is not on the broker's disk."""
        return ready(True)

    def started(self) -> None:
        """Do nothing: the broker was registered before."""

    def logs_failed(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Notify the controller, which lets other replicas lead these partitions."""
        # Before the registration, no replica has a role.
        if self._registration is not None:
            self._store.report_log_dir_failure().then(_ignore, _ignore_closed)

    # -- the registration ---------------------------------------------------------------------

    def register(self, registration: BrokerRegistration) -> Later[int]:
        """Register this broker, and register it again whenever its session has expired.

        Fails with DuplicateBrokerId if another broker keeps this id.
        """
        self._registration = registration
        return spawn(self._register(registration))

    async def _register(self, registration: BrokerRegistration) -> int:
        reminder = self._remind(
            lambda: f"waiting until an earlier session of broker {registration.broker_id} expires"
        )
        try:
            return await self._store.register_broker(registration)
        finally:
            reminder.cancel()

    def read_cluster(self) -> Later[StoredCluster]:
        """Read all topics, the states of their partitions, and the registered brokers once."""
        return self._store.read_cluster()

    def read_topics(self, names: Collection[str]) -> Later[StoredCluster]:
        """Read the assignments of topics once, of those that exist."""
        return self._store.read_topics(names)

    async def controller_known(self) -> int:
        """Wait until there is a controller; return its id."""
        known: Later[None] = Later()

        def check(*_: object) -> None:
            if self._store.controller_id >= 0 and not known.done:
                known.succeed(None)

        self._store.watch(("controller",), check)
        check()
        await known
        return self._store.controller_id

    def _unregistered(self) -> None:
        registration = self._registration
        if registration is None:
            return
        self.expirations += 1
        self._report(
            "the session with ZooKeeper has expired: registering this broker again", level="warn"
        )
        self.on_unregistered()
        self._store.register_broker(registration).then(self._registered_again, self._not_registered)

    def _registered_again(self, broker_epoch: int) -> None:
        self._report("registered this broker again")
        self.on_registered(broker_epoch)

    def _not_registered(self, error: Exception) -> None:
        # The broker is being stopped.
        if isinstance(error, ClientClosed):
            return
        if not isinstance(error, PlogError):
            raise error
        self._must_stop(str(error))

    # -- the connection -----------------------------------------------------------------------

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            if self._is_lost:
                self._report("connected to ZooKeeper again")
            self._is_lost = False
        elif not self._is_lost:
            self._is_lost = True
            self.disconnects += 1
            self._report(
                "lost the connection to ZooKeeper at {problem}; changes to topics and settings wait"
                " for it",
                problem=self._client.problem,
                level="warn",
            )

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to ZooKeeper."""
        return not self._is_lost

    @property
    def problem(self) -> str:
        """That the connection to ZooKeeper is lost, or ""."""
        return f"no connection to ZooKeeper at {self._client.problem}" if self._is_lost else ""

    def stop(self) -> Later[None]:
        """End the session, and with it the registration."""
        return spawn(self._stop()) if self._has_begun else ready(None)

    async def _stop(self) -> None:
        self._registration = None
        self._store.close()
        timers, given_up = self._ports.timers, ClientClosed("ZooKeeper does not answer")
        try:
            await within(self._client.close(), _CLOSE_MAX_MS, timers, lambda: given_up)
        except ClientClosed:
            pass  # The session ends by its timeout.


def _ignore(_: None) -> None:
    """Do nothing: the controller asks this broker about its partitions."""


def _ignore_closed(error: Exception) -> None:
    if not isinstance(error, ClientClosed):  # The broker is stopping.
        raise error
