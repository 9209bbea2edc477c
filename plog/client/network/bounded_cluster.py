"""A view of the `Cluster` for one call: all requests end at the call's deadline.

A call that uses a `BoundedCluster` in place of the `Cluster` need not pass its deadline to each
request. admin/base.py creates a view for each operation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from plog.client.network.backoff import Backoff
from plog.client.network.deadline import Deadline
from plog.client.network.metadata import ClusterMetadata, TopicMetadata
from plog.client.network.ports import Network
from plog.client.settings import ClientSettings
from plog.wire.schema import ApiMessage

if TYPE_CHECKING:
    from plog.client.network.cluster import Cluster
    from plog.client.network.connection import Connection

R = TypeVar("R", bound=ApiMessage)


class BoundedCluster:
    """A `Cluster` with one call's `Deadline`. Its methods behave like those of `Cluster`."""

    __slots__ = ("_cluster", "deadline")

    def __init__(self, cluster: Cluster, deadline: Deadline) -> None:
        self._cluster = cluster
        self.deadline = deadline

    @property
    def network(self) -> Network:
        """The cluster's network."""
        return self._cluster.network

    @property
    def settings(self) -> ClientSettings:
        """The client's settings."""
        return self._cluster.settings

    @property
    def metadata(self) -> ClusterMetadata:
        """The newest metadata snapshot."""
        return self._cluster.metadata

    def backoff(self) -> Backoff:
        """Return a backoff between attempts that ends at the call's deadline."""
        return self._cluster.backoff(self.deadline)

    async def connection(self, node_id: int) -> Connection:
        """See `Cluster.connection`."""
        return await self._cluster.connection(node_id, deadline=self.deadline)

    async def ask_node(self, node_id: int, request: ApiMessage, response: type[R]) -> R:
        """See `Cluster.ask_node`."""
        return await self._cluster.ask_node(node_id, request, response, deadline=self.deadline)

    async def ask_any(self, request: ApiMessage, response: type[R]) -> R:
        """See `Cluster.ask_any`."""
        return await self._cluster.ask_any(request, response, deadline=self.deadline)

    async def ask_controller(
        self,
        request: ApiMessage,
        response: type[R],
        *,
        retry_on: Callable[[R], bool] = lambda _: False,
    ) -> R:
        """See `Cluster.ask_controller`."""
        return await self._cluster.ask_controller(
            request, response, deadline=self.deadline, retry_on=retry_on
        )

    async def refresh(
        self, topics: Collection[str] | None = None, *, all_topics: bool = False
    ) -> ClusterMetadata:
        """See `MetadataUpdater.refresh`."""
        return await self._cluster.refresh(topics, all_topics=all_topics, deadline=self.deadline)

    async def topic(self, name: str) -> TopicMetadata:
        """See `MetadataUpdater.topic`."""
        return await self._cluster.topic(name, deadline=self.deadline)

    async def coordinator(self, group: str) -> int:
        """See `Cluster.coordinator`."""
        return await self._cluster.coordinator(group, deadline=self.deadline)

    def forget_coordinator(self, group: str) -> None:
        """See `Cluster.forget_coordinator`."""
        self._cluster.forget_coordinator(group)
