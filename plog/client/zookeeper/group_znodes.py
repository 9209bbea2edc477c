"""The znodes of a consumer group: their paths, and the JSON of registrations and topics.

    /consumers/G/ids/ID                  ephemeral    the topics of consumer ID, as JSON
    /consumers/G/owners/TOPIC/PARTITION  ephemeral    the thread that reads the partition
    /consumers/G/offsets/TOPIC/PARTITION persistent   the committed offset, as text
    /brokers/topics/TOPIC                persistent   the partitions and their replicas, as JSON

Only brokers write the last of them. A consumer of Kafka 0.8 could have several threads, and each of
them was a reader. A consumer of plog has one thread, whose id is the id of the consumer and "-0".

Source: Kafka 0.8.2 ZkUtils, TopicCount, ZookeeperConsumerConnector.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from plog.client.errors import InvalidZnode
from plog.types import TopicPartition

BROKER_TOPICS: Final = "/brokers/topics"
_VERSION: Final = 1
_STATIC: Final = "static"


class GroupZnodes:
    """The paths of one group's znodes."""

    def __init__(self, group_id: str) -> None:
        base = f"/consumers/{group_id}"
        self.ids = f"{base}/ids"
        self._owners = f"{base}/owners"
        self._offsets = f"{base}/offsets"

    def registration(self, consumer_id: str) -> str:
        """Return the path of a consumer's registration."""
        return f"{self.ids}/{consumer_id}"

    def owner(self, partition: TopicPartition) -> str:
        """Return the path of a partition's owner.

        >>> GroupZnodes("g").owner(TopicPartition("clicks", 3))
        '/consumers/g/owners/clicks/3'
        """
        return f"{self._owners}/{partition.topic}/{partition.partition}"

    def offset(self, partition: TopicPartition) -> str:
        """Return the path of a partition's committed offset."""
        return f"{self._offsets}/{partition.topic}/{partition.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The topics of a consumer, each with the number of threads that read it."""

    threads_by_topic: Mapping[str, int]

    @classmethod
    def of(cls, topics: Collection[str]) -> Registration:
        """Return the registration of a consumer of plog."""
        return cls(threads_by_topic=dict.fromkeys(sorted(topics), 1))

    def encode(self, now_ms: int) -> bytes:
        """Return the data of the znode.

        >>> Registration.of(["clicks"]).encode(1700000000000).decode()
        '{"version":1,"subscription":{"clicks":1},"pattern":"static","timestamp":"1700000000000"}'
        """
        fields = {
            "version": _VERSION,
            "subscription": dict(self.threads_by_topic),
            "pattern": _STATIC,
            "timestamp": str(now_ms),
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, path: str, data: bytes) -> Registration:
        """Return the registration in a znode. Raises InvalidZnode."""
        fields = _json(path, data)
        subscription = fields.get("subscription")
        if fields.get("pattern") != _STATIC:
            raise InvalidZnode(
                f"cannot use the registration {path}: its pattern is {fields.get('pattern')!r}, but"
                f" only {_STATIC!r} is supported; stop the consumer that has written it"
            )
        if not isinstance(subscription, dict) or not all(
            type(count) is int and count > 0 for count in subscription.values()
        ):
            raise InvalidZnode(
                f"cannot use the registration {path}: its subscription is {subscription!r}; stop"
                " the consumer that has written it, or delete the znode"
            )
        return cls(threads_by_topic=subscription)


def thread_id(consumer_id: str, thread: int = 0) -> str:
    """Return the id of a consumer's thread."""
    return f"{consumer_id}-{thread}"


def decode_partitions(path: str, data: bytes) -> tuple[int, ...]:
    """Return the numbers of a topic's partitions, in order. Raises InvalidZnode.

    >>> decode_partitions("/brokers/topics/t", b'{"version":3,"partitions":{"1":[2],"0":[1]}}')
    (0, 1)
    """
    partitions = _json(path, data).get("partitions")
    if not isinstance(partitions, dict) or not all(name.isdecimal() for name in partitions):
        raise InvalidZnode(
            f"cannot read the partitions in {path}: they are {partitions!r}; repair the znode"
        )
    return tuple(sorted(int(name) for name in partitions))


def decode_offset(path: str, data: bytes) -> int:
    """Return a committed offset. Raises InvalidZnode.

    >>> decode_offset("/consumers/g/offsets/t/0", b"42")
    42
    """
    try:
        offset = int(data)
    except ValueError:
        offset = -1
    if offset < 0:
        raise InvalidZnode(
            f"cannot read the committed offset in {path}: {data!r} is not an offset; write a"
            " number, or delete the znode to start at auto.offset.reset"
        )
    return offset


def _json(path: str, data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise InvalidZnode(f"cannot read {path}: its data is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidZnode(f"cannot read {path}: its data is not a JSON object")
    return fields
