"""DeleteGroups: requests and responses as frames."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.delete_groups import DeleteGroupsRequest
from tests.helpers.group.group_frames import GROUP, leave, stable
from tests.helpers.offsets import commit, fetch
from tests.helpers.sim.sim_broker import SimBroker, create_topic


@pytest.fixture
def broker() -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t", 3)
    return broker


@pytest.mark.parametrize("version", range(3))
def test_each_group_has_its_own_outcome(broker: SimBroker, version: int) -> None:
    stable(broker)
    commit(broker, "simple", {("t", 0): 1, ("t", 2): 2})
    request = DeleteGroupsRequest(groups_names=[GROUP, "simple", "nobody", "simple"])
    actual = [(one.group_id, one.error_code) for one in broker.ask(request, version).results]
    assert actual == [
        (GROUP, ErrorCode.NON_EMPTY_GROUP),
        ("simple", 0),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert fetch(broker, "simple") == {}


def test_deleted_group_does_not_return_after_restart(broker: SimBroker) -> None:
    [member] = stable(broker)
    commit(
        broker, GROUP, {("t", 0): 1}, member_id=member.member_id, generation_id_or_member_epoch=1
    )
    leave(broker, member.member_id)
    answer = broker.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)
    assert [one.error_code for one in answer.results] == [0]
    broker = broker.restart()
    assert fetch(broker, GROUP) == {}
    [member] = stable(broker)
    assert member.generation_id == 1


def test_deleted_offsets_are_counted(broker: SimBroker) -> None:
    commit(broker, "simple", {("t", 0): 1, ("t", 1): 1})
    broker.ask(DeleteGroupsRequest(groups_names=["simple"]), 2)
    text = broker.metrics.expose().decode()
    assert "kafka_server_group_coordinator_metrics_offset_deletion_count 2" in text
