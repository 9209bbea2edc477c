"""Unclean elections: when they happen, which replica leads, and what is reported (rule C9)."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from plog.types import TopicPartition
from plog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from plog.wire.messages.list_offsets import ListOffsetsRequest
from plogd.config import BrokerConfig
from plogd.metadata.cache import NO_LEADER
from tests.helpers.cluster_controller_site import ClusterControllerSite, key

ENABLED = "unclean.leader.election.enable"


class _Site(ClusterControllerSite):
    """Partition 0 is on brokers 2, 3, 4 and 5; only broker 2 is in sync. Broker 1 is elsewhere."""

    def __init__(self, *, is_enabled: bool = True) -> None:
        super().__init__({0: (2, 3, 4, 5)})
        self.config = BrokerConfig(unclean_leader_election_enable=is_enabled)
        self.start(1, 2, 3, 4, 5)
        assert self.change_isr(2) == 0

    def end_at(self, **ends: tuple[int, int]) -> None:
        """Set the leader epochs and the ends of logs, as ``b3=(epoch, offset)``."""
        for name, end in ends.items():
            self.peers.log_ends[int(name[1:]), 0] = end

    def elect(
        self, partitions: Collection[TopicPartition] | None = (key(),)
    ) -> Collection[TopicPartition]:
        """Elect leaders as an operator."""
        elected: Collection[TopicPartition] = self.settle(
            self.cluster.unclean_elections.elect(partitions)
        )
        self.run()
        return elected

    @property
    def asked(self) -> set[int]:
        """The brokers that were asked for the ends of their logs."""
        return {one for one, message in self.peers.sent if isinstance(message, ListOffsetsRequest)}


@pytest.mark.parametrize(
    ("ends", "leader"),
    [
        # More records of the same epoch.
        ({"b3": (0, 7), "b4": (0, 9), "b5": (0, 8)}, 4),
        # A later epoch wins over more records: the others of its epoch were truncated or unsent.
        ({"b3": (0, 90), "b4": (0, 80), "b5": (1, 5)}, 5),
        # Of several, the first one in the order of the assignment.
        ({"b3": (0, 0), "b4": (0, 9), "b5": (0, 9)}, 4),
    ],
)
def test_replica_with_the_longest_log_leads(ends: dict[str, tuple[int, int]], leader: int) -> None:
    site = _Site()
    site.end_at(**ends)
    site.leave(2)
    state = site.state()
    # Without a leader in between: one epoch for the loss, one for the election.
    assert (state.leader, state.isr, state.leader_epoch) == (leader, (leader,), 2)
    assert state.is_recovering
    told = site.peers.last_states(leader, LeaderAndIsrRequest)[0]
    assert (told.leader, told.isr, told.leader_recovery_state) == (leader, [leader], 1)
    assert site.unclean_elections.value == 1
    epoch, offset = ends[f"b{leader}"]
    [report] = [one for one in site.site.ports.reports if one.startswith("unclean election")]
    for part in (f"broker {leader} leads t-0", f"offset {offset} of leader epoch {epoch}", "[2]"):
        assert part in report


def test_leader_is_recovering_until_it_changes_the_isr() -> None:
    site = _Site()
    site.end_at(b3=(0, 1))
    site.leave(2)
    assert site.state().is_recovering
    assert site.change_isr(3, 4) == 0
    assert not site.state().is_recovering


def test_partition_stays_without_a_leader_by_default() -> None:
    site = _Site(is_enabled=False)
    site.end_at(b3=(0, 1))
    site.leave(2)
    site.run(10_000)
    assert (site.state().leader, site.state().isr) == (NO_LEADER, (2,))
    assert site.asked == set()
    site.register(2)
    assert site.state().leader == 2


def test_replica_in_sync_is_preferred_to_a_longer_log() -> None:
    site = _Site()
    site.end_at(b3=(9, 9))
    assert site.change_isr(2, 4) == 0
    site.leave(2)
    assert (site.state().leader, site.state().is_recovering) == (4, False)
    assert site.asked == set()
    assert site.unclean_elections.value == 0


def test_topic_overrides_the_setting_of_the_broker() -> None:
    site = _Site(is_enabled=False)
    site.context.put_config("t", {ENABLED: "true"})
    site.end_at(b3=(0, 1))
    site.leave(2)
    assert site.state().leader == 3
    site = _Site()
    site.context.put_config("t", {ENABLED: "false"})
    site.end_at(b3=(0, 1))
    site.leave(2)
    assert site.state().leader == NO_LEADER


def test_setting_that_changes_later_has_an_effect_at_once() -> None:
    site = _Site(is_enabled=False)
    site.end_at(b3=(0, 1))
    site.leave(2)
    site.config = BrokerConfig(unclean_leader_election_enable=True)
    site.cluster.settings_changed()
    site.run()
    assert site.state().leader == 3


def test_operator_can_request_an_election() -> None:
    site = _Site(is_enabled=False)
    site.end_at(b4=(0, 1))
    assert site.elect() == frozenset()  # It has a leader.
    site.leave(2)
    assert site.elect([key(), key(7), TopicPartition("missing", 0)]) == {key()}
    assert site.state().leader == 4
    site.leave(4)
    site.end_at(b5=(0, 1))
    assert site.elect(None) == {key()}
    assert site.state().leader == 5


def test_election_fails_without_an_online_replica() -> None:
    site = _Site(is_enabled=False)
    site.leave(2, 3, 4, 5)
    assert site.elect() == frozenset()
    assert site.state().leader == NO_LEADER
    assert site.asked == set()


def test_silent_broker_is_not_elected_and_does_not_delay_other_elections() -> None:
    site = _Site()
    site.end_at(b3=(0, 1), b4=(0, 9))
    site.peers.silent.add(4)
    site.leave(2)
    # Meanwhile, the controller reacts to other brokers.
    site.leave(5)
    assert 5 not in site.brokers.brokers
    site.run(10_000)
    assert site.state().leader == 3


def test_replica_that_is_not_known_to_its_broker_yet_is_asked_again() -> None:
    site = _Site()
    site.leave(2)
    assert site.state().leader == NO_LEADER
    site.end_at(b5=(0, 1))
    site.run(2_000)
    assert site.state().leader == 5


def test_leader_that_returns_meanwhile_wins() -> None:
    site = _Site()
    site.peers.silent |= {3, 4, 5}
    site.leave(2)
    assert site.state().leader == NO_LEADER
    site.register(2)
    assert site.state().leader == 2
    site.run(10_000)
    assert (site.state().leader, site.state().is_recovering) == (2, False)


def test_replica_in_sync_that_has_just_returned_is_elected() -> None:
    site = _Site(is_enabled=False)
    returned = site.brokers.brokers[2]
    site.leave(2)
    site.end_at(b3=(9, 9))
    # The controller knows that it is live, but has not looked at all partitions yet.
    site.brokers.brokers = {**site.brokers.brokers, 2: returned}
    assert site.elect() == {key()}
    assert (site.state().leader, site.state().isr, site.state().is_recovering) == (2, (2,), False)
    assert site.unclean_elections.value == 0


def test_replica_in_sync_whose_broker_has_not_responded_is_waited_for() -> None:
    site = _Site()
    site.end_at(b3=(9, 9))
    site.peers.silent.add(2)
    returned = site.brokers.brokers[2]
    site.config = BrokerConfig()
    site.leave(2)
    site.config = BrokerConfig(unclean_leader_election_enable=True)
    site.brokers.brokers = {**site.brokers.brokers, 2: returned}
    site.brokers._unconfirmed.add(2)
    assert site.elect() == frozenset()
    assert site.state().leader == NO_LEADER


def test_damaged_replica_in_sync_is_elected_if_the_other_members_are_gone() -> None:
    """They may have the damaged records, so that only an unclean election ends the wait."""
    site = ClusterControllerSite({0: (2, 3, 4)})
    site.config = BrokerConfig()
    site.register(1, 2)
    site.peers.damaged.add((2, 0))
    site.cluster.begin()
    site.run()
    assert (site.state().leader, site.state().isr) == (NO_LEADER, (2, 3, 4))
    site.peers.log_ends[2, 0] = (0, 9)
    assert site.settle(site.cluster.unclean_elections.elect([key()])) == {key()}
    site.run(10_000)
    state = site.state()
    assert (state.leader, state.isr, state.leader_epoch, state.offline_replicas) == (2, (2,), 2, ())


def test_ended_term_elects_nothing() -> None:
    site = _Site(is_enabled=False)
    site.end_at(b3=(0, 1))
    site.leave(2)
    site.config = BrokerConfig(unclean_leader_election_enable=True)
    site.term.end()
    site.cluster.end()
    site.cluster.settings_changed()
    site.cluster.unclean_elections.check()
    site.run(5_000)
    assert site.state().leader == NO_LEADER
