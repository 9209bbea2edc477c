"""The metadata store of a cluster, in ZooKeeper.

`get` and `load` read a mirror in memory. Every broker's mirror contains settings, quotas,
credentials and ACLs, and follows their change notifications, as Kafka's brokers do. The
controller's mirror also contains topics, partitions, brokers, and the requests of other programs:
`campaign` loads them. Only the controller changes topics and partitions, so its mirror is current;
other brokers learn them from the controller's requests and never from here.

Besides the keys of plogd.metadata.store, every mirror has ("controller",), the controller's id. The
controller's mirror has ("reassign_partitions",), a request of an old tool, and ("log_dir_failure",
number), the id of a broker that has lost a log directory. The controller removes these two.

Versions, fencing and lost connections: see writer.py, election.py and session.py. When the
connection is lost, this broker resigns as the controller at once, and writes wait. When the session
has expired, the registration has ended, and everything is read again.

Called on the reactor's thread. Source: Kafka 3.9 KafkaZkClient, KafkaController.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from plog.error_base import PlogError
from plog.zookeeper.operations import (
    Check,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionState,
    SetData,
    ZnodeStat,
    parent_of,
)
from plogd.concurrency import within
from plogd.metadata.store import (
    ABSENT,
    BrokerRegistration,
    Change,
    Key,
    Outcome,
    Watcher,
)
from plogd.metadata.zookeeper.broker_znodes import (
    decode_cluster_id,
    encode_cluster_id,
    encode_features,
    encode_log_dir_event,
)
from plogd.metadata.zookeeper.change_notifications import notification_folders
from plogd.metadata.zookeeper.election import Election
from plogd.metadata.zookeeper.mirror import ZnodeMirror
from plogd.metadata.zookeeper.paths import (
    BROKER_IDS,
    BROKER_SEQUENCE,
    CLUSTER_ID,
    CONTROLLER,
    DELETE_TOPICS,
    FEATURE,
    LOG_DIR_EVENT_PREFIX,
    LOG_DIR_EVENTS,
    PERSISTENT_PATHS,
    REASSIGN_PARTITIONS,
    TOPICS,
    path_of,
)
from plogd.metadata.zookeeper.port import ZooKeeperClient
from plogd.metadata.zookeeper.reading import (
    read_controller_state,
    read_folder,
    read_shared,
    read_znodes,
)
from plogd.metadata.zookeeper.registration import Registration
from plogd.metadata.zookeeper.session import LOST, Session, start_until_lost
from plogd.metadata.zookeeper.stored_cluster import (
    StoredCluster,
    read_stored_cluster,
    read_stored_topics,
)
from plogd.metadata.zookeeper.writer import MAX_CHANGES, Writer
from plogd.notify_all import notify_all
from plogd.ports import Later, Ports, spawn

T = TypeVar("T")

_CONTROLLER_TREES: Final = (TOPICS, BROKER_IDS, DELETE_TOPICS, LOG_DIR_EVENTS)
"""What only the controller's mirror contains."""


class ZooKeeperUnavailable(PlogError):
    """No connection to ZooKeeper could be opened in time."""


