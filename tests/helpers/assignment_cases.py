"""Groups that meet again and again, for tests of assignors: what their members tell each time.

A group is led through rebalances as they happen: members come and go, topics grow, somebody missed
the last rebalances and still claims what it had then. Made from a seed, so that a failure comes
again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from plog.client.assignors import Assignment, Assignor, Subscription
from plog.client.assignors.assignor_registry import assignors_from

_TOPICS = ("alpha", "beta", "gamma", "delta")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One meeting: what the leader knows."""

    assignor: str
    partition_counts: Mapping[str, int]
    subscriptions: Mapping[str, Subscription]


class Group:
    """Members of one group and what they remember."""

    def __init__(self, seed: int, assignor: str) -> None:
        self._random = random.Random(seed)
        self._name = assignor
        self._counts = {
            topic: self._random.randint(1, 9)
            for topic in self._random.sample(_TOPICS, self._random.randint(1, len(_TOPICS)))
        }
        self._all_want_the_same = self._random.random() < 0.5
        self._generation = 0
        self._made = 0
        self._assignors: dict[str, Assignor] = {}
        self._subscriptions: dict[str, Subscription] = {}

    def meet(self) -> Case:
        """Somebody comes, goes, or wants something else: what members tell then."""
        change = self._random.random()
        if not self._assignors or change < 0.6:
            for _ in range(self._random.randint(1, 3)):
                self._come()
        if len(self._assignors) > 1 and change > 0.4:
            gone = self._random.choice(sorted(self._assignors))
            del self._assignors[gone], self._subscriptions[gone]
        if self._random.random() < 0.3:
            self._counts[self._random.choice(sorted(self._counts))] += 1
        if not self._all_want_the_same and self._random.random() < 0.3:
            member = self._random.choice(sorted(self._subscriptions))
            self._subscriptions[member] = replace(
                self._subscriptions[member], topics=self._wishes()
            )
        members = list(self._assignors)
        self._random.shuffle(members)
        told = {member: self._told(member) for member in members}
        wanted = {topic for one in told.values() for topic in one.topics}
        counts = {topic: count for topic, count in self._counts.items() if topic in wanted}
        return Case(assignor=self._name, partition_counts=counts, subscriptions=told)

    def divided(self, shares: Mapping[str, Assignment]) -> None:
        """What came of it; now and then somebody does not hear of it."""
        self._generation += 1
        for member, share in shares.items():
            if self._random.random() < 0.15:
                continue
            self._assignors[member].on_assignment(share, self._generation)
            self._subscriptions[member] = replace(
                self._subscriptions[member],
                owned_partitions=share.partitions if self._name.startswith("coop") else (),
                generation_id=self._generation,
            )

    def _come(self) -> None:
        self._made += 1
        member = f"member-{self._made}-{self._random.getrandbits(32):08x}"
        [self._assignors[member]] = assignors_from([self._name])
        self._subscriptions[member] = Subscription(
            topics=self._wishes(),
            group_instance_id=f"i{self._made}" if self._random.random() < 0.2 else None,
        )

    def _wishes(self) -> tuple[str, ...]:
        topics = sorted(self._counts)
        if self._all_want_the_same:
            return tuple(topics)
        return tuple(self._random.sample(topics, self._random.randint(1, len(topics))))

    def _told(self, member: str) -> Subscription:
        one = self._subscriptions[member]
        return replace(one, user_data=self._assignors[member].user_data(one.topics))
