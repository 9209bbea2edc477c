"""Groups with members of plog's client library and of other clients, whichever leads the group.

The tests use each assignor that both sides support. Members of both join, leave and die, so that
each side leads members of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.group.mixed_members import MixedGroup
from tests.helpers.programs.confluent import create_topic
from tests.helpers.programs.kafka_tools import KafkaTools

PARTITIONS = 6
MakeGroup = Callable[[str], MixedGroup]


@pytest.fixture
def make_group(
    broker: BrokerProcess, topic: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[MakeGroup]:
    """A function that returns a group on a new topic for an assignor."""
    made: list[MixedGroup] = []

    def tools() -> KafkaTools:
        found = request.getfixturevalue("kafka_tools")
        assert isinstance(found, KafkaTools)
        return found

    def make(strategy: str) -> MixedGroup:
        create_topic(broker.bootstrap_servers, topic, PARTITIONS)
        made.append(MixedGroup(broker.bootstrap_servers, topic, strategy, tools, tmp_path))
        return made[-1]

    yield make
    for group in made:
        group.__exit__()


SOME = [("confluent", "cooperative-sticky")]
OTHERS = [
    ("kafka-python", "sticky"),
    ("java", "range"),
    ("confluent", "range"),
    ("confluent", "roundrobin"),
    ("kafka-python", "range"),
    ("kafka-python", "roundrobin"),
    ("kafka-python", "cooperative-sticky"),
    ("java", "roundrobin"),
    ("java", "sticky"),
    ("java", "cooperative-sticky"),
]


@pytest.mark.parametrize(
    ("other", "strategy"), [*SOME, *(pytest.param(*x, marks=pytest.mark.long) for x in OTHERS)]
)
def test_members_of_both_clients_share_the_topic_whichever_leads(
    make_group: MakeGroup, other: str, strategy: str
) -> None:
    group = make_group(strategy)
    ours = group.join("plog")
    group.settle(PARTITIONS)
    theirs = group.join(other)
    group.settle(PARTITIONS)
    group.leave(ours)  # The other client's member leads now.
    group.settle(PARTITIONS)
    again = group.join("plog")
    group.settle(PARTITIONS)
    group.join("plog")
    group.settle(PARTITIONS)
    group.kill(theirs)
    group.settle(PARTITIONS)
    group.join(other)
    group.settle(PARTITIONS)
    group.kill(again)
    group.settle(PARTITIONS)
