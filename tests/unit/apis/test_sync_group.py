"""SyncGroup: requests and responses as frames."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from tests.helpers.group.group_frames import join, join_request, stable, sync_request
from tests.helpers.sim.sim_broker import SimBroker


@pytest.fixture
def broker() -> SimBroker:
    return SimBroker().start()


@pytest.mark.parametrize("version", range(6))
def test_assignment_is_returned_in_every_version(broker: SimBroker, version: int) -> None:
    joined = join(broker)
    request = sync_request(joined, {joined.member_id: b"\0\x01\xff"})
    answer = broker.ask(request, version)
    assert (answer.error_code, answer.assignment) == (0, b"\0\x01\xff")
    expected = ("consumer", "range") if version >= 5 else (None, None)
    assert (answer.protocol_type, answer.protocol_name) == expected
    assert broker.ask(request, version).assignment == b"\0\x01\xff"


@pytest.mark.parametrize("version", range(6))
def test_empty_bytes_are_an_assignment(broker: SimBroker, version: int) -> None:
    joined = join(broker)
    answer = broker.ask(sync_request(joined, {}), version)
    assert (answer.error_code, answer.assignment) == (0, b"")


def test_follower_waits_for_the_leader_and_leader_for_the_disk(broker: SimBroker) -> None:
    ids = [broker.ask(join_request(), 9).member_id for _ in range(2)]
    asked = [broker.begin(join_request(member_id), 9) for member_id in ids]
    broker.settle()
    leader, follower = (one.response() for one in asked)
    waiting = broker.begin(sync_request(follower), 5)
    broker.settle()
    leader_sync = broker.begin(sync_request(leader, {ids[1]: b"yours"}), 5)
    assert not waiting.is_done
    assert not leader_sync.is_done
    broker.settle()
    assert leader_sync.response().assignment == b""
    assert waiting.response().assignment == b"yours"


@pytest.mark.parametrize(
    ("version", "fields", "code"),
    [
        (5, {"protocol_type": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (5, {"protocol_name": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (5, {"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (4, {"protocol_name": None}, 0),
        (0, {"generation_id": 7}, ErrorCode.ILLEGAL_GENERATION),
        (0, {"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (3, {"group_instance_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (5, {"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_invalid_request_is_refused(
    broker: SimBroker, version: int, fields: dict[str, Any], code: int
) -> None:
    [joined] = stable(broker)
    assert broker.ask(sync_request(joined, **fields), version).error_code == code


def test_group_too_large_for_a_record_is_refused(broker: SimBroker) -> None:
    joined = join(broker)
    answer = broker.ask(sync_request(joined, {joined.member_id: bytes(1 << 20)}), 5)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.bugs == []
    again = join(broker, joined.member_id)
    assert again.generation_id == 2
    assert broker.ask(sync_request(again, {again.member_id: b"x"}), 5).assignment == b"x"


@pytest.mark.parametrize(
    "assignments",
    [{"": (1 << 20) + 1}, {str(number): 1 << 20 for number in range(9)}],
    ids=["one member", "all members"],
)
def test_sync_with_large_assignments_is_refused_and_not_counted_afterwards(
    broker: SimBroker, assignments: dict[str, int]
) -> None:
    joined = join(broker)
    before = used_bytes(broker)
    sizes = {member_id or joined.member_id: bytes(size) for member_id, size in assignments.items()}
    answer = broker.ask(sync_request(joined, sizes), 5)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert used_bytes(broker) == before
    assert broker.ask(sync_request(joined, {joined.member_id: b"x"}), 5).assignment == b"x"


def test_sync_that_waits_for_the_leader_is_counted_until_it_is_answered(broker: SimBroker) -> None:
    leader, follower = stable(broker, 2, are_synced=False)
    before = used_bytes(broker)
    waiting = broker.begin(sync_request(follower, {"stranger": bytes(500_000)}), 5)
    assert used_bytes(broker) >= before + 500_000
    broker.ask(sync_request(leader, {follower.member_id: b"x"}), 5)
    broker.settle()
    assert waiting.response().assignment == b"x"
    assert used_bytes(broker) == before + 1


def used_bytes(broker: SimBroker) -> int:
    """Return the memory that all groups use."""
    return broker.broker.group_memory.used_bytes
