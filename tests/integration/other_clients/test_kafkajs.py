"""Groups, offsets and admin requests of kafkajs, the client of most Node.js programs.

It uses the versions of Kafka 2.x (JoinGroup 5, Fetch 11, OffsetFetch 4, and AlterConfigs, because
it lacks the incremental API). The program is tests/integration/node/kafkajs_client.js.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.admin_scenarios import (
    AlterOffsetScenarios,
    ConfigScenarios,
    DeleteGroupScenarios,
    ListGroupScenarios,
    RecordScenarios,
    TopicScenarios,
)
from tests.helpers.client.client_program import ClientProgram, node_modules
from tests.helpers.group.group_scenarios import GroupScenarios
from tests.helpers.outside import need_program

_PROGRAM = Path(__file__).parents[1] / "node" / "kafkajs_client.js"


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[ClientProgram]:
    """One process of the program for the whole file."""
    client = ClientProgram(
        [need_program("node"), _PROGRAM],
        broker.bootstrap_servers,
        NODE_PATH=str(node_modules()),
        KAFKAJS_NO_PARTITIONER_WARNING="1",
    )
    yield client
    client.close()


class TestGroups(GroupScenarios):
    """The group scenarios, run with kafkajs."""


class TestAdmin(
    TopicScenarios,
    ConfigScenarios,
    ListGroupScenarios,
    DeleteGroupScenarios,
    AlterOffsetScenarios,
    RecordScenarios,
):
    """The admin scenarios that kafkajs can perform."""
