"""What clients find out and count wherever they are: in the simulated world, and in an arena."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.sim.admins import TopicPlan
from tests.sim.checker import Anomaly


class Stage:
    """The topics there are to be, ids that were given out, times of trouble, and a summary."""

    def __init__(self, plans: Iterable[TopicPlan]) -> None:
        self.plans: list[TopicPlan] = list(plans)
        self.counts: Counter[str] = Counter()
        self._producer_ids: set[tuple[int, int]] = set()
        self._troubles = 0

    @property
    def forgives_bugs(self) -> bool:
        """Whether clients may be told of an unexpected error."""
        return False

    def count(self, what: str, number: int = 1) -> None:
        """Count something for the summary."""
        self.counts[what] += number

    def plan_of(self, topic: str) -> TopicPlan | None:
        """The plan of a topic that stays."""
        return next((plan for plan in self.plans if plan.name == topic), None)

    def may_be_deleted(self, topic: str) -> bool:
        """Whether the topic is one that comes and goes, so that its name alone says little."""
        return self.plan_of(topic) is None

    def take_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        """A producer was given this id; it must be nobody else's."""
        if (producer_id, producer_epoch) in self._producer_ids:
            raise Anomaly("duplicate-producer-id", f"{producer_id} epoch {producer_epoch}")
        self._producer_ids.add((producer_id, producer_epoch))

    @contextmanager
    def trouble(self) -> Iterator[None]:
        """While the disk is in trouble, slow or missing answers are nobody's bug."""
        self._troubles += 1
        try:
            yield
        finally:
            self._troubles -= 1
