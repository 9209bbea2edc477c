"""Preferred leaders lead again, without a request (auto.leader.rebalance.enable)."""

from __future__ import annotations

from typing import Any

import pytest

from plogd.config import BrokerConfig
from plogd.ports import spawn
from tests.helpers.cluster_controller_site import ClusterControllerSite, key

_FIRST_CHECK_MS = 5_000
_INTERVAL_MS = 300_000


class _Site(ClusterControllerSite):
    """Broker 2 is the preferred leader of ten partitions; it has restarted, and is in sync again.

    `led` of the partitions have their preferred leader.
    """

    def __init__(self, led: int = 0, **settings: Any) -> None:
        super().__init__({number: (2, 1) for number in range(10)})
        self.config = BrokerConfig(**settings)
        self.start(1, 2)
        # Without a change, the first check does nothing.
        self.run(_FIRST_CHECK_MS)
        self.leave(2)
        self.register(2)
        assert self.leaders() == [1] * 10
        for number in range(10):
            assert self.change_isr(1, 2, number=number) == 0
        self.settle(spawn(self.requests.elect_preferred([key(number) for number in range(led)])))

    def leaders(self) -> list[int]:
        """Return the leaders of all partitions."""
        return [state.leader for state in self.known.state.partitions]


def test_preferred_leaders_lead_again_at_the_next_check() -> None:
    site = _Site()
    site.run(_INTERVAL_MS - 2 * _FIRST_CHECK_MS)
    assert site.leaders() == [1] * 10
    site.run(2 * _FIRST_CHECK_MS)
    assert site.leaders() == [2] * 10
    assert "elected the preferred leaders of 10 partitions" in site.site.ports.reports


def test_first_check_follows_soon_after_the_start_of_a_term() -> None:
    site = ClusterControllerSite({0: (2, 1)})
    site.start(1, 2)
    site.leave(2)
    site.register(2)
    assert site.change_isr(1, 2) == 0
    site.run(_FIRST_CHECK_MS)
    assert site.state().leader == 2


@pytest.mark.parametrize(("led", "is_balanced"), [(9, False), (8, True)])
def test_few_partitions_may_have_another_leader(led: int, is_balanced: bool) -> None:
    site = _Site(led)
    site.run(_INTERVAL_MS)
    assert site.leaders().count(2) == (10 if is_balanced else led)


def test_percentage_is_a_setting() -> None:
    site = _Site(8, leader_imbalance_per_broker_percentage=20)
    site.run(_INTERVAL_MS)
    assert site.leaders().count(2) == 8


def test_interval_is_a_setting() -> None:
    site = _Site(leader_imbalance_check_interval_seconds=20)
    site.run(20_000)
    assert site.leaders() == [2] * 10


def test_nothing_is_elected_while_it_is_disabled() -> None:
    site = _Site(auto_leader_rebalance_enable=False)
    site.run(2 * _INTERVAL_MS)
    assert site.leaders() == [1] * 10
    # A configuration that is read again has an effect at the next check.
    site.config = BrokerConfig()
    site.run(_INTERVAL_MS)
    assert site.leaders() == [2] * 10


def test_partitions_that_are_being_reassigned_keep_their_leader() -> None:
    site = _Site()
    site.register(3)
    moving = spawn(site.cluster.reassignments.alter("t", {0: [2, 3]}))
    assert site.settle(moving) == {}
    site.run(_INTERVAL_MS)
    assert site.leaders() == [1, *[2] * 9]


def test_preferred_leader_that_is_not_in_sync_is_not_elected() -> None:
    site = _Site()
    assert site.change_isr(1, number=0) == 0
    site.run(_INTERVAL_MS)
    assert site.leaders() == [1, *[2] * 9]


def test_ended_term_elects_nothing() -> None:
    site = _Site()
    site.term.end()
    site.cluster.end()
    site.run(2 * _INTERVAL_MS)
    assert site.leaders() == [1] * 10
