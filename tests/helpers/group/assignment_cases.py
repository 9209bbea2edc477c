"""Groups that rebalance again and again, for tests of assignors, with their subscriptions.

Each group goes through realistic rebalances: members join and leave, topics grow, a member misses
the last rebalances and still claims its old partitions. A seed generates them, so that a failure is
reproducible.
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
    """One rebalance, as the leader sees it."""

    assignor: str
    partition_counts: Mapping[str, int]
    subscriptions: Mapping[str, Subscription]


class Group:
    """The members of one group, and the assignments that they remember."""

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
        """Change the group at random; return the subscriptions of its members."""
        change = self._random.random()
        if not self._assignors or change < 0.6:
            for _ in range(self._random.randint(1, 3)):
                self._join()
        if len(self._assignors) > 1 and change > 0.4:
            left = self._random.choice(sorted(self._assignors))
            del self._assignors[left], self._subscriptions[left]
        if self._random.random() < 0.3:
            self._counts[self._random.choice(sorted(self._counts))] += 1
        if not self._all_want_the_same and self._random.random() < 0.3:
            member = self._random.choice(sorted(self._subscriptions))
            self._subscriptions[member] = replace(
                self._subscriptions[member], topics=self._choose_topics()
            )
        members = list(self._assignors)
        self._random.shuffle(members)
        subscriptions = {member: self._subscription(member) for member in members}
        wanted = {topic for one in subscriptions.values() for topic in one.topics}
        counts = {topic: count for topic, count in self._counts.items() if topic in wanted}
        return Case(assignor=self._name, partition_counts=counts, subscriptions=subscriptions)

    def divided(self, shares: Mapping[str, Assignment]) -> None:
        """Apply an assignment; occasionally a member does not receive its part."""
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

    def _join(self) -> None:
        self._made += 1
        member = f"member-{self._made}-{self._random.getrandbits(32):08x}"
        [self._assignors[member]] = assignors_from([self._name])
        self._subscriptions[member] = Subscription(
            topics=self._choose_topics(),
            group_instance_id=f"i{self._made}" if self._random.random() < 0.2 else None,
        )

    def _choose_topics(self) -> tuple[str, ...]:
        topics = sorted(self._counts)
        if self._all_want_the_same:
            return tuple(topics)
        return tuple(self._random.sample(topics, self._random.randint(1, len(topics))))

    def _subscription(self, member: str) -> Subscription:
        one = self._subscriptions[member]
        return replace(one, user_data=self._assignors[member].user_data(one.topics))
