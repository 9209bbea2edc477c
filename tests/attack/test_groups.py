"""Attacks on groups: members, metadata, assignments, and the topic their coordinators replay."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from plog.wire.messages.describe_groups import DescribeGroupsRequest
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from plog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from plog.wire.messages.list_groups import ListGroupsRequest
from plog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.attack.conftest import Attack
from tests.attack.frames import produce_frame, response_size, small_batch
from tests.attack.target import Target
from tests.fault.peers import Peer, request_frame

_GROUPS = 50
"""Partitions of __consumer_offsets."""


def _join(
    group: str, *protocols: JoinGroupRequestProtocol, session_ms: int = 30_000
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=list(protocols) or [JoinGroupRequestProtocol(name="range", metadata=b"x")],
    )


def _send(peer: Peer, frame: bytes) -> None:
    try:
        peer.send(frame)
    except ConnectionError:
        pass  # The broker has refused the request by closing the connection.


def test_join_group_with_10_mb_of_metadata_from_30_members(target: Target, attack: Attack) -> None:
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(10 << 20))
    frame = request_frame(_join("heavy", protocol), 3)
    with attack(), ExitStack() as stack:
        for _ in range(30):
            _send(stack.enter_context(target.connect()), frame)
        with target.connect() as other:
            for _ in range(20):
                other.ping()


def test_join_group_of_2000_members(target: Target, attack: Attack) -> None:
    frame = request_frame(_join("crowd"), 3)
    with attack(), ExitStack() as stack:
        for _ in range(2_000):
            _send(stack.enter_context(target.connect()), frame)
        with target.connect() as other:
            other.request(DescribeGroupsRequest(groups=["crowd"]), 4)


def test_join_group_with_24000_protocols(target: Target, attack: Attack) -> None:
    protocols = [JoinGroupRequestProtocol(name=f"p{number}") for number in range(24_000)]
    frame = request_frame(_join("protocols", *protocols), 3)
    with attack(), ExitStack() as stack:
        for _ in range(4):
            _send(stack.enter_context(target.connect()), frame)
        with target.connect() as other:
            other.ping()


def test_10000_members_that_never_come_back(target: Target, attack: Attack) -> None:
    """Each gets a member id that is valid for half an hour."""
    _pipelined(target, attack, [request_frame(_join("gone", session_ms=1_800_000), 4)] * 10_000)


def test_500_new_groups(target: Target, attack: Attack) -> None:
    names = [f"group-{number}" for number in range(500)]
    _pipelined(
        target, attack, [request_frame(_join(name, session_ms=1_800_000), 4) for name in names]
    )


def test_100_groups_with_names_of_32_kb(target: Target, attack: Attack) -> None:
    names = [f"{number}".ljust(32_700, "x") for number in range(100)]
    _pipelined(
        target, attack, [request_frame(_join(name, session_ms=1_800_000), 4) for name in names]
    )


def _pipelined(target: Target, attack: Attack, frames: list[bytes]) -> None:
    with attack(), target.connect() as peer:
        for start in range(0, len(frames), 100):
            some = frames[start : start + 100]
            peer.send(b"".join(some))
            for _ in some:
                peer.response()
        peer.request(ListGroupsRequest(), 4)


def test_sync_group_with_an_assignment_of_50_mb(target: Target, attack: Attack) -> None:
    with attack(), target.connect() as peer:
        joined = peer.request(_join("assigned"), 3)
        assert isinstance(joined, JoinGroupResponse)
        assignment = SyncGroupRequestAssignment(
            member_id=joined.member_id, assignment=bytes(50 << 20)
        )
        request = SyncGroupRequest(
            group_id="assigned",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[assignment],
        )
        response_size(peer, request_frame(request, 1))


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(b"\0\1\0\1gxx", id="offset-key"),
        pytest.param(b"\0\2\0\x05g", id="group-key"),
        pytest.param(b"\x7f\xff?", id="unknown-key", marks=pytest.mark.long),
        pytest.param(None, id="no-key", marks=pytest.mark.long),
    ],
)
def test_undecodable_record_in_the_offsets_topic(
    request: pytest.FixtureRequest, target: Target, attack: Attack, key: bytes | None
) -> None:
    """Kafka's admin clients may write there; groups work before and after a restart."""
    with target.connect() as peer:
        peer.request(FindCoordinatorRequest(key="g"), 0)
    batch = small_batch(b"\0\1garbage", key)
    with attack(), target.connect() as peer:
        for partition in range(_GROUPS):
            frame = produce_frame(
                "__consumer_offsets", batch, partition=partition, client_id="__admin_client"
            )
            response_size(peer, frame)
    target.restart()
    with target.attack(request, f"{request.node.name.removeprefix('test_')}, restarted"):
        pass
