"""OffsetCommit and OffsetFetch messages of all versions."""

from __future__ import annotations

from typing import Any, cast

import pytest

from plog.client.group.member_state import Generation
from plog.client.group.offset_messages import (
    commit_request,
    commit_results,
    fetch_request,
    fetch_results,
)
from plog.client.network.connection import Connection
from plog.client.values import OffsetAndMetadata
from plog.errors import ErrorCode, UnsupportedVersion
from plog.types import TopicPartition
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from plog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Speaks:
    """A connection to a broker that supports only one version."""

    address = "192.0.2.1:9092"

    def __init__(self, version: int) -> None:
        self._version = version

    def version_of(self, _: Any) -> int:
        return self._version


def speaks(version: int) -> Connection:
    return cast(Connection, Speaks(version))


@pytest.mark.parametrize("version", range(2, 10))
def test_commit_request_is_encoded_in_every_version(version: int) -> None:
    offsets = {U0: OffsetAndMetadata(7), T1: OffsetAndMetadata(5, "note", 2)}
    request = commit_request("g", offsets, Generation("m", 3), speaks(version))
    sent = OffsetCommitRequest.decode(request.encode(version), version)
    assert (sent.group_id, sent.member_id, sent.generation_id_or_member_epoch) == ("g", "m", 3)
    assert [topic.name for topic in sent.topics] == ["t", "u"]
    [partition] = sent.topics[0].partitions
    assert (partition.committed_offset, partition.committed_metadata) == (5, "note")
    assert partition.committed_leader_epoch == (2 if version >= 6 else -1)


def test_static_member_needs_a_broker_with_support() -> None:
    generation = Generation("m", 3, "i")
    offsets = {T0: OffsetAndMetadata(0)}
    assert commit_request("g", offsets, generation, speaks(7)).group_instance_id == "i"
    with pytest.raises(UnsupportedVersion, match=r"group\.instance\.id"):
        commit_request("g", offsets, generation, speaks(6))


def test_negative_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="offset -1 of t-0"):
        commit_request("g", {T0: OffsetAndMetadata(-1)}, Generation(), speaks(8))


def test_commit_results_have_a_code_for_each_partition() -> None:
    partitions = [OffsetCommitResponsePartition(partition_index=1, error_code=25)]
    answer = OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)]
    )
    assert commit_results(answer) == {T1: ErrorCode.UNKNOWN_MEMBER_ID}


@pytest.mark.parametrize("version", range(1, 10))
def test_fetch_request_is_encoded_in_every_version(version: int) -> None:
    request = fetch_request("g", [U0, T1, T0], speaks(version), require_stable=True)
    sent = OffsetFetchRequest.decode(request.encode(version), version)
    assert sent.require_stable is (version >= 7)
    asked = sent.groups[0].topics if version >= 8 else sent.topics
    assert asked is not None
    assert [(topic.name, topic.partition_indexes) for topic in asked] == [("t", [0, 1]), ("u", [0])]
    assert (sent.groups[0] if version >= 8 else sent).group_id == "g"


def test_responses_for_one_group_are_decoded() -> None:
    partitions = [
        OffsetFetchResponsePartition(partition_index=0, committed_offset=-1),
        OffsetFetchResponsePartition(
            partition_index=1, committed_offset=4, committed_leader_epoch=2, metadata="x"
        ),
    ]
    answer = OffsetFetchResponse(
        topics=[OffsetFetchResponseTopic(name="t", partitions=partitions)], error_code=16
    )
    assert fetch_results(answer, "g") == (
        16,
        {T0: (0, None), T1: (0, OffsetAndMetadata(4, "x", 2))},
    )


def test_responses_for_several_groups_are_decoded() -> None:
    partitions = [
        OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=4, metadata=None, error_code=0
        )
    ]
    topics = [OffsetFetchResponseTopics(name="u", partitions=partitions)]
    answer = OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=0)]
    )
    assert fetch_results(answer, "g") == (0, {U0: (0, OffsetAndMetadata(4))})
