"""A consumer's subscription and its listener, with or without a group."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from plog.client.consumer.rebalance_listener import CallUser, ConsumerRebalanceListener, Listening
from plog.client.consumer.topic_selection import TopicSelection
from plog.client.network.cluster import Cluster
from plog.client.settings import ConsumerSettings


class ConsumerSubscription:
    """The common base of `GroupMember` and `StandaloneMember`.

    `on_attention` is called whenever `attend` has work to do, to wake a waiting poll.
    """

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, call_user: CallUser) -> None:
        self.on_attention: Callable[[], None] = lambda: None
        self._cluster = cluster
        self._settings = settings
        self._call_user = call_user
        self._selection: TopicSelection | None = None
        self._listening = Listening(None, call_user)

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to these topics, or to all topics whose full name matches `pattern`.

        The call replaces the previous subscription; its partitions are revoked at the next poll.
        `listener` is a `RebalanceListener`, or an object with the same methods.
        """
        # Check both arguments before changing the state, so that a rejected call has no effect.
        listening = Listening(listener, self._call_user)
        self._selection = TopicSelection.of(
            topics, pattern, excludes_internal=self._settings.exclude_internal_topics
        )
        self._listening = listening
        # Matching a pattern requires the names of all topics.
        if (pattern is not None) != self._cluster.wants_all_topics:
            self._cluster.want_all_topics(pattern is not None)
        # For a pattern, this call removes the names of the previous subscription.
        self._cluster.want_topics(self._selection.topics)

    def _unsubscribe(self) -> None:
        if self._selection is not None and self._selection.pattern is not None:
            self._cluster.want_all_topics(False)
        self._selection = None

    @property
    def named_topics(self) -> frozenset[str]:
        """The topics subscribed by name, whether or not they exist."""
        return frozenset() if self._selection is None else self._selection.topics

    @property
    def is_subscribed(self) -> bool:
        """Whether a subscription determines the assignment, rather than `assign`."""
        return self._selection is not None

    @property
    def subscription(self) -> frozenset[str]:
        """The subscribed topics; for a pattern, the topics that currently match it."""
        if self._selection is None:
            return frozenset()
        return self._selection.wanted(self._cluster.metadata)
