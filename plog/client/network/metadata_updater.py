"""Fetch the cluster's metadata, and keep it fresh for the topics that the client uses.

`MetadataUpdater` is the base class of `Cluster`. It keeps the snapshot (metadata.py), replaces it
after each Metadata response, and refreshes it when it is stale, incomplete or old. cluster.py
selects brokers and manages connections.

Source: Kafka 4.3 Metadata, NetworkClient.DefaultMetadataUpdater; KIP-526.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from plog.client.errors import ClosedError, error_about
from plog.client.network.backoff import Backoff
from plog.client.network.deadline import Deadline
from plog.client.network.leader_hints import LeaderEndpoint, Leaders, with_leaders
from plog.client.network.metadata import (
    ClusterMetadata,
    TopicMetadata,
    check_topic_names,
    problem_of,
)
from plog.client.network.ports import Cancelled, Network, Task
from plog.client.settings import ClientSettings
from plog.errors import ErrorCode, KafkaError, PlogError
from plog.types import TopicPartition
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from plog.wire.schema import ApiMessage

log = logging.getLogger("plog.client")

R = TypeVar("R", bound=ApiMessage)

# For a while, a broker may report a new topic as unknown or without leaders.
_NOT_YET = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE})


class MetadataUpdater:
    """The metadata snapshot and the task that refreshes it. Use only in the network's thread.

    With `auto_create_topics`, brokers may create missing topics that the client looks up.
    """

    def __init__(
        self, network: Network, settings: ClientSettings, *, auto_create_topics: bool
    ) -> None:
        self.network = network
        self.metadata = ClusterMetadata()
        self.on_update: list[Callable[[ClusterMetadata], None]] = []
        """Called with each new snapshot."""
        self.on_refusal: list[Callable[[KafkaError], None]] = []
        """Called when brokers reject Metadata requests for a reason that a retry cannot fix."""
        self.auto_create_topics = auto_create_topics
        self._settings = settings
        self._wanted: set[str] = set()
        self._wants_all = False
        self._stale = network.signal()
        self._refresher: Task | None = None
        self._last_failure = ""
        self._is_closed = False

    @property
    def settings(self) -> ClientSettings:
        """The client's settings."""
        return self._settings

    # -- provided by Cluster ------------------------------------------------------------------

    async def _ask_some(self, request: ApiMessage, response: type[R], deadline: Deadline) -> R:
        """Send a request to any broker; after a failure, try the others until the deadline."""
        raise NotImplementedError

    def _brokers_changed(self) -> None:
        """Update the connections after the list of brokers has changed."""
        raise NotImplementedError

    def _close_idle_connections(self) -> None:
        """Close connections that have been unused for ``connections.max.idle.ms``."""
        raise NotImplementedError

    # -- which topics -------------------------------------------------------------------------

    def want_topics(self, topics: Collection[str]) -> None:
        """Keep the metadata of exactly these topics fresh from now on.

        Raises InvalidTopicException for an invalid topic name.
        """
        check_topic_names(topics)
        added = set(topics) - self._wanted
        self._wanted = set(topics)
        self._keep_fresh()
        # An added topic was not kept fresh until now, so its error may be out of date.
        self.metadata = self.metadata.without_errors(added)
        if any(name not in self.metadata.topics for name in self._wanted):
            self.request_update()

    def add_topic(self, topic: str) -> None:
        """Keep the metadata of one more topic fresh."""
        if topic not in self._wanted:
            self.want_topics(self._wanted | {topic})

    @property
    def wants_all_topics(self) -> bool:
        """Whether the metadata of all topics is kept fresh."""
        return self._wants_all

    def forget_topics(self, topics: Collection[str]) -> None:
        """Stop keeping the metadata of these topics fresh."""
        # The metadata stays in the snapshot, but it is no longer refreshed.
        self._wanted = self._wanted.difference(topics)

    def want_all_topics(self, wanted: bool) -> None:
        """Keep the metadata of all existing topics fresh, for a subscription by pattern."""
        self._wants_all = wanted
        self._keep_fresh()
        self.request_update()

    def request_update(self) -> None:
        """Refresh the snapshot soon, because part of it is stale."""
        self._stale.set()

    # -- refreshing ---------------------------------------------------------------------------

    def backoff(self, deadline: Deadline | None = None) -> Backoff:
        """Return a backoff between attempts, by default until ``default.api.timeout.ms``."""
        settings = self._settings
        return Backoff(
            self.network,
            first_s=settings.retry_backoff_ms / 1000,
            longest_s=settings.retry_backoff_max_ms / 1000,
            deadline=deadline or self.deadline(),
        )

    def deadline(self, timeout_s: float | None = None) -> Deadline:
        """Return the deadline for a call that starts now (default: ``default.api.timeout.ms``)."""
        if timeout_s is None:
            timeout_s = self._settings.default_api_timeout_ms / 1000
        return Deadline(self.network, timeout_s)

    async def refresh(
        self,
        topics: Collection[str] | None = None,
        *,
        all_topics: bool = False,
        deadline: Deadline | None = None,
    ) -> ClusterMetadata:
        """Fetch the metadata of `topics`, by default of all topics that are kept fresh.

        With an empty collection, fetch only the brokers. Raises the same errors as
        `Cluster.ask_any`.
        """
        deadline = deadline or self.deadline()
        if self._settings.uses_controllers:
            return await self._refresh_controllers(deadline)
        # For a pattern, request all topics each time, so that deleted topics disappear.
        every = all_topics or (topics is None and self._wants_all)
        names = sorted(self._wanted if topics is None else topics)
        request = MetadataRequest(
            topics=None if every else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=self.auto_create_topics,
        )
        response = await self._ask_some(request, MetadataResponse, deadline)
        # From version 13 on, a response can contain an error for the whole request (KIP-1102).
        if response.error_code:
            raise error_about(response.error_code, "metadata")
        self._learn(response, replace_topics=every)
        return self.metadata

    async def _refresh_controllers(self, deadline: Deadline) -> ClusterMetadata:
        # Few clients bootstrap from controllers, so import it only here.
        from plog.client.network.bootstrap_controllers import ask_controllers

        response = await ask_controllers(
            lambda request, answer: self._ask_some(request, answer, deadline)
        )
        self._learn(response, replace_topics=True)
        return self.metadata

    def _learn(self, response: MetadataResponse, *, replace_topics: bool) -> None:
        self._take_over(self.metadata.updated(response, replace_topics=replace_topics))

    def _take_over(self, metadata: ClusterMetadata) -> None:
        self.metadata = metadata
        self._brokers_changed()
        log.debug("%s", self.metadata)
        # A listener may remove another listener, so iterate over a copy.
        for listener in tuple(self.on_update):
            listener(self.metadata)

    def learn_leaders(
        self, leaders: Leaders, endpoints: Iterable[LeaderEndpoint]
    ) -> frozenset[TopicPartition]:
        """Take over leaders that a response names (KIP-951).

        Returns the partitions whose leader has changed, so that new metadata is not necessary.
        """
        metadata, moved = with_leaders(self.metadata, leaders, endpoints)
        if moved:
            self._take_over(metadata)
        return moved

    def _keep_fresh(self) -> None:
        if self._refresher is None and not self._is_closed:
            self._refresher = self.network.spawn(self._refresh_when_stale(), "refreshing metadata")

    async def _refresh_when_stale(self) -> None:
        """Refresh when part of the snapshot is stale or all of it is old; back off on failures."""
        settings = self._settings
        backoff = self.backoff(self.deadline(math.inf))
        while not self._is_closed:
            await self._stale.wait(settings.metadata_max_age_ms / 1000)
            self._stale.clear()
            # Closing idle connections here saves a separate timer.
            self._close_idle_connections()
            try:
                await self.refresh()
                self._last_failure = ""
            except (Cancelled, ClosedError):
                raise
            except Exception as error:
                # Retry even after an unexpected error: without metadata, the client cannot work.
                self._refresh_failed(error)
                self._stale.set()
            # For a new topic, or during an election, leaders are missing. Refresh again after the
            # backoff.
            if self._lacks_leaders():
                self._stale.set()
            # The backoff grows only while part of the snapshot stays stale.
            if not self._stale.is_set:
                backoff = self.backoff(self.deadline(math.inf))
            await backoff.wait()

    def _refresh_failed(self, error: Exception) -> None:
        """Log a failure: as a warning if it is new or a bug, otherwise at debug level."""
        # The same failure repeats with every attempt, so only the first one is a warning.
        is_news, self._last_failure = str(error) != self._last_failure, str(error)
        is_bug = not isinstance(error, PlogError)
        level = logging.WARNING if is_news or is_bug else logging.DEBUG
        log.log(level, "metadata refresh failed: %s", error, exc_info=error if is_bug else None)
        # A retry does not help against a permanent error, such as a missing permission, so notify
        # the application.
        if isinstance(error, KafkaError) and not error.retriable:
            for listener in tuple(self.on_refusal):
                listener(error)

    def _lacks_leaders(self) -> bool:
        brokers = self.metadata.brokers

        def lacks(topic: TopicMetadata | None) -> bool:
            # Only these errors are expected to disappear without intervention.
            if topic is None or topic.error:
                return topic is None or topic.error in _NOT_YET
            return not topic.has_leaders or any(p.leader not in brokers for p in topic.partitions)

        return any(lacks(self.metadata.topics.get(name)) for name in self._wanted)

    async def topic(self, name: str, *, deadline: Deadline | None = None) -> TopicMetadata:
        """Return a topic's metadata when the topic exists and all of its partitions have leaders.

        Raises TopicAuthorizationFailed and InvalidTopicException immediately, and
        UnknownTopicOrPartition or LeaderNotAvailable at the deadline.
        """
        backoff = self.backoff(deadline)
        check_topic_names((name,))
        # Metadata of a topic that is not kept fresh may be out of date.
        is_fresh = self._wants_all or name in self._wanted
        known = self.metadata.topics.get(name) if is_fresh else None
        while known is None or known.error or not known.has_leaders:
            try:
                refreshed = await self.refresh((name,), deadline=backoff.deadline)
                known = refreshed.topics.get(name)
                error = problem_of(name, known)
            except KafkaError as failure:
                error = failure
            if error is not None:
                if not error.retriable:
                    raise error
                await backoff.wait_or_raise(error)
        return known
