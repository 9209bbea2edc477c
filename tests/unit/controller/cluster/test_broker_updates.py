"""The state of all partitions is sent in slices, and changes that are made meanwhile keep their
order (rule C10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.leader_and_isr import FULL, LeaderAndIsrRequest
from plog.wire.messages.stop_replica import StopReplicaRequest
from plog.wire.messages.update_metadata import LEADER_DURING_DELETE, UpdateMetadataRequest
from plogd.controller.cluster.broker_channels import BrokerChannels
from plogd.controller.cluster.broker_updates import BrokerUpdates
from plogd.controller.cluster.control_requests import ControlRequests
from plogd.controller.controller_context import ControllerContext
from plogd.controller.topic_writes import known_topic, partition_state
from plogd.fair_queue import FairQueue
from plogd.metadata.cache import TopicState
from plogd.metadata.store import BrokerRegistration, TopicValue
from plogd.peers import PeerUnavailable
from plogd.ports import spawn
from tests.helpers.cluster_controller_site import RecordingPeers, key
from tests.helpers.metadata_sites import registration
from tests.helpers.sim.sim_ports import SimPorts

MAX = 1000
"""Largest number of partitions in a request."""


class Site:
    """Brokers 1 and 2, which record what they are sent."""

    def __init__(self) -> None:
        self.ports = SimPorts()
        self.peers = RecordingPeers(self.ports.timers)
        self.context = ControllerContext()
        self.channels = BrokerChannels(self.peers, self.ports.timers)
        self.brokers: dict[int, BrokerRegistration] = {}
        self.updates = BrokerUpdates(
            self.channels,
            ControlRequests(controller_id=1, controller_epoch=1, inter_broker_listener="INTERNAL"),
            self.context,
            lambda: self.brokers,
            {},
            FairQueue(self.ports.timers),
        )
        self.register(1, broker_epoch=1)
        self.register(2, broker_epoch=2)

    def register(self, broker_id: int, *, broker_epoch: int) -> None:
        """Let a broker register, again if it is known."""
        self.brokers[broker_id] = replace(registration(broker_id), broker_epoch=broker_epoch)
        self.channels.update(self.brokers)

    def put(
        self,
        name: str = "t",
        count: int = 1,
        *,
        replicas: Mapping[int, tuple[int, ...]] | None = None,
        topic_id: bytes | None = None,
    ) -> TopicState:
        """Add a topic; by default, its partitions are on both brokers."""
        assignments = replicas or {number: (2, 1) for number in range(count)}
        value = TopicValue(
            topic_id=topic_id or name.encode().ljust(16), assignments=dict(assignments)
        )
        states = [(partition_state(number, value, None), 0) for number in assignments]
        known = known_topic(name, value, 0, states, {})
        self.context.put(known)
        return known.state

    def elect(self, number: int) -> None:
        """Give a partition of the topic t another leader epoch, and inform the brokers."""
        known = self.context.get("t")
        assert known is not None
        state = known.state.partitions[number]
        state = replace(state, leader_epoch=state.leader_epoch + 1)
        self.context.put_partitions("t", {number: (state, 0)})
        self.updates.send([key(number)])

    def turns(self) -> Iterator[None]:
        """Run the pending turns, and pause after each of them."""
        while self.ports.timers.next_due_ms is not None:
            self.ports.timers.run_next()
            yield

    def run(self) -> None:
        """Run all pending turns."""
        for _ in self.turns():
            pass

    def partitions_sent(self) -> int:
        """Return the number of states in all requests so far."""
        return sum(
            len(topic.partition_states)
            for _, message in self.peers.sent
            for topic in message.topic_states
        )

    def sizes(self, request_type: type[Any]) -> list[int]:
        """Return the number of states in each request of this type to broker 2."""
        return [
            sum(len(topic.partition_states) for topic in message.topic_states)
            for message in self.peers.told(2, request_type)
        ]


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize(("topics", "partitions"), [(1, 2500), (2500, 1), (5, 500)])
def test_all_partitions_are_sent_in_turns_of_one_request(
    site: Site, topics: int, partitions: int
) -> None:
    for number in range(topics):
        site.put(f"t{number}", partitions)
    sent = site.updates.send_all(2)
    counts = [0, site.partitions_sent(), *(site.partitions_sent() for _ in site.turns())]
    assert sent.done
    assert max(after - before for before, after in pairwise(counts)) == MAX
    for request_type in (LeaderAndIsrRequest, UpdateMetadataRequest):
        assert site.sizes(request_type) == [1000, 1000, 500]
        types = [one.type == FULL for one in site.peers.told(2, request_type)]
        assert types == [False, False, True]


def test_hosted_partitions_are_sent_in_turns_of_one_request(site: Site) -> None:
    site.put(replicas={number: (1, 2) if number % 2 else (1,) for number in range(5000)})
    sent = site.updates.send_hosted(2)
    counts = [0, site.partitions_sent(), *(site.partitions_sent() for _ in site.turns())]
    assert sent.done
    assert max(after - before for before, after in pairwise(counts)) == MAX
    assert site.sizes(LeaderAndIsrRequest) == [1000, 1000, 500]
    assert site.sizes(UpdateMetadataRequest) == []


def test_many_partitions_of_other_brokers_are_looked_at_in_several_turns(site: Site) -> None:
    site.put(replicas=dict.fromkeys(range(5000), (1,)))
    sent = site.updates.send_hosted(2)
    assert not sent.done
    assert len(list(site.turns())) >= 4
    assert sent.done
    assert site.peers.sent == []


@pytest.mark.parametrize("number", [0, 1500, 2499])
def test_older_state_never_follows_a_newer_one(site: Site, number: int) -> None:
    site.put("t", 2500)
    for turn in range(10):
        site.peers.sent.clear()
        site.updates.send_all(2)
        turns = site.turns()
        for _ in range(turn):
            next(turns, None)
        site.elect(number)
        site.run()
        newest = site.context.served_topics()[0].partitions[number].leader_epoch
        for request_type in (LeaderAndIsrRequest, UpdateMetadataRequest):
            epochs = [
                state.leader_epoch
                for message in site.peers.told(2, request_type)
                for topic in message.topic_states
                for state in topic.partition_states
                if state.partition_index == number
            ]
            assert epochs == sorted(epochs)
            assert epochs[-1] == newest


def test_broker_that_registers_again_gets_nothing_for_its_earlier_registration(site: Site) -> None:
    site.put("t", 2500)
    first = site.updates.send_all(2)
    next(site.turns())
    assert site.sizes(LeaderAndIsrRequest) == [1000]
    site.register(2, broker_epoch=3)
    site.peers.sent.clear()
    second = site.updates.send_all(2)
    site.run()
    with pytest.raises(PeerUnavailable):
        raise outcome_of(first)
    assert second.done
    assert {message.broker_epoch for _, message in site.peers.sent} == {3}
    assert site.sizes(LeaderAndIsrRequest) == [1000, 1000, 500]


def test_later_call_replaces_the_one_in_progress(site: Site) -> None:
    """The channel has dropped some requests of the first call, so its last one must not follow."""
    site.put("t", 2500)
    first = site.updates.send_all(2)
    next(site.turns())
    site.peers.sent.clear()
    site.updates.send_all(2)
    site.run()
    with pytest.raises(PeerUnavailable):
        raise outcome_of(first)
    assert site.sizes(LeaderAndIsrRequest) == [1000, 1000, 500]
    assert site.sizes(UpdateMetadataRequest) == [1000, 1000, 500]


def test_nothing_is_sent_after_the_term(site: Site) -> None:
    site.put("t", 2500)
    first = site.updates.send_all(2)
    next(site.turns())
    site.channels.close()
    site.peers.sent.clear()
    site.run()
    with pytest.raises(PeerUnavailable):
        raise outcome_of(first)
    assert site.peers.sent == []


def test_topic_that_is_deleted_meanwhile_is_not_sent(site: Site) -> None:
    site.put("a", 2500)
    topic = site.put("t", 1)
    site.updates.send_all(2)
    next(site.turns())
    site.context.deleting.add("t")
    spawn(site.updates.delete(topic))
    site.run()
    named = [
        topic.topic_name
        for message in site.peers.told(2, LeaderAndIsrRequest)
        for topic in message.topic_states
    ]
    assert "t" not in named


def test_topic_whose_deletion_has_begun_is_hidden_and_deleted(site: Site) -> None:
    site.put("t", 2)
    site.context.deleting.add("t")
    site.updates.send_all(2)
    site.run()
    shown = site.peers.last_states(2, UpdateMetadataRequest)
    assert [state.leader for state in shown.values()] == [LEADER_DURING_DELETE] * 2
    assert len(site.peers.told(2, StopReplicaRequest)) == 1


def test_new_topic_with_the_name_of_a_deleted_one_is_not_hidden(site: Site) -> None:
    site.put("a", 2500)
    site.put("t", 2)
    site.context.deleting.add("t")
    site.updates.send_all(2)
    next(site.turns())
    site.context.drop("t")
    site.put("t", 2, topic_id=b"another".ljust(16))
    site.updates.send([key(0), key(1)])
    site.run()
    assert site.peers.told(2, StopReplicaRequest) == []
    shown = {
        state.leader
        for message in site.peers.told(2, UpdateMetadataRequest)
        for topic in message.topic_states
        if topic.topic_name == "t"
        for state in topic.partition_states
    }
    assert shown == {2}


def test_replica_that_is_moved_away_meanwhile_is_not_sent(site: Site) -> None:
    site.put("t", 2500)
    site.updates.send_all(2)
    next(site.turns())
    known = site.context.get("t")
    assert known is not None
    moved = replace(known.state.partitions[2400], replicas=(1,), isr=(1,), leader=1)
    site.context.put_partitions("t", {2400: (moved, 0)})
    site.run()
    assert 2400 not in site.peers.last_states(2, LeaderAndIsrRequest)
    assert site.peers.last_states(2, UpdateMetadataRequest)[2400].leader == 1


def test_failed_replicas_of_all_requests_are_returned(site: Site) -> None:
    site.put("t", 2500)
    site.peers.broken |= {(2, 3), (2, 2400)}
    sent = site.updates.send_all(2)
    site.run()
    found = outcome_of(sent)
    assert [(one.topic_partition, one.error_code) for one in found] == [
        (key(3), ErrorCode.KAFKA_STORAGE_ERROR),
        (key(2400), ErrorCode.KAFKA_STORAGE_ERROR),
    ]


def outcome_of(later: Any) -> Any:
    """Return the value or the error of a Later that has one."""
    outcomes: list[Any] = []
    later.then(outcomes.append, outcomes.append)
    [outcome] = outcomes
    return outcome
