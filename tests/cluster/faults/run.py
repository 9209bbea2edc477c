"""`FaultRun`: faults on a cluster under load, and the check of everything that its clients saw."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka.admin import AdminClient, NewTopic

from plogd.testing.running_broker import BrokerFailed
from tests.cluster.faults.fault_kinds import FAULTS
from tests.cluster.faults.history import History
from tests.cluster.faults.load import Load, fetch_commits, java_clients, read_all
from tests.cluster.faults.replica_logs import compare_replicas
from tests.cluster.faults.site import IDS, PARTITIONS, SESSION_TIMEOUT_MS, TOPIC, Site
from tests.helpers.eventually import eventually

_TIMEOUT_S: Final = 120.0
_LONGEST_FAULT_S: Final = 3 * SESSION_TIMEOUT_MS / 1000
_PROGRESS_RECORDS: Final = 20
"""So many records must be acknowledged after each fault."""


class FaultRun:
    """A cluster below `folder` with clients; ``with`` starts and ends both.

    Args:
        java: also run Kafka's VerifiableProducer and VerifiableConsumer.
        report: receives a line for each fault.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        java: bool = False,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._folder = folder
        self._seed = seed
        self._java = java
        self._report = report
        self._random = random.Random(seed)
        self._stack = ExitStack()
        self._clients = ExitStack()
        self._load: Load
        self.site = Site(folder)
        self.history = History()
        self.faults: Counter[str] = Counter()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.site)
            self._create_topic()
            self._load = Load(
                self.site.bootstrap_servers, TOPIC, PARTITIONS, self.history, self._seed
            )
            if self._java:
                self._clients.enter_context(
                    java_clients(self.site.bootstrap_servers, TOPIC, self._folder, self.history)
                )
            self._load.start()
            stack.callback(self._load.give_up)
            self._await_progress()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            # Has no effect after `finish`.
            self._clients.__exit__(kind, error, traceback)
        finally:
            self._stack.close()

    def _create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.site.bootstrap_servers})
        [created] = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).values()
        created.result(_TIMEOUT_S)
        self.site.wait_until_in_sync()

    # -- faults -------------------------------------------------------------------------------

    def cause(self, name: str) -> None:
        """Cause a fault, end it after a random time, and wait until the cluster is healthy."""
        self._report(name)
        self.faults[name] += 1
        end = FAULTS[name](self.site, self._random)
        threading.Event().wait(self._random.uniform(0, _LONGEST_FAULT_S))
        end()
        self.site.wait_until_in_sync()
        self._await_progress()

    def cause_any(self, names: Iterable[str] = FAULTS) -> None:
        """Cause a random one of these faults."""
        self.cause(self._random.choice(sorted(names)))

    def _await_progress(self) -> None:
        target = self.history.acknowledged_count + _PROGRESS_RECORDS
        eventually(
            lambda: self.history.acknowledged_count >= target,
            "new acknowledged records",
            _TIMEOUT_S,
        )

    # -- check --------------------------------------------------------------------------------

    def finish(self) -> list[str]:
        """End the clients and the brokers; return all anomalies."""
        self._load.stop()
        self._clients.close()
        servers = self.site.bootstrap_servers
        self.site.wait_until_in_sync()
        fetch_commits(servers, TOPIC, PARTITIONS, self.history)
        problems = self.history.check(read_all(servers, TOPIC, PARTITIONS))
        for one in IDS:
            broker = self.site.brokers[one]
            try:
                broker.stop()
                broker.check()
            except BrokerFailed as error:
                problems.append(f"broker {one}: {error}")
        data_dirs = {one: self.site.brokers[one].data_dir for one in IDS}
        return problems + compare_replicas(data_dirs, TOPIC, PARTITIONS)
