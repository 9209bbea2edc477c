"""DescribeGroups: requests and responses as frames."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.describe_groups import OPERATIONS_NOT_ASKED, DescribeGroupsRequest
from plogd.apis.sliced_requests import IN_PROGRESS
from tests.helpers.group.group_frames import GROUP, join_request, stable
from tests.helpers.offsets import commit
from tests.helpers.sim.sim_broker import SimBroker, create_topic

EVERY_VERSION = range(7)


@pytest.fixture
def broker() -> SimBroker:
    return SimBroker().start()


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_members_are_described_with_their_assignments(broker: SimBroker, version: int) -> None:
    first, second = stable(broker, 2, instances=True)
    [group] = broker.ask(DescribeGroupsRequest(groups=[GROUP]), version).groups
    assert (group.group_id, group.error_code, group.error_message) == (GROUP, 0, None)
    assert (group.group_state, group.protocol_type) == ("Stable", "consumer")
    assert group.protocol_data == "range"
    assert group.authorized_operations == OPERATIONS_NOT_ASKED
    actual = [
        (one.member_id, one.client_id, one.client_host, one.member_metadata, one.member_assignment)
        for one in group.members
    ]
    assert actual == [
        (first.member_id, "test", "/192.0.2.77", b"meta", b"0"),
        (second.member_id, "test", "/192.0.2.77", b"meta", b"1"),
    ]
    instances = [one.group_instance_id for one in group.members]
    assert instances == (["i0", "i1"] if version >= 4 else [None, None])


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_unknown_group_is_dead_or_not_found(broker: SimBroker, version: int) -> None:
    [group] = broker.ask(DescribeGroupsRequest(groups=["nobody"]), version).groups
    assert (group.group_id, group.group_state, group.members) == ("nobody", "Dead", [])
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0
    assert group.error_code == code
    assert (group.error_message is not None) == (version >= 6)


def test_each_group_is_described_once(broker: SimBroker) -> None:
    create_topic(broker, "t")
    stable(broker)
    commit(broker, "simple", {("t", 0): 1})
    broker.begin(join_request(group_id="waits", group_instance_id="i"), 9)
    request = DescribeGroupsRequest(groups=["simple", GROUP, "nobody", "waits", GROUP])
    actual = [(one.group_id, one.group_state) for one in broker.ask(request, 5).groups]
    assert actual == [
        ("simple", "Empty"),
        (GROUP, "Stable"),
        ("nobody", "Dead"),
        ("waits", "PreparingRebalance"),
    ]


def test_many_groups_are_described_in_slices(broker: SimBroker) -> None:
    stable(broker)
    names = [f"g{number}" for number in range(2 * IN_PROGRESS)]
    many = broker.begin(DescribeGroupsRequest(groups=names), 6)
    other = broker.begin(DescribeGroupsRequest(groups=[GROUP]), 6)
    assert (other.is_done, many.is_done) == (True, False)
    broker.settle()
    assert [one.group_id for one in many.response().groups] == names


@pytest.mark.parametrize("version", range(3, 7))
def test_authorized_operations_are_included_on_request(broker: SimBroker, version: int) -> None:
    stable(broker)
    request = DescribeGroupsRequest(groups=[GROUP, "x"], include_authorized_operations=True)
    group, unknown = broker.ask(request, version).groups
    operations = {number for number in range(32) if group.authorized_operations >> number & 1}
    assert operations == {3, 6, 8, 10, 11}
    expected = OPERATIONS_NOT_ASKED if version >= 6 else group.authorized_operations
    assert unknown.authorized_operations == expected


def test_stopped_coordinator_is_an_error(broker: SimBroker) -> None:
    stable(broker)
    broker.broker.group_coordinator.shutdown()
    [group] = broker.ask(DescribeGroupsRequest(groups=[GROUP]), 6).groups
    assert group.error_code == ErrorCode.NOT_COORDINATOR
    assert group.group_state == ""
