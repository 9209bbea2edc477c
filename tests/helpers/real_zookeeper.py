"""A `ZooKeeperStore` on a real ZooKeeper, with kazoo and a private reactor.

The interface is that of the sites in metadata_sites.py, so the same tests run on it. The reactor
runs only while the site waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient

from plog.client.network.tls_context import Security
from plog.zookeeper.kazoo_client import KazooZooKeeper
from plogd.metadata.zookeeper.store import ZooKeeperStore
from plogd.ports import Later, Ports, Turn
from plogd.system_clock import ReactorTimers, SystemClock
from tests.helpers.net_parts import Pump
from tests.helpers.sim.sim_ports import SimPorts, T, outcome

# The server of zookeeper_server.py grants no less than two ticks, which is one second.
SESSION_TIMEOUT_MS = 2000


class RealZooKeeperSite:
    """A broker's connection to the ensemble at `hosts`, which ends with a chroot."""

    def __init__(
        self,
        hosts: str,
        broker_id: int = 1,
        *,
        security: Security | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        self.hosts = hosts
        self.broker_id = broker_id
        self.pump = Pump()
        self.reports: list[str] = []
        self._security = security
        self._session_timeout_ms = session_timeout_ms
        timers: Any = ReactorTimers(self.pump.reactor)
        simulated = SimPorts().bundle()
        self.ports = Ports(
            clock=SystemClock(),
            timers=timers,
            files=simulated.files,
            random=simulated.random,
            jobs=simulated.jobs,
            work=simulated.work,
            turn=Turn(timers),
            report=self._report,
        )
        self.client, self.store = self._start()

    def _report(self, message: str, **fields: object) -> None:
        self.reports.append(message.format(**fields))

    def _start(self) -> tuple[KazooZooKeeper, ZooKeeperStore]:
        client = KazooZooKeeper(
            self.hosts,
            reactor=self.pump.reactor,
            session_timeout_ms=self._session_timeout_ms,
            pending=Later,
            security=self._security,
        )
        store = ZooKeeperStore(client, broker_id=self.broker_id, ports=self.ports)
        client.start()
        self.settle(store.open())
        return client, store

    def restart(self) -> None:
        """End the session, and start again."""
        self.close()
        self.client, self.store = self._start()

    def close(self) -> None:
        """End the session and kazoo's threads."""
        self.store.close()
        self.settle(self.client.close())

    def settle(self, later: Later[T]) -> T:
        """Run the reactor until `later` has an outcome, and return it."""
        self.pump.until(lambda: later.done)
        return outcome(later)

    def until(self, condition: Callable[[], object]) -> None:
        """Run the reactor until `condition` holds."""
        self.pump.until(condition)

    def expire_session(self) -> None:
        """End the session as the servers do when its timeout is over."""
        # Another client that takes over the session can close it.
        other = KazooClient(hosts=self.hosts, client_id=self.client._client.client_id)
        other.start()
        other.stop()
        other.close()
