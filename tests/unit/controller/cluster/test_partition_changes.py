"""Changes of several topics, and when the controller passes them on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from plog.errors import KafkaStorageError, NotController
from plog.types import TopicPartition
from plogd.controller.partition_creation import first_state
from plogd.controller.topic_writes import known_topic
from plogd.metadata.cache import PartitionState
from plogd.metadata.store import TopicValue
from plogd.ports import spawn
from tests.helpers.cluster_controller_site import ClusterControllerSite, key

OTHER = TopicPartition("u", 0)


@pytest.fixture
def site() -> ClusterControllerSite:
    """A controller with the topics t and u; u is not in the store."""
    site = ClusterControllerSite({0: (1, 2)})
    value = TopicValue(topic_id=b"u" * 16, assignments={0: (1, 2)})
    site.context.put(known_topic("u", value, 0, [(first_state(0, (1, 2)), 0)], {}))
    site.start(1, 2)
    return site


def test_changes_that_precede_an_error_are_passed_on(site: ClusterControllerSite) -> None:
    """Otherwise, the leader would reject what the controller has written."""
    informed: list[Collection[TopicPartition]] = []

    def decide(one: TopicPartition, state: PartitionState) -> PartitionState:
        if one == OTHER:
            raise KafkaStorageError("cannot write")
        return replace(state, leader_epoch=state.leader_epoch + 1)

    changing = spawn(site.changes.change([key(), OTHER], decide, informed.append))
    with pytest.raises(KafkaStorageError):
        site.settle(changing)
    assert informed == [[key()]]
    assert site.state().leader_epoch == 1


def test_changes_of_an_ended_term_are_not_passed_on(site: ClusterControllerSite) -> None:
    informed: list[Collection[TopicPartition]] = []
    changing = spawn(
        site.changes.change(
            [key()],
            lambda _, state: replace(state, leader_epoch=state.leader_epoch + 1),
            informed.append,
        )
    )
    site.term.end()
    with pytest.raises(NotController):
        site.settle(changing)
    assert informed == []
