"""Groups, offsets and admin requests of aiokafka, the asyncio client, which sends old versions.

It uses JoinGroup 0-2 and 5, OffsetCommit 3, OffsetFetch 3 and AlterConfigs 1. Its admin client
cannot delete groups or alter offsets. One event loop, in a thread, runs everything.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, TypeVar

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.admin_scenarios import (
    ConfigScenarios,
    ListGroupScenarios,
    RecordScenarios,
    TopicScenarios,
)
from tests.helpers.client.client_under_test import (
    FETCH_WAIT_MS,
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    TIMEOUT_S,
    GroupFacts,
    Place,
    Read,
    Refused,
)
from tests.helpers.group.group_scenarios import GroupScenarios

aiokafka = pytest.importorskip("aiokafka")
aiokafka_admin = pytest.importorskip("aiokafka.admin")
aiokafka_errors = pytest.importorskip("aiokafka.errors")

TopicPartition = aiokafka.TopicPartition
T = TypeVar("T")


class Loop:
    """An event loop that runs in its own thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and return its result; raise Refused for a broker's error."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)
        except aiokafka_errors.BrokerResponseError as error:
            raise Refused(type(error).__name__) from error

    def close(self) -> None:
        """Stop the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


class AiokafkaMember:
    """An AIOKafkaConsumer and the task that reads from it."""

    def __init__(self, loop: Loop, bootstrap_servers: str, group: str, topic: str) -> None:
        self.reads: list[Read] = []
        self._loop, self._topic = loop, topic
        self._left = False
        loop.run(self._start(bootstrap_servers, group))

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions assigned now."""
        return frozenset(each.partition for each in self._consumer.assignment())

    def commit(self, places: Mapping[int, Place]) -> None:
        """Commit `places` and wait for the response."""
        offsets = {
            TopicPartition(self._topic, partition): (place.offset, place.metadata)
            for partition, place in places.items()
        }
        self._loop.run(self._consumer.commit(offsets))

    def seek(self, partition: int, offset: int) -> None:
        """Continue reading at `offset`."""

        async def seek() -> None:
            self._consumer.seek(TopicPartition(self._topic, partition), offset)

        self._loop.run(seek())

    def leave(self) -> None:
        """Leave the group."""
        if not self._left:
            self._left = True
            self._loop.run(self._stop())

    async def _start(self, bootstrap_servers: str, group: str) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=bootstrap_servers,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )
        await self._consumer.start()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._consumer:
            self.reads.append(Read(message.partition, message.offset, message.value.decode()))

    async def _stop(self) -> None:
        self._reading.cancel()
        await self._consumer.stop()


