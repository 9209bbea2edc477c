"""LeaveGroup: requests and responses as frames."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.helpers.group.group_frames import GROUP, heartbeat, stable
from tests.helpers.sim.sim_broker import SimBroker


@pytest.fixture
def broker() -> SimBroker:
    return SimBroker().start()


@pytest.mark.parametrize("version", range(3))
def test_one_member_leaves_up_to_version_2(broker: SimBroker, version: int) -> None:
    [member] = stable(broker)
    request = LeaveGroupRequest(group_id=GROUP, member_id=member.member_id)
    assert broker.ask(request, version).error_code == 0
    assert broker.ask(request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(broker, member) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3, 6))
def test_several_members_leave_from_version_3(broker: SimBroker, version: int) -> None:
    first, second = stable(broker, 2, instances=True)
    members = [
        MemberIdentity(member_id=first.member_id),
        MemberIdentity(member_id="stranger"),
        MemberIdentity(group_instance_id="i1"),
    ]
    answer = broker.ask(LeaveGroupRequest(group_id=GROUP, members=members), version)
    assert answer.error_code == 0
    actual = [(one.member_id, one.group_instance_id, one.error_code) for one in answer.members]
    assert actual == [
        (first.member_id, None, 0),
        ("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "i1", 0),
    ]
    assert heartbeat(broker, second) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_empty_group_id_is_refused(broker: SimBroker, version: int) -> None:
    answer = broker.ask(LeaveGroupRequest(), version)
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID
