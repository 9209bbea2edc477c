"""A check, made after each attack, that a broker still does everything that clients need."""

from __future__ import annotations

from typing import TypeVar

from plog.client.simple import SimpleClient
from plog.errors import ErrorCode
from plog.records.codec import Record
from plog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from plog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from plog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from plog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from plog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from plog.wire.schema import ApiMessage
from plogd.testing.running_broker import unique_name
from tests.fault.peers import TIMEOUT_S, Peer, address_of
from tests.helpers.eventually import eventually

_VALUE = b"after the attack"
_ASSIGNMENT = b"all of it"
R = TypeVar("R", bound=ApiMessage)


def check_service(server: str, topic: str | None = None) -> None:
    """Create a topic, produce, consume, and join a group and commit.

    With `topic`, which has two partitions, it creates no other. Raises AssertionError, OSError,
    LookupError or KafkaError if an operation fails.
    """
    with SimpleClient(*address_of(server), timeout_s=TIMEOUT_S) as client:
        if topic is None:
            topic = unique_name("after")
            client.create_topic(topic, 2)
        offset = client.produce(topic, 1, [Record(value=_VALUE)])
        found = client.metadata([topic]).topics[0]
        assert len(found.partitions) == 2, f"metadata: {found}"
        [record] = client.fetch(topic, 1, offset)
        assert record.value == _VALUE
    with Peer(server) as peer:
        _check_group(peer, unique_name("group"), topic)


def _check_group(peer: Peer, group: str, topic: str) -> None:
    find = FindCoordinatorRequest(key=group)
    eventually(
        lambda: _request(peer, find, 0, FindCoordinatorResponse).error_code == 0, "coordinator"
    )
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = eventually(lambda: _joined(peer, join), "loaded coordinator")
    assert joined.error_code == 0, f"JoinGroup: error code {joined.error_code}"
    member_id, generation_id = joined.member_id, joined.generation_id
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=generation_id,
        member_id=member_id,
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=_ASSIGNMENT)],
    )
    assert _request(peer, sync, 1, SyncGroupResponse).assignment == _ASSIGNMENT
    partition = OffsetCommitRequestPartition(partition_index=1, committed_offset=1)
    commit = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    committed = _request(peer, commit, 5, OffsetCommitResponse).topics[0].partitions[0]
    assert committed.error_code == 0, f"OffsetCommit: error code {committed.error_code}"
    fetch = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[1])]
    )
    offset = _request(peer, fetch, 3, OffsetFetchResponse).topics[0].partitions[0].committed_offset
    assert offset == 1, f"OffsetFetch: {offset}"
    leave = LeaveGroupRequest(group_id=group, member_id=member_id)
    assert _request(peer, leave, 1, LeaveGroupResponse).error_code == 0


def _joined(peer: Peer, join: JoinGroupRequest) -> JoinGroupResponse | None:
    """Return the response, or None while the coordinator is loading, soon after a restart."""
    answer = _request(peer, join, 3, JoinGroupResponse)
    return None if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else answer


def _request(peer: Peer, request: ApiMessage, version: int, response: type[R]) -> R:
    answer = peer.request(request, version)
    assert isinstance(answer, response)
    return answer