class AiokafkaClient:
    """Producer, admin client, and the members it has started."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._loop = Loop()
        self._members: list[AiokafkaMember] = []
        self._loop.run(self._start())

    async def _start(self) -> None:
        servers = self._bootstrap_servers
        self._admin = aiokafka_admin.AIOKafkaAdminClient(bootstrap_servers=servers)
        self._producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers)
        self._offset_reader = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers)
        for each in self._admin, self._producer, self._offset_reader:
            await each.start()

    def close(self) -> None:
        """Close all clients and the loop."""
        for member in self._members:
            member.leave()
        for stop in self._offset_reader.stop, self._producer.stop, self._admin.close:
            self._loop.run(stop())
        self._loop.close()

    def join(self, group: str, topic: str) -> AiokafkaMember:
        """Return a new member of `group`."""
        self._members.append(AiokafkaMember(self._loop, self._bootstrap_servers, group, topic))
        return self._members[-1]

    def produce(self, topic: str, values: Mapping[int, list[str]]) -> None:
        """Send `values` and wait for all acknowledgements."""

        async def send() -> None:
            sent = [
                await self._producer.send(topic, value.encode(), partition=partition)
                for partition, each in values.items()
                for value in each
            ]
            await asyncio.gather(*sent)

        self._loop.run(send())

    def committed(self, group: str, topic: str) -> dict[int, Place]:
        """OffsetFetch for all of the group's offsets."""
        offsets = self._loop.run(self._admin.list_consumer_group_offsets(group))
        return {at.partition: Place(x.offset, x.metadata) for at, x in offsets.items()}

    def create_topic(
        self, topic: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> None:
        """CreateTopics."""
        new = aiokafka_admin.NewTopic(topic, partitions, 1, topic_configs=dict(settings or {}))
        _check(self._loop.run(self._admin.create_topics([new])).topic_errors)

    def delete_topic(self, topic: str) -> None:
        """DeleteTopics."""
        _check(self._loop.run(self._admin.delete_topics([topic])).topic_error_codes)

    def topics(self) -> set[str]:
        """Metadata for all topics."""
        return set(self._loop.run(self._admin.list_topics()))

    def partition_count(self, topic: str) -> int:
        """Metadata for one topic."""
        [described] = self._loop.run(self._admin.describe_topics([topic]))
        return len(described["partitions"])

    def add_partitions(self, topic: str, total: int) -> None:
        """CreatePartitions."""
        more = {topic: aiokafka_admin.NewPartitions(total)}
        self._loop.run(self._admin.create_partitions(more))

    def settings(self, topic: str) -> dict[str, str]:
        """DescribeConfigs."""
        kind = aiokafka_admin.config_resource.ConfigResourceType.TOPIC
        resource = aiokafka_admin.config_resource.ConfigResource(kind, topic)
        [response] = self._loop.run(self._admin.describe_configs([resource]))
        [(error, _, _, _, entries)] = response.resources
        _check([(topic, error)])
        return {name: value for name, value, *_ in entries}

    def alter_settings(self, topic: str, changes: Mapping[str, str]) -> None:
        """AlterConfigs."""
        kind = aiokafka_admin.config_resource.ConfigResourceType.TOPIC
        resource = aiokafka_admin.config_resource.ConfigResource(kind, topic, dict(changes))
        [response] = self._loop.run(self._admin.alter_configs([resource]))
        _check((name, code) for code, _, _, name in response.resources)

    def groups(self) -> set[str]:
        """ListGroups."""
        return {name for name, _ in self._loop.run(self._admin.list_consumer_groups())}

    def describe_group(self, group: str) -> GroupFacts:
        """DescribeGroups."""
        [response] = self._loop.run(self._admin.describe_consumer_groups([group]))
        [(error, _, state, _, _, members, *_)] = response.groups
        _check([(group, error)])
        return GroupFacts(state, tuple(client_id for _, client_id, *_ in members))

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """DeleteRecords."""
        wanted = {
            TopicPartition(topic, partition): aiokafka_admin.RecordsToDelete(offset)
            for partition, offset in before.items()
        }
        self._loop.run(self._admin.delete_records(wanted))

    def offsets(self, topic: str, when: str | int) -> dict[int, int]:
        """ListOffsets."""
        asked = [TopicPartition(topic, p) for p in range(self.partition_count(topic))]
        if when == "earliest":
            offsets = self._loop.run(self._offset_reader.beginning_offsets(asked))
        elif when == "latest":
            offsets = self._loop.run(self._offset_reader.end_offsets(asked))
        else:
            found = self._loop.run(
                self._offset_reader.offsets_for_times(dict.fromkeys(asked, when))
            )
            offsets = {at: each.offset for at, each in found.items()}
        return {at.partition: offset for at, offset in offsets.items()}


def _check(outcomes: Any) -> None:
    for name, code, *_ in outcomes:
        if code != 0:
            raise Refused(f"{name}: {aiokafka_errors.for_code(code).__name__}")


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[AiokafkaClient]:
    """One client for the whole file."""
    client = AiokafkaClient(broker.bootstrap_servers)
    yield client
    client.close()


class TestGroups(GroupScenarios):
    """The group scenarios, run with aiokafka."""


class TestAdmin(TopicScenarios, ConfigScenarios, ListGroupScenarios, RecordScenarios):
    """The admin scenarios that aiokafka can perform."""