class ZooKeeperStore:
    """A `MetadataStore` over a ZooKeeper client that has not connected yet; call `open` first."""

    max_atomic_changes = MAX_CHANGES
    keeps_deletion_marks = True

    def __init__(self, client: ZooKeeperClient, *, broker_id: int, ports: Ports) -> None:
        self._broker_id = broker_id
        self._report = ports.report
        self._timers = ports.timers
        self._session = Session(client, clock=ports.clock, timers=ports.timers)
        self._mirror = ZnodeMirror(ports.report)
        self._election = Election(
            self._session, broker_id=broker_id, clock=ports.clock, report=ports.report
        )
        self._registration = Registration(self._session, clock=ports.clock, timers=ports.timers)
        self._changes = notification_folders(
            self._session, ports.clock, changed=self._read_again, report=ports.report
        )
        self._writer = Writer(
            self._session,
            self._mirror,
            fencing=self,
            turn=ports.turn,
            notify=self._notifications,
            own_notification=self._own_notification,
        )
        self._watchers: list[tuple[Key, Watcher]] = []
        self._on_resigned: list[Callable[[], None]] = []
        self._on_unregistered: list[Callable[[], None]] = []
        self._is_open = False
        self._is_stale = True
        """Whether the shared part of the mirror has to be read again."""
        self._session.listen(self._on_state)
        # Rule C3: another broker may be the controller from now on.
        self._session.on_lease_ended = self._resign

    # -- starting -----------------------------------------------------------------------------

    def open(self, *, connection_timeout_ms: float = 18_000) -> Later[None]:
        """Wait for the connection, create missing znodes, and load the mirror.

        Fails with ZooKeeperUnavailable if there is no connection after `connection_timeout_ms`.
        """
        return spawn(self._open(connection_timeout_ms))

    async def _open(self, connection_timeout_ms: float) -> None:
        await within(
            self._session.connected(), connection_timeout_ms, self._timers, self._unavailable
        )
        await self._session.retry(self._create_persistent_paths)
        await self._session.retry(self._load_shared)
        self._is_open = True
        # Otherwise, the next connection starts it.
        if self._session.state is SessionState.CONNECTED:
            self._follow()

    def _unavailable(self) -> ZooKeeperUnavailable:
        return ZooKeeperUnavailable(
            f"cannot connect to ZooKeeper at {self._session.problem}; start ZooKeeper, or correct"
            " zookeeper.connect"
        )

    async def _create_persistent_paths(self) -> None:
        for path in PERSISTENT_PATHS:
            await self._create_recursively(path)

    async def _create_recursively(self, path: str, data: bytes = b"") -> bool:
        """Create a znode and its parents; return False if it exists."""
        if await self._session.exists(path) is not None:
            return False
        if parent_of(path) != "/":
            await self._create_recursively(parent_of(path))
        try:
            await self._session.multi([Create(path=path, data=data)])
        except MultiFailed as failure:
            if not isinstance(failure.error, NodeExists):
                raise failure.error from None
            return False
        return True

    async def _load_shared(self) -> None:
        # A new session may be on a server that is behind the former one.
        await self._session.sync()
        for notifications in self._changes:
            await notifications.start()
        changed = await read_shared(self._session, self._mirror)
        self._is_stale = False
        notify_all(self._notifications(changed))

    def close(self) -> None:
        """Stop; pending writes fail with ClientClosed. The caller then closes the client."""
        self._is_open = False
        self._election.resign()
        self._session.close()

    def cluster_id(self, proposed: str) -> Later[str]:
        """Return the cluster's id, which is `proposed` if the cluster is new.

        If `proposed` is empty, no cluster is created, and the id of a new one is "". Fails with
        ValueError if the znode is damaged.
        """
        return self._session.retry(lambda: self._cluster_id(proposed))

    async def _cluster_id(self, proposed: str) -> str:
        if proposed:
            await self._create_recursively(CLUSTER_ID, encode_cluster_id(proposed))
        try:
            data, _ = await self._session.get(CLUSTER_ID)
        except NoNode:
            return ""
        return decode_cluster_id(data)

    def exists(self, path: str) -> Later[bool]:
        """Return whether a znode exists."""
        return self._session.retry(lambda: self._exists(path))

    async def _exists(self, path: str) -> bool:
        return await self._session.exists(path) is not None

    def next_broker_id(self) -> Later[int]:
        """Return a number that no other broker gets, to which Kafka adds reserved.broker.max.id."""
        # A repetition after a lost response skips a number, which is harmless.
        return self._session.retry(self._next_broker_id)

    async def _next_broker_id(self) -> int:
        [stat] = await self._session.multi([SetData(path=BROKER_SEQUENCE, data=b"")])
        assert isinstance(stat, ZnodeStat)
        return stat.version

    # -- reading ------------------------------------------------------------------------------

    def get(self, key: Key) -> tuple[Any, int]:
        """Return the value of a key and its version; (None, ABSENT) if it is missing."""
        return self._mirror.get(key)

    def load(self, prefix: Key) -> dict[Key, tuple[Any, int]]:
        """Return all keys that begin with `prefix`."""
        return self._mirror.load(prefix)

    def watch(self, prefix: Key, watcher: Watcher) -> None:
        """Call `watcher` for every later change to a key that begins with `prefix`."""
        self._watchers.append((prefix, watcher))

    def refresh(self, keys: Sequence[Key]) -> Later[None]:
        """Read the znodes of these keys again; for brokers that are not the controller."""
        return self._read_again([path_of(key) for key in keys])

    @property
    def damaged(self) -> dict[str, str]:
        """The znodes that cannot be decoded, with the reason. Their topics must stay offline."""
        return dict(self._mirror.damaged)

    def problem(self, key: Key) -> str | None:
        """Return the error for a key whose znode cannot be decoded, or None."""
        return self._mirror.problem(path_of(key))

    @property
    def features(self) -> dict[str, int]:
        """The level of each finalized feature."""
        return {str(key[1]): level for key, (level, _) in self.load(("feature",)).items()}

    @property
    def features_epoch(self) -> int:
        """The version of the features' znode; -1 if it does not exist."""
        znode = self._mirror.znode(FEATURE)
        return ABSENT if znode is None else znode.version

    @property
    def controller_id(self) -> int:
        """The id of the present controller, or -1."""
        controller_id, version = self._mirror.get(("controller",))
        return -1 if version == ABSENT else int(controller_id)

    def _notifications(self, changed: Iterable[Key]) -> Iterator[Callable[[], None]]:
        """Yield the calls that notify each watcher of each change."""
        for key in changed:
            value, version = self._mirror.get(key)
            for prefix, watcher in self._watchers:
                if key[: len(prefix)] == prefix:
                    yield partial(watcher, key, value, version)

    def _read_again(self, paths: list[str]) -> Later[None]:
        return self._session.retry(partial(self._read, paths))

    async def _read(self, paths: list[str]) -> None:
        notify_all(self._notifications(await read_znodes(self._session, self._mirror, paths)))

    def read_cluster(self) -> Later[StoredCluster]:
        """Read topics, partitions, registered brokers and pending deletions once.

        The mirror contains them only while this broker is the controller.
        """
        return self._session.retry(
            lambda: read_stored_cluster(
                self._session, ZnodeMirror(self._report), self._mirror.damaged
            )
        )

    def read_topics(self, names: Collection[str]) -> Later[StoredCluster]:
        """Read the assignments of topics once, of those that exist; see `read_cluster`."""
        return self._session.retry(
            lambda: read_stored_topics(
                self._session, ZnodeMirror(self._report), self._mirror.damaged, names
            )
        )

    # -- writing ------------------------------------------------------------------------------

    def write(self, changes: Sequence[Change], term: int | None = None) -> Later[list[Outcome]]:
        """Write each change independently; waits while ZooKeeper is not reachable."""
        return self._writer.submit([(change,) for change in changes], term)

    def write_atomic(
        self, changes: Sequence[Change], term: int | None = None
    ) -> Later[list[Outcome]]:
        """Write all changes or none; waits while ZooKeeper is not reachable."""
        assert len(changes) <= self.max_atomic_changes
        return self._writer.submit([tuple(changes)] if changes else [], term)

    def report_log_dir_failure(self) -> Later[None]:
        """Report to the controller that a log directory of this broker has failed.

        The controller gets a key ("log_dir_failure", number) with the id of this broker.
        """
        # A repetition after a lost response creates two, which is harmless.
        return self._session.retry(self._report_log_dir_failure)

    async def _report_log_dir_failure(self) -> None:
        data = encode_log_dir_event(self._broker_id)
        path = f"{LOG_DIR_EVENTS}/{LOG_DIR_EVENT_PREFIX}"
        await self._session.multi([Create(path=path, data=data, sequential=True)])

    def _own_notification(self, path: str) -> None:
        for notifications in self._changes:
            if notifications.folder == parent_of(path):
                notifications.add_own(path)

    # -- the registration ---------------------------------------------------------------------

    def register_broker(self, registration: BrokerRegistration) -> Later[int]:
        """Register this broker, and return its broker epoch, the czxid of its znode."""
        return spawn(self._registration.register(registration))

    def unregistered(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the session of the registration has expired."""
        self._on_unregistered.append(callback)

    @property
    def lease_end_ms(self) -> float:
        """Until when the session of the registration cannot have expired; -1 without one."""
        if self._registration.session_id != self._session.session_id:
            return -1.0
        return self._session.lease_end_ms

    # -- the controller -----------------------------------------------------------------------

    def campaign(self) -> Later[int]:
        """Wait until this broker is the controller, load the cluster's state, return the epoch."""
        return spawn(self._campaign())

    async def _campaign(self) -> int:
        while True:
            epoch, changed = await self._election.win()
            connections = self._session.connections
            try:
                keys = await read_controller_state(self._session, self._mirror)
                await self._create_features()
            except LOST:
                continue
            # The watch is gone with the connection, and the epoch may be another one.
            if changed.done or connections != self._session.connections:
                continue
            if self._session.state is not SessionState.CONNECTED:
                continue
            self._election.epoch = epoch
            self._forget_after(changed)
            self._follow_as_controller()
            notify_all(self._notifications(keys))
            self._report("this broker is the controller, in epoch {epoch}", epoch=epoch)
            return epoch

    async def _create_features(self) -> None:
        # Kafka's brokers do not start without it (KafkaController.maybeSetupFeatureVersioning).
        if await self._create_recursively(FEATURE, encode_features({})):
            await read_znodes(self._session, self._mirror, [FEATURE])

    def _forget_after(self, changed: Later[None]) -> None:
        """Resign when /controller changes; the loss of the connection is handled elsewhere."""
        epoch = self._election.epoch

        def resign(_: object) -> None:
            if self._election.epoch == epoch:
                self._resign()

        changed.then(resign, resign)

    def resigned(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever this broker stops being the controller."""
        self._on_resigned.append(callback)

    def fence(self, term: int) -> Check | None:
        """Return the operation that fails once the term is over; None if it is over."""
        return self._election.fence(term)

    def fenced(self) -> None:
        """Resign, because another broker has become the controller."""
        self._resign()

    def _resign(self) -> None:
        if not self._election.resign():
            return
        self._writer.forget_topics()
        # Another controller changes these now, so they would soon be outdated.
        for tree in _CONTROLLER_TREES:
            self._mirror.retain(tree, ())
        self._mirror.remove(REASSIGN_PARTITIONS)
        notify_all(self._on_resigned)

    # -- the session --------------------------------------------------------------------------

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            if self._is_open:
                self._follow()
            return
        calls: list[Callable[[], object]] = [self._resign]
        if state is SessionState.EXPIRED:
            self._is_stale = True
            if self._registration.session_id:
                self._registration.session_id = 0
                calls += self._on_unregistered
        notify_all(calls)

    def _follow(self) -> None:
        """Follow what every broker watches, until the connection is lost."""
        start_until_lost(self._follow_changes())
        start_until_lost(self._follow_controller())

    async def _follow_changes(self) -> None:
        if self._is_stale:
            await self._load_shared()
        for notifications in self._changes:
            start_until_lost(notifications.follow())

    async def _follow_controller(self) -> None:
        connection = self._session.connections
        while True:
            changed: Later[None] = Later()
            watch = partial(changed.succeed, None)
            try:
                keys = self._mirror.put(CONTROLLER, *await self._session.get(CONTROLLER, watch))
            except NoNode:
                if await self._session.exists(CONTROLLER, watch) is not None:
                    continue  # Created in the meantime.
                keys = self._mirror.remove(CONTROLLER)
            notify_all(self._notifications(keys))
            await self._session.until_disconnected(changed, connection)

    def _follow_as_controller(self) -> None:
        for folder in (BROKER_IDS, DELETE_TOPICS, LOG_DIR_EVENTS):
            start_until_lost(self._follow_folder(folder))
        start_until_lost(self._follow_reassignment())

    async def _follow_folder(self, folder: str) -> None:
        """Keep the children of a znode current while this broker is the controller."""
        epoch, connection = self._election.epoch, self._session.connections
        while self._election.epoch == epoch:
            changed: Later[None] = Later()
            watch = partial(changed.succeed, None)
            keys = await read_folder(self._session, self._mirror, folder, watch)
            if self._election.epoch != epoch:
                self._mirror.retain(folder, ())
                return
            notify_all(self._notifications(keys))
            await self._session.until_disconnected(changed, connection)

    async def _follow_reassignment(self) -> None:
        """Report the znode with which old tools request a reassignment."""
        epoch, connection = self._election.epoch, self._session.connections
        while self._election.epoch == epoch:
            changed: Later[None] = Later()
            await self._session.exists(REASSIGN_PARTITIONS, partial(changed.succeed, None))
            keys = await read_znodes(self._session, self._mirror, [REASSIGN_PARTITIONS])
            if self._election.epoch != epoch:
                return
            notify_all(self._notifications(keys))
            await self._session.until_disconnected(changed, connection)
