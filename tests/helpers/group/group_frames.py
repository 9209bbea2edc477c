"""Short functions for the requests of group members, over a `SimBroker`; the group is always "g".

leader, follower = stable(broker, 2)
heartbeat(broker, follower)               # the error code
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from plog.wire.messages.heartbeat import HeartbeatRequest
from plog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from plog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from plog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.helpers.sim.sim_broker import SimBroker

GROUP = "g"


def join_request(member_id: str = "", **fields: Any) -> JoinGroupRequest:
    """Return a JoinGroup request; `fields` override its defaults."""
    defaults: dict[str, Any] = {
        "group_id": GROUP,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"meta")],
    }
    return JoinGroupRequest(**defaults | fields)


def join(broker: SimBroker, member_id: str = "", **fields: Any) -> JoinGroupResponse:
    """Join as the Java consumer does: a new dynamic member sends JoinGroup twice."""
    if not member_id and "group_instance_id" not in fields:
        member_id = broker.ask(join_request(**fields), 9).member_id
    answer = broker.ask(join_request(member_id, **fields), 9)
    assert answer.error_code == 0
    return cast(JoinGroupResponse, answer)


def sync_request(
    joined: JoinGroupResponse, assignments: Mapping[str, bytes] | None = None, **fields: Any
) -> SyncGroupRequest:
    """Return a SyncGroup request of a joined member; `fields` override its defaults."""
    defaults: dict[str, Any] = {
        "group_id": GROUP,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol_name,
        "assignments": [
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in (assignments or {}).items()
        ],
    }
    return SyncGroupRequest(**defaults | fields)


def sync(
    broker: SimBroker, joined: JoinGroupResponse, assignments: Mapping[str, bytes] | None = None
) -> SyncGroupResponse:
    """Return the response to SyncGroup, which must not have to wait."""
    return cast(SyncGroupResponse, broker.ask(sync_request(joined, assignments), 5))


def heartbeat(broker: SimBroker, joined: JoinGroupResponse, *, version: int = 4) -> int:
    """Return the error code of a Heartbeat."""
    request = HeartbeatRequest(
        group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id
    )
    return int(broker.ask(request, version).error_code)


def leave(broker: SimBroker, *member_ids: str) -> list[int]:
    """Leave the group; return each member's error code."""
    members = [MemberIdentity(member_id=member_id) for member_id in member_ids]
    answer = broker.ask(LeaveGroupRequest(group_id=GROUP, members=members), 5)
    return [member.error_code for member in answer.members]


def stable(
    broker: SimBroker, count: int = 1, *, instances: bool = False, are_synced: bool = True
) -> list[JoinGroupResponse]:
    """Return a stable generation of `count` new members, the leader first; member n gets b"n".

    With `instances` they are static members, i0, i1, …; without `are_synced` nothing is assigned
    yet.
    """
    # Otherwise the first member would be the last.
    broker.ask(FindCoordinatorRequest(key=GROUP), 1)
    if instances:
        requests = [join_request(group_instance_id=f"i{n}") for n in range(count)]
    else:
        ids = [broker.ask(join_request(), 9).member_id for _ in range(count)]
        requests = [join_request(member_id) for member_id in ids]
    asked = [broker.begin(request, 9) for request in requests]
    broker.settle()
    joined = sorted(
        (one.response() for one in asked), key=lambda one: bool(one.member_id != one.leader)
    )
    if not are_synced:
        return joined
    assignments = {one.member_id: str(n).encode() for n, one in enumerate(joined)}
    waiting = [broker.begin(sync_request(one), 5) for one in joined[1:]]
    assert sync(broker, joined[0], assignments).assignment == b"0"
    assert [one.response().error_code for one in waiting] == [0] * (count - 1)
    return joined
