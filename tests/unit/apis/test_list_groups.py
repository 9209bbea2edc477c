"""ListGroups: requests and responses as frames."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.list_groups import ListGroupsRequest
from tests.helpers.group.group_frames import GROUP, stable
from tests.helpers.offsets import commit
from tests.helpers.sim.sim_broker import SimBroker, create_topic


@pytest.fixture
def broker() -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t")
    return broker


@pytest.mark.parametrize("version", range(6))
def test_groups_of_all_partitions_are_listed(broker: SimBroker, version: int) -> None:
    stable(broker)
    for number in range(20):
        commit(broker, f"simple-{number}", {("t", 0): 1})
    answer = broker.ask(ListGroupsRequest(), version)
    assert answer.error_code == 0
    groups = {one.group_id: one for one in answer.groups}
    assert set(groups) == {GROUP, *(f"simple-{number}" for number in range(20))}
    assert groups[GROUP].protocol_type == "consumer"
    assert groups["simple-3"].protocol_type == ""
    assert groups[GROUP].group_state == ("Stable" if version >= 4 else "")
    assert groups["simple-3"].group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        ([], [], {GROUP, "simple"}),
        (["Empty"], [], {"simple"}),
        ([" EMPTY "], [], {"simple"}),
        (["stable", "dead"], [], {GROUP}),
        (["stable", "empty"], [], {GROUP, "simple"}),
        (["Dead"], [], set()),
        (["nonsense"], [], set()),
        ([], ["Consumer", "CLASSIC"], {GROUP, "simple"}),
        ([], ["nonsense"], set()),
        ([], ["classic"], {GROUP, "simple"}),
        ([], ["consumer"], set()),
        (["Empty"], ["Classic"], {"simple"}),
    ],
)
def test_groups_are_filtered_by_state_and_type(
    broker: SimBroker, states: list[str], types: list[str], listed: set[str]
) -> None:
    stable(broker)
    commit(broker, "simple", {("t", 0): 1})
    answer = broker.ask(ListGroupsRequest(states_filter=states, types_filter=types), 5)
    assert {one.group_id for one in answer.groups} == listed


def test_list_is_empty_before_the_first_group(broker: SimBroker) -> None:
    answer = broker.ask(ListGroupsRequest(), 5)
    assert (answer.error_code, answer.groups) == (0, [])


def test_list_is_complete_or_refused(broker: SimBroker) -> None:
    stable(broker)
    restarted = SimBroker(files=broker.files.kill())
    started = restarted.broker.start()
    while not started.done:
        restarted.ports.jobs.run_one()
        restarted.ports.timers.run_due()
    asked = restarted.begin(ListGroupsRequest(), 5)
    restarted.settle()
    assert asked.response().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [one.group_id for one in restarted.ask(ListGroupsRequest(), 5).groups] == [GROUP]
