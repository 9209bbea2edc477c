"""`ClusterMetadata`: a broker's metadata store, with what depends on the kind of store at startup.

broker.py uses it. Implementations: embedded_metadata.py for a single broker that stores its
metadata itself, and zookeeper/zookeeper_metadata.py.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from plog.types import TopicPartition
from plogd.metadata.store import BrokerRegistration, MetadataStore
from plogd.ports import Later


class ClusterMetadata(Protocol):
    """The metadata of the broker's cluster. Methods are called in the order in which they appear.

    `stop` can be called at any time.
    """

    def cluster_id(self, known: str, new: str) -> Later[str]:
        """Return the cluster's id.

        `known` is the id in the log directories. If it is empty, a new cluster gets the id `new`.
        Fails with PlogError if the log directories belong to another cluster.
        """
        ...

    def open(self) -> Later[MetadataStore]:
        """Return the store, which is loaded. Fails with PlogError, and never starts empty then."""
        ...

    def keep_room(self) -> Later[bool]:
        """Reserve disk space for metadata records; return whether enough space is reserved."""
        ...

    def register(self, registration: BrokerRegistration) -> Later[int]:
        """Register this broker as `MetadataStore.register_broker` does, and keep it registered."""
        ...

    def started(self) -> None:
        """Note that the broker serves requests."""
        ...

    @property
    def problem(self) -> str:
        """What prevents writes of records or metadata, for the broker's status, or ""."""
        ...

    def logs_failed(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Note that the log directory of these logs has failed."""
        ...

    def stop(self) -> Later[Any]:
        """End the registration and all writes; called before the logs are closed."""
        ...
