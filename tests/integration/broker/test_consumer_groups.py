"""Subscribed consumers of confluent-kafka and kafka-python: rebalances, restarts, static members.

Each test polls every member until its condition holds; a member that is not polled does not take
part in rebalances.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import (
    TIMEOUT_S,
    admin_client,
    confluent_kafka,
    consumer,
    create_topic,
    produce,
)

PARTITIONS = 4


def filled(bootstrap_servers: str, topic: str, count: int = 40) -> set[bytes]:
    """Create the topic, produce `count` messages to it and return their values."""
    create_topic(bootstrap_servers, topic, PARTITIONS)
    add(bootstrap_servers, topic, range(count))
    return {b"%d" % i for i in range(count)}


def add(bootstrap_servers: str, topic: str, numbers: Iterable[int]) -> None:
    sent = ({"value": b"%d" % i, "partition": i % PARTITIONS} for i in numbers)
    assert set(produce(bootstrap_servers, topic, sent)) == {None}


class Member:
    """A subscribed confluent-kafka consumer and the values that it has received."""

    def __init__(self, client: Any, topic: str) -> None:
        self.client = client
        self.values: list[bytes] = []
        client.subscribe([topic])

    def poll(self) -> None:
        message = self.client.poll(0.05)
        if message is not None and message.error() is None:
            self.values.append(message.value())

    @property
    def partitions(self) -> set[int]:
        return {one.partition for one in self.client.assignment()}


@contextmanager
def members(
    bootstrap_servers: str, topic: str, count: int, **config: Any
) -> Iterator[list[Member]]:
    with ExitStack() as stack:
        settings = {
            "group_id": f"{topic}-group",
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 300,
            **config,
        }
        clients = [
            stack.enter_context(consumer(bootstrap_servers, **settings)) for _ in range(count)
        ]
        yield [Member(client, topic) for client in clients]


def poll_until(some: list[Member], reached: Callable[[], bool]) -> None:
    """Poll all members until `reached` returns True; fail after a minute."""
    deadline = time.monotonic() + TIMEOUT_S
    while not reached():
        assert time.monotonic() < deadline, [(one.partitions, one.values) for one in some]
        for one in some:
            one.poll()


def is_divided(some: list[Member]) -> bool:
    """Whether every partition has one owner and every member has partitions."""
    owned = sorted(partition for one in some for partition in one.partitions)
    return owned == list(range(PARTITIONS)) and all(one.partitions for one in some)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_members_divide_a_topic(broker: BrokerProcess, topic: str, strategy: str) -> None:
    expected = filled(broker.bootstrap_servers, topic)
    config = {"partition_assignment_strategy": strategy}
    with members(broker.bootstrap_servers, topic, 2, **config) as both:
        poll_until(both, lambda: is_divided(both))
        poll_until(both, lambda: {x for one in both for x in one.values} == expected)


def test_remaining_member_takes_over_when_the_other_leaves(
    broker: BrokerProcess, topic: str
) -> None:
    expected = filled(broker.bootstrap_servers, topic)
    with members(broker.bootstrap_servers, topic, 2, enable_auto_commit=True) as both:
        first, second = both
        poll_until(both, lambda: is_divided(both))
        poll_until(both, lambda: set(first.values) | set(second.values) == expected)
        second.client.close()
        poll_until([first], lambda: first.partitions == set(range(PARTITIONS)))
        add(broker.bootstrap_servers, topic, range(100, 110))
        poll_until([first], lambda: {b"%d" % i for i in range(100, 110)} <= set(first.values))
        # No message was read twice: both members had committed.
        assert len(first.values) + len(second.values) == len(expected) + 10


def test_member_joins_a_group_that_is_consuming(broker: BrokerProcess, topic: str) -> None:
    filled(broker.bootstrap_servers, topic)
    with members(broker.bootstrap_servers, topic, 1) as [first]:
        poll_until([first], lambda: len(first.partitions) == PARTITIONS)
        with members(broker.bootstrap_servers, topic, 1) as [second]:
            poll_until([first, second], lambda: is_divided([first, second]))
        poll_until([first], lambda: len(first.partitions) == PARTITIONS)


def test_members_continue_when_the_broker_restarts(own_broker: BrokerProcess, topic: str) -> None:
    expected = filled(own_broker.bootstrap_servers, topic)
    with members(own_broker.bootstrap_servers, topic, 2) as both:
        poll_until(both, lambda: is_divided(both))
        poll_until(both, lambda: {x for one in both for x in one.values} == expected)
        for one in both:
            one.client.commit(asynchronous=False)
        before = [one.client.memberid() for one in both]
        own_broker.kill()
        own_broker.restart()
        add(own_broker.bootstrap_servers, topic, range(100, 110))
        new = {b"%d" % i for i in range(100, 110)}
        poll_until(both, lambda: new <= {x for one in both for x in one.values})
        assert [one.client.memberid() for one in both] == before
        assert is_divided(both)


def test_static_member_restarts_without_affecting_others(broker: BrokerProcess, topic: str) -> None:
    filled(broker.bootstrap_servers, topic)
    servers = broker.bootstrap_servers
    with members(servers, topic, 1, group_instance_id="a") as [first]:
        with members(servers, topic, 1, group_instance_id="b") as [second]:
            poll_until([first, second], lambda: is_divided([first, second]))
            before = second.partitions
        kept = first.partitions
        for _ in range(20):
            first.poll()
        assert first.partitions == kept
        with members(servers, topic, 1, group_instance_id="b") as [second]:
            poll_until([first, second], lambda: bool(second.partitions))
            assert (first.partitions, second.partitions) == (kept, before)


def test_groups_are_described_listed_and_deleted(broker: BrokerProcess, topic: str) -> None:
    filled(broker.bootstrap_servers, topic)
    group = f"{topic}-group"
    client = admin_client(broker.bootstrap_servers)
    with members(broker.bootstrap_servers, topic, 2, client_id="me") as both:
        poll_until(both, lambda: is_divided(both))
        described = client.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        assert described.state == confluent_kafka.ConsumerGroupState.STABLE
        assert described.partition_assignor == "range"
        assert {one.client_id for one in described.members} == {"me"}
        assigned = [
            {place.partition for place in one.assignment.topic_partitions}
            for one in described.members
        ]
        assert sorted(map(sorted, assigned)) == sorted(sorted(one.partitions) for one in both)
        with pytest.raises(confluent_kafka.KafkaException):
            client.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    listed = client.list_consumer_groups().result(TIMEOUT_S)
    assert group in {one.group_id for one in listed.valid}
    client.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    listed = client.list_consumer_groups().result(TIMEOUT_S)
    assert group not in {one.group_id for one in listed.valid}


def test_kafka_python_members_divide_a_topic(broker: BrokerProcess, topic: str) -> None:
    """Polls in threads: short polls that end during a rebalance confuse kafka-python 3.0."""
    expected = filled(broker.bootstrap_servers, topic)
    both = [KafkaPythonMember(broker.bootstrap_servers, topic) for _ in range(2)]
    done = threading.Event()
    threads = [threading.Thread(target=one.run, args=(done,)) for one in both]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while (
            not all(one.partitions for one in both) or expected != both[0].values | both[1].values
        ):
            assert time.monotonic() < deadline, [(one.partitions, one.values) for one in both]
            both[0].has_polled.wait(1)
            both[0].has_polled.clear()
        assert sorted(x for one in both for x in one.partitions) == list(range(PARTITIONS))
    finally:
        done.set()
        for thread in threads:
            thread.join(TIMEOUT_S)


class KafkaPythonMember:
    """A subscribed kafka-python consumer and the values that it has received."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        kafka = pytest.importorskip("kafka")
        self.values: set[bytes] = set()
        self.partitions: set[int] = set()
        self.has_polled = threading.Event()
        self._client = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap_servers,
            group_id=f"{topic}-group",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=300,
        )

    def run(self, done: threading.Event) -> None:
        while not done.is_set():
            for messages in self._client.poll(timeout_ms=2000).values():
                self.values |= {message.value for message in messages}
            self.partitions = {place.partition for place in self._client.assignment()}
            self.has_polled.set()
        self._client.close()
