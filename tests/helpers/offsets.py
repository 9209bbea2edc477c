"""Short functions that commit and fetch offsets, over a `SimBroker`.

commit(broker, "g", {("t", 0): 5})       {("t", 0): 0}, codes by partition
fetch(broker, "g")                       {("t", 0): 5}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from plog.types import Uuid
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from plog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from plog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.helpers.sim.sim_broker import SimBroker

Key = tuple[str, int]


def by_topic(keys: Iterable[Key]) -> list[tuple[str, list[int]]]:
    """Group partitions by topic, as messages contain them."""
    return [
        (topic, [number for _, number in rest])
        for topic, rest in groupby(sorted(keys), key=lambda key: key[0])
    ]


def topic_id(broker: SimBroker, name: str) -> Uuid:
    """Return the id of a topic."""
    topic = broker.broker.cache.topic(name)
    assert topic is not None
    return topic.topic_id


def commit_request(
    broker: SimBroker | None,
    group: str,
    offsets: Mapping[Key, int],
    *,
    version: int = 8,
    metadata: str | None = "",
    leader_epoch: int = -1,
    **fields: Any,
) -> OffsetCommitRequest:
    """Return a request to commit `offsets`; with topic ids from version 10 on."""
    topics = []
    for name, numbers in by_topic(offsets):
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offsets[name, number],
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
            for number in numbers
        ]
        topic = OffsetCommitRequestTopic(name=name, partitions=partitions)
        if version >= 10:
            assert broker is not None
            topic.topic_id = topic_id(broker, name)
        topics.append(topic)
    return OffsetCommitRequest(group_id=group, topics=topics, **fields)


def commit(
    broker: SimBroker, group: str, offsets: Mapping[Key, int], *, version: int = 8, **fields: Any
) -> dict[Key, int]:
    """Commit `offsets`; return the error code of each."""
    request = commit_request(broker, group, offsets, version=version, **fields)
    return commit_codes(broker, broker.ask(request, version))


def commit_codes(broker: SimBroker, answer: Any) -> dict[Key, int]:
    """Return the error codes of a response, by topic and partition."""
    return {
        (topic.name or broker.broker.cache.topic_name(topic.topic_id) or "", one.partition_index): (
            one.error_code
        )
        for topic in answer.topics
        for one in topic.partitions
    }


def fetch_request(
    group: str, keys: Iterable[Key] | None = None, *, version: int = 8, **fields: Any
) -> OffsetFetchRequest:
    """Return a request for some or all offsets of one group, by name."""
    asked = None if keys is None else by_topic(keys)
    if version < 8:
        topics = asked and [
            OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in asked
        ]
        return OffsetFetchRequest(group_id=group, topics=topics, **fields)
    newer = asked and [
        OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in asked
    ]
    one = OffsetFetchRequestGroup(group_id=group, topics=newer)
    return OffsetFetchRequest(groups=[one], **fields)


def fetch(
    broker: SimBroker,
    group: str,
    keys: Iterable[Key] | None = None,
    *,
    version: int = 8,
    **fields: Any,
) -> dict[Key, int]:
    """Return the offsets of one group; -1 without an offset. Fails if there is an error."""
    answer = broker.ask(fetch_request(group, keys, version=version, **fields), version)
    if version >= 8:
        [answer] = answer.groups
    assert answer.error_code == 0
    assert all(one.error_code == 0 for topic in answer.topics for one in topic.partitions)
    return {
        (topic.name, one.partition_index): one.committed_offset
        for topic in answer.topics
        for one in topic.partitions
    }


def fetch_error(broker: SimBroker, group: str, *, version: int = 8, **fields: Any) -> int:
    """Return the error code of a fetch of all offsets."""
    answer = broker.ask(fetch_request(group, version=version, **fields), version)
    return int(answer.groups[0].error_code if version >= 8 else answer.error_code)


def delete(broker: SimBroker, group: str, keys: Iterable[Key]) -> Any:
    """Delete offsets; return the response."""
    topics = [
        OffsetDeleteRequestTopic(
            name=name,
            partitions=[OffsetDeleteRequestPartition(partition_index=one) for one in numbers],
        )
        for name, numbers in by_topic(keys)
    ]
    return broker.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
