"""The state of the cluster in ZooKeeper, read once.

Only the controller follows topics and brokers. The others read them when they start and register,
and when they look for topics that were deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from plogd.metadata.store import Key
from plogd.metadata.zookeeper.mirror import ZnodeMirror
from plogd.metadata.zookeeper.paths import BROKER_IDS, DELETE_TOPICS, topic_of_path, topic_path
from plogd.metadata.zookeeper.reading import read_folder, read_topics, read_znodes
from plogd.metadata.zookeeper.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCluster:
    """Topics, partitions, registered brokers and pending deletions, read in one pass."""

    values: Mapping[Key, Any]
    damaged_topics: frozenset[str]
    """The topics with a znode that cannot be decoded. They must stay offline."""

    @classmethod
    def of(cls, mirror: ZnodeMirror, damaged: Iterable[str], *kinds: str) -> StoredCluster:
        """Return the values of these kinds; `damaged` are the paths of other damaged znodes."""
        found = [item for kind in kinds for item in mirror.load((kind,)).items()]
        names = map(topic_of_path, (*damaged, *mirror.damaged))
        return cls(
            values={key: value for key, (value, _) in found},
            damaged_topics=frozenset(name for name in names if name is not None),
        )


async def read_stored_cluster(
    session: Session, mirror: ZnodeMirror, damaged: Iterable[str]
) -> StoredCluster:
    """Read all topics, partitions, registered brokers and pending deletions into a new mirror."""
    # A server that lags behind may show states from before the registration.
    await session.sync()
    await read_topics(session, mirror)
    await read_folder(session, mirror, BROKER_IDS)
    await read_folder(session, mirror, DELETE_TOPICS)
    return StoredCluster.of(mirror, damaged, "topic", "partition", "broker", "delete_topic")


async def read_stored_topics(
    session: Session, mirror: ZnodeMirror, damaged: Iterable[str], names: Collection[str]
) -> StoredCluster:
    """Read the assignments of those topics that exist into a new mirror."""
    await session.sync()
    await read_znodes(session, mirror, [topic_path(name) for name in sorted(names)])
    return StoredCluster.of(mirror, damaged, "topic")
