"""What groups have committed is there whenever the broker is: right after a restart, or a kill.

While the broker reads `__consumer_offsets` it has to say that it loads. "Nothing committed", which
sends consumers back to the beginning, must never be the answer.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.client_under_test import Place
from tests.helpers.confluent import confluent_kafka
from tests.helpers.confluent_client import ConfluentClient
from tests.helpers.eventually import eventually
from tests.helpers.group_scenarios import EACH, PARTITIONS, produce_each, wait_for
from tests.helpers.raw_group import RawConnection, messages

KafkaError = confluent_kafka.KafkaError
COMMITS = 60
HISTORY_PARTITIONS = 200
# What a client asks again for.
NOT_YET = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}


@pytest.fixture
def client(own_broker: BrokerProcess) -> Iterator[ConfluentClient]:
    """A client of this test's own broker."""
    client = ConfluentClient(own_broker.bootstrap_servers)
    yield client
    client.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_no_commit_looks_lost_while_the_broker_starts(
    own_broker: BrokerProcess, client: ConfluentClient, topic: str, how: str
) -> None:
    client.create_topic(topic, HISTORY_PARTITIONS)
    # A history, so that there is something to load: thousands of commits.
    for offset in range(1, COMMITS + 1):
        client.alter_offsets(topic, topic, dict.fromkeys(range(HISTORY_PARTITIONS), offset))
    getattr(own_broker, how)()
    own_broker.start()
    assert _first_answer(own_broker, topic) == [COMMITS] * HISTORY_PARTITIONS


def _first_answer(broker: BrokerProcess, topic: str) -> list[int]:
    """The committed offsets of the group called as the topic, asked for from the first moment on.

    Before it tells them the broker may only say that it is not ready.
    """
    connection = RawConnection(broker.bootstrap_servers)
    kind = messages.OffsetFetchRequest.OffsetFetchRequestTopic
    asked = [kind(name=topic, partition_indexes=list(range(HISTORY_PARTITIONS)))]
    while True:
        answer = connection.ask(messages.OffsetFetchRequest(group_id=topic, topics=asked), 7)
        if answer.error_code == 0:
            break
        assert answer.error_code in NOT_YET
    connection.close()
    [told] = answer.topics
    assert {partition.error_code for partition in told.partitions} == {0}
    return [partition.committed_offset for partition in told.partitions]


def test_a_member_goes_on_over_a_restart_without_reading_anything_twice(
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
