"""A group member as a program: `python -m tests.helpers.group.mixed_member CLIENT SERVERS …`.

Arguments: CLIENT SERVERS GROUP TOPIC STRATEGY FILE. After each change of its partitions it appends
a line to FILE: their numbers, as JSON. It leaves the group when its standard input ends.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Collection
from typing import Any

from tests.helpers.client.client_under_test import FETCH_WAIT_MS, HEARTBEAT_MS, SESSION_TIMEOUT_MS

_ended = threading.Event()


def main() -> None:
    client, servers, group, topic, strategy, path = sys.argv[1:]
    threading.Thread(target=_wait_for_end, daemon=True).start()
    with open(path, "a", buffering=1) as file:
        last: list[int] | None = None

        def report(partitions: Collection[int]) -> None:
            nonlocal last
            if sorted(partitions) != last:
                last = sorted(partitions)
                file.write(json.dumps(last) + "\n")

        _CLIENTS[client](servers, group, topic, strategy, report)


def _wait_for_end() -> None:
    sys.stdin.read()
    _ended.set()


Report = Callable[[Collection[int]], None]


def _plog(servers: str, group: str, topic: str, strategy: str, report: Report) -> None:
    from plog.client.group.member import GroupMember
    from plog.client.network.cluster import Cluster
    from plog.client.network.private_reactor import PrivateReactor
    from plog.client.network.twisted_network import TwistedNetwork
    from plog.client.settings import ConsumerSettings
    from tests.helpers.group.group_world import SimplePositions

    private = PrivateReactor.current()
    network = TwistedNetwork(private.reactor)
    settings = ConsumerSettings.from_options(
        bootstrap_servers=servers,
        group_id=group,
        partition_assignment_strategy=strategy,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        metadata_max_age_ms=1000,
        enable_auto_commit=False,
    )

    async def call_user(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    async def run() -> None:
        cluster = Cluster(network, settings)
        positions = SimplePositions()
        member = GroupMember(cluster, network, settings, positions, call_user=call_user)
        member.subscribe([topic])
        while not _ended.is_set():
            member.polled()
            await member.attend()
            report([one.partition for one in positions.assigned])
            await network.sleep(0.02)
        await member.close(10.0)
        await cluster.close()

    private.run(run)


def _confluent(servers: str, group: str, topic: str, strategy: str, report: Report) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "topic.metadata.refresh.interval.ms": 1000,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    while not _ended.is_set():
        consumer.poll(0.05)
        report([one.partition for one in consumer.assignment()])
    consumer.close()


def _kafka_python(servers: str, group: str, topic: str, strategy: str, report: Report) -> None:
    import kafka
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    assignors = (
        CooperativeStickyAssignor,
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
    )
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        partition_assignment_strategy=[one for one in assignors if one.name == strategy],
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        fetch_max_wait_ms=FETCH_WAIT_MS,
        enable_auto_commit=False,
    )
    consumer.partitions_for_topic(topic)
    consumer.subscribe([topic])
    while not _ended.is_set():
        consumer.poll(timeout_ms=FETCH_WAIT_MS)
        report([one.partition for one in consumer.assignment()])
    consumer.close()


_CLIENTS = {"plog": _plog, "confluent": _confluent, "kafka-python": _kafka_python}

if __name__ == "__main__":
    main()
