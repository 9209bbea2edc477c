"""A `ZooKeeperStore` for a command, which waits for each outcome."""

from __future__ import annotations

from typing import Any

from twisted.internet.epollreactor import EPollReactor

from plog.error_base import PlogError
from plogd.config import BrokerConfig
from plogd.machine import Machine
from plogd.metadata.zookeeper.store import ZooKeeperStore
from plogd.ports import Later, silence


class StoreConnection:
    """A store on a private reactor, which runs only while `settle` waits."""

    def __init__(self, config: BrokerConfig, node_id: int) -> None:
        self._reactor: Any = EPollReactor()
        machine = Machine(self._reactor)
        jobs = machine.make_jobs()
        self._client = machine.make_zookeeper(config)
        self.store = ZooKeeperStore(
            self._client, broker_id=node_id, ports=machine.make_ports(jobs, silence)
        )
        self._jobs = jobs
        self._client.start()
        timeout_ms = config.zookeeper_connection_timeout_ms or config.zookeeper_session_timeout_ms
        try:
            self.settle(self.store.open(connection_timeout_ms=timeout_ms))
        except PlogError:
            self.close()
            raise

    def settle(self, later: Later[Any]) -> Any:
        """Run the reactor until `later` has an outcome, and return it."""
        found: list[Any] = []
        errors: list[Exception] = []
        later.then(found.append, errors.append)
        while not found and not errors:
            self._reactor.iterate(0.1)
        if errors:
            raise errors[0]
        return found[0]

    def close(self) -> None:
        """End the session, and the threads."""
        self.store.close()
        self.settle(self._client.close())
        self._jobs.close()
