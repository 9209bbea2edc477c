"""Which committed offsets expire, by the state of the group and the time of the commit."""

from __future__ import annotations

import pytest

from plog.settings import DAY_MS, LONG_MAX
from plogd.coordinator.runtime.coordinator_result import Result
from tests.helpers.sim.sim_time import START_MS
from tests.unit.coordinator.group.test_offset_metadata_manager import (
    FakeGroup,
    GroupState,
    Site,
    at,
)


@pytest.fixture
def site() -> Site:
    return Site()


def test_offsets_of_a_simple_group_expire_by_commit_time(site: Site) -> None:
    site.commit(at(1))
    site.clock.jump_wall(DAY_MS)
    site.commit(at(2, partition=1))
    site.clock.jump_wall(6 * DAY_MS - 1)
    assert site.expire() == (0, False)
    site.clock.jump_wall(1)
    assert site.expire() == (1, False)
    assert (site.fetch().offset, site.fetch("t", 1).offset) == (-1, 2)
    site.clock.jump_wall(DAY_MS)
    assert site.expire() == (1, True)


@pytest.mark.parametrize(
    ("group", "expired", "is_all"),
    [
        (FakeGroup(state=GroupState.EMPTY, empty_since=START_MS), 2, True),
        (FakeGroup(state=GroupState.EMPTY, empty_since=START_MS + 1), 0, False),
        (FakeGroup(state=GroupState.EMPTY, empty_since=None), 2, True),
        (FakeGroup(state=GroupState.EMPTY, protocol_type="connect", empty_since=START_MS), 2, True),
        (FakeGroup(subscribed_topics={"t"}), 1, False),
        (FakeGroup(subscribed_topics={"t", "u"}), 0, False),
        (FakeGroup(subscribed_topics=()), 2, True),
        (FakeGroup(subscribed_topics=None), 0, False),
        (FakeGroup(state=GroupState.PREPARING, subscribed_topics=()), 0, False),
        (FakeGroup(protocol_type="connect", subscribed_topics=None), 0, False),
    ],
)
def test_offsets_expired_after_a_week(group: FakeGroup, expired: int, is_all: bool) -> None:
    site = Site()
    site.commit(at(1), at(2, "u"))
    site.groups.special["g"] = group
    site.clock.jump_wall(7 * DAY_MS)
    assert site.expire() == (expired, is_all)


def test_retention_time_of_an_old_client_applies(site: Site) -> None:
    site.commit(at(1), version=4, retention_time_ms=1000)
    site.commit(at(2, "u"), version=4, retention_time_ms=-1)
    site.clock.jump_wall(999)
    assert site.expire() == (0, False)
    site.clock.jump_wall(1)
    assert site.expire() == (1, False)


def test_maximum_retention_time_never_expires(site: Site) -> None:
    assert site.commit(at(1), version=4, retention_time_ms=LONG_MAX) == [0]
    site.clock.jump_wall(3650 * DAY_MS)
    assert site.expire() == (0, False)


def test_nothing_expires_when_the_wall_clock_goes_back(site: Site) -> None:
    site.commit(at(1))
    site.clock.jump_wall(-30 * DAY_MS)
    assert site.expire() == (0, False)


def test_group_without_offsets_has_nothing_left_after_expiration(site: Site) -> None:
    site.groups.get_or_create_simple("g")
    assert site.expire() == (0, True)


def test_offset_does_not_expire_while_its_transaction_is_open(site: Site) -> None:
    site.put(1)
    site.put(2, producer_id=7)
    site.put(3, partition=1)
    site.clock.jump_wall(30 * DAY_MS)
    assert site.expire() == (1, False)


def test_expired_returns_at_most_the_requested_number(site: Site) -> None:
    site.commit(*(at(1, partition=number) for number in range(3)))
    site.clock.jump_wall(7 * DAY_MS)
    group = site.groups.group("g")
    assert group is not None
    for left in (True, False):
        records, is_all = site.offsets.expired("g", group, 2)
        assert (len(records), is_all) == ((2, False) if left else (1, True))
        site.apply(Result(records=records, response=None))
