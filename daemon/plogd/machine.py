"""The ports of plogd/ports.py, implemented with the real machine.

service.py creates one `Machine` at startup. Brokers in tests use another implementation
(plogd/testing/controlled_machine.py), so that the broker itself does not contain any code for
tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plog.zookeeper_settings import tls_properties
from plogd.apis.dispatch import Dispatcher
from plogd.broker import Broker
from plogd.child_process import ChildProcesses
from plogd.config import BrokerConfig, ConfigError
from plogd.net.request_queue import Dispatch
from plogd.net.thread_jobs import ThreadJobs
from plogd.os_files import OsFiles
from plogd.ports import Clock, Jobs, Later, Ports, Report, Turn
from plogd.system_clock import ReactorTimers, SystemClock
from plogd.system_random import SystemRandom

if TYPE_CHECKING:
    from plogd.cluster_broker import ClusterBroker
    from plogd.metadata.zookeeper.port import ZooKeeperConnection
    from plogd.peers import Peers


class Machine:
    """Clock, timers, files and randomness for one broker; `reactor` is Any as in service.py."""

    def __init__(self, reactor: Any, files: OsFiles | None = None) -> None:
        self.reactor = reactor
        self.clock: Clock = SystemClock()
        self.timers = ReactorTimers(reactor)
        # One for the connections, the jobs and the logs, so that all appends of a turn share a sync
        # round.
        self.turn = Turn(self.timers)
        self.files = files or OsFiles()
        self.random = SystemRandom()

    def make_jobs(self) -> ThreadJobs:
        """Return the threads for the jobs of a new broker."""
        return ThreadJobs(self.reactor, self.turn)

    def make_ports(self, jobs: Jobs, report: Report) -> Ports:
        """Return the ports of a new broker."""
        return Ports(
            clock=self.clock,
            timers=self.timers,
            files=self.files,
            random=self.random,
            jobs=jobs,
            work=ChildProcesses(),
            turn=self.turn,
            report=report,
        )

    def make_zookeeper(self, config: BrokerConfig) -> ZooKeeperConnection:
        """Return a client for ``zookeeper.connect``, which has not connected yet.

        Raises ConfigError.
        """
        # Only here, because a broker with the embedded store needs neither of them.
        try:
            from plog.zookeeper.kazoo_client import KazooZooKeeper
            from plog.zookeeper.tls_settings import security_of
        except ImportError as error:
            raise ConfigError(
                [
                    f"plog.metadata.store=zookeeper requires the Python package kazoo ({error}):"
                    " run apt install python3-kazoo, or pip install kazoo"
                ]
            ) from error
        is_tls = config.zookeeper_ssl_client_enable
        return KazooZooKeeper(
            (config.zookeeper_connect or "").replace(" ", ""),
            reactor=self.reactor,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            pending=Later,
            security=security_of(tls_properties(config)) if is_tls else None,
        )

    def make_peers(self, broker: ClusterBroker) -> Peers:
        """Return the connections of a broker to the other brokers of its cluster."""
        # Only here, because a broker with the embedded store does not need it.
        from plogd.net.peer_connections import peers_on

        return peers_on(self.reactor, broker, broker.address_of)

    def dispatch_of(self, broker: Broker) -> Dispatch:
        """Return the `Dispatcher` to which the broker's connections pass their requests."""
        return Dispatcher(broker)
