"""Groups, offsets and admin requests of franz-go, a Go client, which sends the newest versions.

Its members use the assignor cooperative-sticky, its default. The program is tests/integration/go;
with a Go older than 1.24, as on Debian 12, it is built with an older franz-go (debian12.mod).
"""

from __future__ import annotations

from collections.abc import Iterator

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
from tests.helpers.client.client_program import ClientProgram, go_program
from tests.helpers.group.group_scenarios import GroupScenarios


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[ClientProgram]:
    """One process of the program for the whole file."""
    client = ClientProgram([go_program()], broker.bootstrap_servers)
    yield client
    client.close()


class TestGroups(GroupScenarios):
    """The group scenarios, run with franz-go."""


class TestAdmin(
    TopicScenarios,
    ConfigScenarios,
    ListGroupScenarios,
    DeleteGroupScenarios,
    AlterOffsetScenarios,
    RecordScenarios,
):
    """The admin scenarios that franz-go can perform."""
