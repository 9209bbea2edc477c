"""Heartbeat: requests and responses as frames."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.heartbeat import HeartbeatRequest
from tests.helpers.group.group_frames import GROUP, heartbeat, join_request, stable
from tests.helpers.sim.sim_broker import SimBroker


@pytest.fixture
def broker() -> SimBroker:
    return SimBroker().start()


@pytest.mark.parametrize("version", range(5))
def test_heartbeat_succeeds_in_every_version(broker: SimBroker, version: int) -> None:
    [leader] = stable(broker)
    assert heartbeat(broker, leader, version=version) == 0
    leader.generation_id += 1
    assert heartbeat(broker, leader, version=version) == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", [3, 4])
def test_static_member_is_fenced_by_its_replacement(broker: SimBroker, version: int) -> None:
    [member] = stable(broker, instances=True)
    request = HeartbeatRequest(
        group_id=GROUP, generation_id=1, member_id=member.member_id, group_instance_id="i0"
    )
    assert broker.ask(request, version).error_code == 0
    broker.ask(join_request(group_instance_id="i0"), 9)
    assert broker.ask(request, version).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_loading_coordinator_expires_no_members(broker: SimBroker) -> None:
    [member] = stable(broker)
    restarted = SimBroker(files=broker.files.kill())
    started = restarted.broker.start()
    while not started.done:
        restarted.ports.jobs.run_one()
        restarted.ports.timers.run_due()
    request = HeartbeatRequest(group_id=GROUP, generation_id=7, member_id=member.member_id)
    asked = restarted.begin(request, 4)
    assert asked.response().error_code == 0
    restarted.settle()
    assert restarted.ask(request, 4).error_code == ErrorCode.ILLEGAL_GENERATION
