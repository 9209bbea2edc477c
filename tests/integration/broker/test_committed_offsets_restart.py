"""Committed offsets right after a restart or a kill of the broker.

While the broker loads `__consumer_offsets`, it must respond that the coordinator is loading. It
must never respond that nothing is committed: consumers would then start from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.client.client_under_test import Place
from tests.helpers.eventually import eventually
from tests.helpers.group.group_scenarios import EACH, PARTITIONS, produce_each, wait_for
from tests.helpers.group.raw_group import RawConnection, messages
from tests.helpers.programs.confluent import confluent_kafka
from tests.helpers.programs.confluent_client import ConfluentClient

KafkaError = confluent_kafka.KafkaError
COMMITS = 60
HISTORY_PARTITIONS = 200
# Errors on which clients retry.
NOT_YET = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}


@pytest.fixture
def client(own_broker: BrokerProcess) -> Iterator[ConfluentClient]:
    """A client of the broker that this test restarts."""
    client = ConfluentClient(own_broker.bootstrap_servers)
    yield client
    client.close()


@pytest.mark.parametrize("action", ["stop", "kill"])
def test_commits_never_look_lost_while_the_broker_starts(
    own_broker: BrokerProcess, client: ConfluentClient, topic: str, action: str
) -> None:
    client.create_topic(topic, HISTORY_PARTITIONS)
    # Thousands of commits, so that loading takes some time.
    for offset in range(1, COMMITS + 1):
        client.alter_offsets(topic, topic, dict.fromkeys(range(HISTORY_PARTITIONS), offset))
    getattr(own_broker, action)()
    own_broker.start()
    assert _first_offsets(own_broker, topic) == [COMMITS] * HISTORY_PARTITIONS


def _first_offsets(broker: BrokerProcess, topic: str) -> list[int]:
    """Return the committed offsets of the group that is named like the topic.

    Requests them from the moment the broker listens. Until it returns them, it may only respond
    that the coordinator is not ready.
    """
    connection = RawConnection(broker.bootstrap_servers)
    kind = messages.OffsetFetchRequest.OffsetFetchRequestTopic
    asked = [kind(name=topic, partition_indexes=list(range(HISTORY_PARTITIONS)))]
    while True:
        response = connection.ask(messages.OffsetFetchRequest(group_id=topic, topics=asked), 7)
        if response.error_code == 0:
            break
        assert response.error_code in NOT_YET
    connection.close()
    [topic_response] = response.topics
    assert {partition.error_code for partition in topic_response.partitions} == {0}
    return [partition.committed_offset for partition in topic_response.partitions]


def test_member_continues_after_a_restart_without_duplicates(
    own_broker: BrokerProcess, client: ConfluentClient, topic: str
) -> None:
    client.create_topic(topic, PARTITIONS)
    member = client.join(topic, topic)
    sent = produce_each(client, topic, "before")
    wait_for(sent, member)
    member.commit({partition: Place(EACH) for partition in range(PARTITIONS)})
    own_broker.restart()
    more = produce_each(client, topic, "after")
    wait_for(more, member)
    assert client.committed(topic, topic) == {p: Place(EACH) for p in range(PARTITIONS)}
    assert sorted(read.value for read in member.reads) == sorted(sent | more)
    facts = eventually(lambda: client.describe_group(topic), "the group")
    assert (facts.state, len(facts.members)) == ("Stable", 1)
