"""Several brokers in threads of a test, which form a cluster on a ZooKeeper in the same process.

    with RunningCluster(directory) as cluster:
        topic = cluster.create_topic("orders")
        cluster.brokers[cluster.leader(topic)].kill()

The brokers are the real ones, and replicate over TCP on loopback. Each has the hooks and the other
methods of `RunningBroker`. Only ZooKeeper is a double, without a JVM (zookeeper_thread.py). Only
one thread may use the methods of a cluster; clients may connect from any thread.
"""

from __future__ import annotations

import concurrent.futures
import math
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

from plogd.testing.member_thread import MemberThread
from plogd.testing.running_broker import ASK_TIMEOUT_S, BrokerFailed, RunningBroker, unique_name
from plogd.testing.zookeeper_thread import ZooKeeperThread

SESSION_TIMEOUT_MS: Final = 3000
"""Default of zookeeper.session.timeout.ms: after a kill, other brokers take over in this time."""
_REPLICA_LAG_MS: Final = 30_000
"""Kafka's default of replica.lag.time.max.ms."""
_STEPS_PER_TIMEOUT: Final = 4
"""An advance of the time has so many steps in the shortest timeout between brokers."""
_SETTLE_TIMEOUT_S: Final = 0.02
"""How long each step waits for the brokers to exchange messages. A fetch that arrives at its leader
after the step waits for the next one."""
_REPLICAS_MAX: Final = 3
_WAIT_TIMEOUT_S: Final = 60.0
_PAUSE_S: Final = 0.005

T = TypeVar("T")

Node: TypeAlias = int | Literal["zookeeper"]
"""One end of a connection: the id of a broker, or ZooKeeper."""


