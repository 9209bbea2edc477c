"""What a consumer has subscribed to, and who hears of its partitions, with a group or without."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from plog.client.consumer.rebalance_listener import CallUser, ConsumerRebalanceListener, Listening
from plog.client.consumer.topic_selection import TopicSelection
from plog.client.network.cluster import Cluster
from plog.client.settings import ConsumerSettings


class ConsumerSubscription:
    """What a `GroupMember` and a `StandaloneMember` have in common.

    `on_attention` is called whenever `attend` has something to do: wake the poll that waits.
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
        """Read these topics from now on, or all whose whole name matches `pattern`.

        What else was subscribed to is no more; its partitions go with the next poll. `listener` is
        a `RebalanceListener` or has methods of the same names.
        """
        listening = Listening(listener, self._call_user)
        self._selection = TopicSelection.of(
            topics, pattern, excludes_internal=self._settings.exclude_internal_topics
        )
        self._listening = listening
        if (pattern is not None) != self._cluster.wants_all_topics:
            self._cluster.want_all_topics(pattern is not None)
        self._cluster.want_topics(self._selection.topics)

    def _unsubscribe(self) -> None:
        if self._selection is not None and self._selection.pattern is not None:
            self._cluster.want_all_topics(False)
        self._selection = None

    @property
    def named_topics(self) -> frozenset[str]:
        """The topics that are subscribed to by name, whether they exist or not."""
        return frozenset() if self._selection is None else self._selection.topics

    @property
    def is_subscribed(self) -> bool:
        """Whether topics decide about the partitions, and not `assign`."""
        return self._selection is not None

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are wanted now."""
        if self._selection is None:
            return frozenset()
        return self._selection.wanted(self._cluster.metadata)
