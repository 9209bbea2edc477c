"""The shares of logs, clients and the broker in the descriptors of a process."""

from __future__ import annotations

import contextlib

import pytest

from plogd.descriptor_budget import UNLIMITED, DescriptorBudget

LIMITS = [256, 1024, 1500, 20_000, 1 << 20]


@pytest.mark.parametrize("limit", LIMITS)
def test_logs_clients_and_broker_together_never_exceed_the_limit(limit: int) -> None:
    budget, clients = DescriptorBudget(limit), 0
    budget.clients = lambda: clients
    budget.open_on_demand = lambda: budget.max_idle
    while budget.has_room_for_client():
        clients += 1
    _write_all(budget)
    assert clients + budget.writing + budget.max_idle < limit
    assert clients > limit // 2


@pytest.mark.parametrize("limit", LIMITS)
def test_logs_leave_clients_their_share(limit: int) -> None:
    budget, clients = DescriptorBudget(limit), 0
    budget.clients = lambda: clients
    budget.open_on_demand = lambda: budget.max_idle
    _write_all(budget)
    assert budget.writing > limit // 3
    while budget.has_room_for_client():
        clients += 1
    assert clients + budget.writing + budget.max_idle < limit
    assert clients >= limit // 4 - limit // 16


@pytest.mark.parametrize("limit", LIMITS)
def test_maximum_number_of_logs_can_be_written_and_some_rolled(limit: int) -> None:
    budget = DescriptorBudget(limit)
    for _ in range(budget.max_logs):
        budget.take_for_writing("/t-0")
    budget.take_for_writing("/rolled")
    assert budget.max_logs > limit // 3


def test_low_client_limit_leaves_more_descriptors_to_logs() -> None:
    assert DescriptorBudget(1000, max_clients=10).max_logs > DescriptorBudget(1000).max_logs


def test_nothing_is_refused_without_a_known_limit() -> None:
    budget = DescriptorBudget()
    assert budget.limit == UNLIMITED
    assert budget.max_logs > 10**6
    assert budget.has_room_for_client()


def _write_all(budget: DescriptorBudget) -> None:
    with contextlib.suppress(OSError):
        while True:
            budget.take_for_writing("/t-0")
    with pytest.raises(OSError, match="reserved"):
        budget.take_for_writing("/t-0")


@pytest.mark.parametrize("limit", LIMITS)
def test_maximum_number_of_clients_is_reached_without_logs(limit: int) -> None:
    budget, clients = DescriptorBudget(limit), 0
    budget.clients = lambda: clients
    while budget.has_room_for_client():
        clients += 1
    assert clients == budget.max_clients