class RunningCluster:
    """Brokers 1 to `count` below `directory`; ``with`` starts and ends them.

    `settings` apply to all brokers. By default, topics have three replicas, or one on each broker
    if there are fewer.
    """

    def __init__(
        self, directory: Path, count: int = 3, settings: Mapping[str, str] | None = None
    ) -> None:
        if count < 1:
            raise ValueError(f"cannot start a cluster of {count} brokers; use 1 or more")
        self._replicas = min(_REPLICAS_MAX, count)
        self._settings = {
            "default.replication.factor": str(self._replicas),
            "offsets.topic.replication.factor": str(self._replicas),
            # Each partition has a log on several brokers.
            "offsets.topic.num.partitions": "5",
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            **(settings or {}),
            "plog.metadata.store": "zookeeper",
            # Only valid, because no broker connects to it.
            "zookeeper.connect": "localhost:2181/plog-testing",
        }
        self._zookeeper = ZooKeeperThread()
        self._members = {
            broker_id: MemberThread(
                directory / f"broker-{broker_id}",
                {**self._settings, "node.id": str(broker_id)},
                self._zookeeper,
            )
            for broker_id in range(1, count + 1)
        }
        self.brokers: Mapping[int, RunningBroker] = dict(self._members)
        """The brokers by id, including those that were stopped or killed."""

    # -- start and end ------------------------------------------------------------------------

    def start(self) -> None:
        """Start all brokers, and wait until each one knows the others.

        Raises BrokerFailed if a broker does not start.
        """
        self._zookeeper.start()
        try:
            self._start_brokers()
        except BaseException:
            self._end()
            raise

    def _start_brokers(self) -> None:
        for member in self._members.values():
            member.start()
        everyone = sorted(self._members)
        for member in self._members.values():
            _until(partial(_knows, member, everyone), "metadata with all brokers")

    def close(self) -> None:
        """Kill the brokers that run, and check the logs of all.

        They are killed because a clean stop would first hand over partitions that no test needs.
        Raises BrokerFailed if a broker has exited by itself, or has logged a bug.
        """
        exited = [one for one, member in self._members.items() if member.has_exited]
        self._end()
        self.check()
        if exited:
            raise BrokerFailed(
                f"broker {exited[0]} exited\n{self.brokers[exited[0]].log_text()[-4000:]}"
            )

    def _end(self) -> None:
        for member in self._members.values():
            if member.is_running:
                member.kill()
        self._zookeeper.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def check(self) -> None:
        """Raise BrokerFailed if a broker has logged a critical event since the last check."""
        for member in self._members.values():
            member.check()

    # -- what clients see ---------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """Return ``HOST:PORT,...`` of the brokers that run."""
        return ",".join(member.bootstrap_servers for member in self._running())

    @property
    def controller(self) -> int:
        """Return the id of the controller; wait until there is one. Raises TimeoutError."""

        def find() -> int | None:
            for one, member in self._members.items():
                if member.is_running and member.begin("is_controller").result(ASK_TIMEOUT_S):
                    return one
            return None

        return _until(find, "controller")

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of the partition's leader; wait until a broker that runs leads.

        Raises TimeoutError.
        """

        def find() -> int | None:
            leader: int = self._partition(topic, partition)["leader"]
            found = self._members.get(leader)
            return leader if found is not None and found.is_running else None

        return _until(find, f"leader of {topic}-{partition}")

    def isr(self, topic: str, partition: int = 0) -> set[int]:
        """Return the ids of the partition's in-sync replicas."""
        return set(self._partition(topic, partition)["isr"])

    def wait_until_in_sync(self, topic: str) -> None:
        """Wait until the ISR of each partition contains all replicas on brokers that run.

        Replicas on other brokers must have left it. Raises TimeoutError.
        """

        def is_in_sync() -> bool:
            running = {one for one, member in self._members.items() if member.is_running}
            return all(
                set(state["isr"]) == set(state["replicas"]) & running
                for state in self._described(topic)
            )

        _until(is_in_sync, f"complete ISR of {topic}")

    # -- topics -------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> str:
        """Create a topic, and wait until all brokers show it; return its name.

        `replication_factor` is 3 by default, or the number of brokers if there are fewer. Raises
        the KafkaError that a client would get.
        """
        factor = self._replicas if replication_factor is None else replication_factor
        texts = {key: str(value) for key, value in (config or {}).items()}
        self._members[self.controller].begin(
            "create_topic",
            name=name,
            partitions=partitions,
            config=texts,
            replication_factor=factor,
        ).result(ASK_TIMEOUT_S)
        for member in self._running():
            _until(partial(_has_leaders, member, name), f"leaders of {name}")
        return name

    def fresh_topic(
        self,
        prefix: str = "topic",
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> str:
        """Create a topic with a unique name that starts with `prefix`, and return the name."""
        return self.create_topic(
            unique_name(prefix), partitions, config, replication_factor=replication_factor
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises UnknownTopicOrPartition."""
        self._members[self.controller].begin("delete_topic", name=name).result(ASK_TIMEOUT_S)

    # -- faults -------------------------------------------------------------------------------

    def cut(self, one: Node, other: Node) -> None:
        """Cut the connection between two brokers, or between a broker and ``"zookeeper"``.

        No request or response passes in either direction, and nothing is reported to the brokers,
        as in a network that drops all packets. Clients can still connect to both brokers.
        """
        for member, end in self._ends(one, other):
            member.cut_zookeeper() if end == "zookeeper" else member.cut_peer(end)

    def heal(self, one: Node, other: Node) -> None:
        """Restore a connection that `cut` has cut; requests that were held back arrive."""
        for member, end in self._ends(one, other):
            member.heal_zookeeper() if end == "zookeeper" else member.heal_peer(end)

    def _ends(self, one: Node, other: Node) -> list[tuple[MemberThread, Node]]:
        """Return each broker of the connection with its other end. Raises ValueError."""
        for end in (one, other):
            if end != "zookeeper" and end not in self._members:
                raise ValueError(
                    f"unknown end of a connection {end!r}; use a broker id or zookeeper"
                )
        if one == other:
            raise ValueError(f"cannot cut {one!r} from itself; use two different ends")
        pairs = [(one, other), (other, one)]
        return [(self._members[end], far) for end, far in pairs if end != "zookeeper"]

    # -- time ---------------------------------------------------------------------------------

    def advance_time(self, seconds: float) -> None:
        """Let `seconds` pass for all brokers and ZooKeeper, and wait until it has happened.

        The brokers exchange messages all the time, so their time advances in steps that are shorter
        than their timeouts. Clients keep using real time.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"cannot advance time by {seconds} s; use a finite number, 0 or more")
        left_s = seconds
        while left_s > 0:
            step_s = min(left_s, self._step_s)
            self._advance(step_s)
            left_s -= step_s

    @property
    def _step_s(self) -> float:
        session_ms = float(self._settings["zookeeper.session.timeout.ms"])
        lag_ms = float(self._settings.get("replica.lag.time.max.ms", _REPLICA_LAG_MS))
        return min(session_ms, lag_ms) / 1000 / _STEPS_PER_TIMEOUT

    def _advance(self, step_s: float) -> None:
        running = self._running()
        # Fetches that wait at a leader for records end in this step; the next ones show the leader
        # that its followers are alive.
        sent = [member.begin("peers_in_flight") for member in running]
        moves = [member.begin("advance_time", seconds=step_s) for member in running]
        for move in (self._zookeeper.advance(step_s), *moves):
            move.result(ASK_TIMEOUT_S)
        # Also for brokers that do not run, which must not return in the past.
        for member in self._members.values():
            member.moved(step_s)
        concurrent.futures.wait(sent, _SETTLE_TIMEOUT_S)
        # Between two turns, each broker reads its sockets: the next fetches have arrived when the
        # next step begins, and end in it.
        for _ in range(2):
            concurrent.futures.wait([member.begin("pass_turn") for member in running])

    # -- internals ----------------------------------------------------------------------------

    def _running(self) -> list[MemberThread]:
        return [member for member in self._members.values() if member.is_running]

    def _described(self, topic: str) -> list[dict[str, Any]]:
        """Return the partitions of a topic as the controller knows them. Raises ValueError."""
        described = _described(self._members[self.controller], topic)
        if described is None:
            raise ValueError(f"unknown topic {topic!r}; create it first")
        return described

    def _partition(self, topic: str, partition: int) -> dict[str, Any]:
        for state in self._described(topic):
            if state["partition"] == partition:
                return state
        raise ValueError(f"topic {topic!r} has no partition {partition}")


def _until(ask: Callable[[], T | None], what: str) -> T:
    """Return the first true result of `ask`. Raises TimeoutError."""
    deadline_s = time.monotonic() + _WAIT_TIMEOUT_S
    pause = threading.Event()
    while not (answer := ask()):
        if time.monotonic() >= deadline_s:
            raise TimeoutError(f"no {what} within {_WAIT_TIMEOUT_S:g} s")
        pause.wait(_PAUSE_S)
    return answer


def _knows(member: MemberThread, everyone: list[int]) -> bool:
    found: list[int] = member.begin("live_brokers").result(ASK_TIMEOUT_S)
    return found == everyone


def _has_leaders(member: MemberThread, topic: str) -> bool:
    described = _described(member, topic)
    return described is not None and all(state["leader"] >= 0 for state in described)


def _described(member: MemberThread, topic: str) -> list[dict[str, Any]] | None:
    described: list[dict[str, Any]] | None = member.begin("describe_topic", name=topic).result(
        ASK_TIMEOUT_S
    )
    return described
