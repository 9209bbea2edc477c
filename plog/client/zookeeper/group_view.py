"""A consumer's view of its group: the members and partitions, and its own share of them.

All consumers of a group compute the shares in the same way from the same znodes, so they need no
leader (Algorithm 1 of the paper). Each topic is divided into ranges; if the division leaves a
remainder, the first threads read one more partition each.

Source: Kafka 0.8.2 ZookeeperConsumerConnector.rebalance, RangeAssignor; NetDB 2011 paper, section
3.2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from plog.client.assignors import Subscription
from plog.client.assignors.range_assignor import RangeAssignor
from plog.client.errors import InvalidZnode
from plog.client.network.ports import Network
from plog.client.zookeeper.group_znodes import (
    BROKER_TOPICS,
    GroupZnodes,
    Registration,
    decode_partitions,
    thread_id,
)
from plog.client.zookeeper.watched_znodes import WatchedZnodes
from plog.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """The registrations by consumer id, and the numbers of the partitions by topic."""

    registrations: Mapping[str, Registration]
    partitions: Mapping[str, tuple[int, ...]]

    def share(self, consumer_id: str) -> frozenset[TopicPartition]:
        """Return the partitions that a consumer with one thread reads.

        >>> both = Registration.of(["t"])
        >>> view = GroupView(registrations={"a": both, "b": both}, partitions={"t": (0, 1, 2)})
        >>> sorted(map(str, view.share("a"))), sorted(map(str, view.share("b")))
        (['t-0', 't-1'], ['t-2'])
        """
        topics_by_thread: dict[str, list[str]] = {}
        for each, registration in self.registrations.items():
            for topic, threads in registration.threads_by_topic.items():
                for thread in range(threads):
                    topics_by_thread.setdefault(thread_id(each, thread), []).append(topic)
        shares = RangeAssignor().assign(
            {topic: len(numbers) for topic, numbers in self.partitions.items()},
            {one: Subscription(topics=tuple(topics)) for one, topics in topics_by_thread.items()},
        )
        mine = shares.get(thread_id(consumer_id))
        if mine is None:
            return frozenset()
        return frozenset(
            TopicPartition(one.topic, self.partitions[one.topic][one.partition])
            for one in mine.partitions
        )


async def read_group(
    network: Network, watched: WatchedZnodes, znodes: GroupZnodes, topics: Collection[str]
) -> GroupView:
    """Read the members of the group, and the partitions of `topics`.

    Raises InvalidZnode for a registration or a topic that cannot be decoded, or if no brokers store
    their topics in this ZooKeeper, ConnectionLost and SessionExpired.
    """
    registrations = {}
    consumer_ids = sorted(await watched.children(znodes.ids) or ())
    paths = [znodes.registration(consumer_id) for consumer_id in consumer_ids]
    found = await network.gather([watched.data(path) for path in paths])
    for consumer_id, path, data in zip(consumer_ids, paths, found, strict=True):
        # A consumer may end between the two reads; a watch reports this, too.
        if data is not None:
            registrations[consumer_id] = Registration.decode(path, data)
    partitions = {}
    topics = sorted(topics)
    paths = [f"{BROKER_TOPICS}/{topic}" for topic in topics]
    found = await network.gather([watched.data(path) for path in paths])
    for topic, path, data in zip(topics, paths, found, strict=True):
        if data is not None:
            partitions[topic] = decode_partitions(path, data)
    if not partitions and await watched.data(BROKER_TOPICS) is None:
        raise InvalidZnode(
            f"cannot find topics in ZooKeeper: {BROKER_TOPICS} does not exist, so no brokers store"
            " their metadata there; set zookeeper.connect as on the brokers"
        )
    return GroupView(registrations=registrations, partitions=partitions)
