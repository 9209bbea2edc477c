"""Shared state of the clients, in the simulated world and in tests/fault/arena.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from plog.errors import ErrorCode
from tests.sim.admins import TopicPlan
from tests.sim.checker import Anomaly


class Stage:
    """The planned topics, the assigned producer ids, times of disk faults, and a summary."""

    has_several_brokers = False
    """Whether clients have to find the leaders of partitions, the controller and coordinators."""
    cluster_errors: frozenset[ErrorCode] = frozenset()
    """Errors that clients may receive only because brokers of a cluster are missing."""
    clock_drift = 0.0
    """The largest relative error of the brokers' clocks."""
    usual_replicas = 1
    """The replication factor of topics that have no special one."""
    service: Any

    def __init__(self, plans: Iterable[TopicPlan]) -> None:
        self.plans: list[TopicPlan] = list(plans)
        self.counts: Counter[str] = Counter()
        self._producer_ids: set[tuple[int, int]] = set()
        self._troubles = 0

    @property
    def forgives_bugs(self) -> bool:
        """Whether clients may receive an unexpected error."""
        return False

    def writer_at(self, connection: object) -> int:
        """Return the number of the process that answers on this open connection."""
        number: int = self.service.life_number
        return number

    def coordinator_term(self, group: str, connection: object) -> int | None:
        """Return a number of the term in which the broker at the other end coordinates a group.

        Larger numbers are later. None if it is not the group's coordinator.
        """
        number: int = self.service.coordinator_life
        return number

    def leader_epoch(self, topic: str, partition: int, connection: object) -> int | None:
        """Return a number of the term in which the broker at the other end leads a partition.

        None if it is not the leader.
        """
        return 0

    def count(self, what: str, number: int = 1) -> None:
        """Count an event for the summary."""
        self.counts[what] += number

    def plan_of(self, topic: str) -> TopicPlan | None:
        """Return the plan of a permanent topic."""
        return next((plan for plan in self.plans if plan.name == topic), None)

    def may_write(self, topic: str) -> bool:
        """Return whether clients may write to the topic."""
        plan = self.plan_of(topic)
        return plan is None or plan.is_written_by_clients

    def may_read(self, topic: str) -> bool:
        """Return whether clients may read the topic."""
        plan = self.plan_of(topic)
        return plan is None or plan.is_read_by_clients

    def may_be_deleted(self, topic: str) -> bool:
        """Return whether the topic may be deleted and recreated, so that its name is not unique."""
        return self.plan_of(topic) is None

    def take_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        """Record that a producer received this id; no other producer may have it."""
        if (producer_id, producer_epoch) in self._producer_ids:
            raise Anomaly("duplicate-producer-id", f"{producer_id} epoch {producer_epoch}")
        self._producer_ids.add((producer_id, producer_epoch))

    @contextmanager
    def trouble(self) -> Iterator[None]:
        """While the disk has faults, slow or missing responses are not a bug."""
        self._troubles += 1
        try:
            yield
        finally:
            self._troubles -= 1
