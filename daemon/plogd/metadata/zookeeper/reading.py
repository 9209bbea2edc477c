"""Read many znodes at a time into a mirror.

Requests of a group are sent without waiting for each other, and a group is small enough that its
responses do not delay clients of the broker. All functions fail with ConnectionLost or
SessionExpired if the connection is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from plog.zookeeper.operations import NoNode, ZnodeStat
from plogd.metadata.store import Key
from plogd.metadata.zookeeper.mirror import ZnodeMirror
from plogd.metadata.zookeeper.paths import (
    BROKER_CONFIGS,
    BROKER_IDS,
    CLIENTS,
    DELETE_TOPICS,
    FEATURE,
    IPS,
    LITERAL_ACLS,
    LOG_DIR_EVENTS,
    PREFIXED_ACLS,
    PRODUCER_IDS,
    REASSIGN_PARTITIONS,
    RESOURCE_TYPES,
    TOPIC_CONFIGS,
    TOPICS,
    USERS,
    state_path,
)
from plogd.metadata.zookeeper.port import Watch, ZooKeeperClient
from plogd.ports import Later, gather, spawn

_GROUP: Final = 256
"""Number of znodes whose responses are handled in one turn, which takes a few milliseconds."""


async def read_znode(client: ZooKeeperClient, mirror: ZnodeMirror, path: str) -> list[Key]:
    """Read one znode; return the keys that have changed."""
    return await read_znodes(client, mirror, [path])


async def read_znodes(
    client: ZooKeeperClient, mirror: ZnodeMirror, paths: Sequence[str]
) -> list[Key]:
    """Read znodes that may not exist; return the keys that have changed."""
    changed: list[Key] = []
    groups = [paths[start : start + _GROUP] for start in range(0, len(paths), _GROUP)]
    requested = _request(client, groups[0]) if groups else []
    for group, following in zip_longest(groups, groups[1:], fillvalue=()):
        # The server works on the next group while this one is handled.
        next_requested = _request(client, following)
        try:
            found = await gather(requested)
        except Exception:
            spawn(gather(next_requested)).then(_ignore, _ignore)
            raise
        for path, znode in zip(group, found, strict=True):
            changed += mirror.remove(path) if znode is None else mirror.put(path, *znode)
        requested = next_requested
    return changed


def _request(
    client: ZooKeeperClient, paths: Sequence[str]
) -> list[Later[tuple[bytes, ZnodeStat] | None]]:
    return [_unless_missing(client.get(path)) for path in paths]


def _ignore(_: object) -> None:
    """Drop the outcome of requests that nothing waits for."""


def _unless_missing(
    work: Later[tuple[bytes, ZnodeStat]],
) -> Later[tuple[bytes, ZnodeStat] | None]:
    outcome: Later[tuple[bytes, ZnodeStat] | None] = Later()

    def on_error(error: Exception) -> None:
        if isinstance(error, NoNode):
            outcome.succeed(None)
        else:
            outcome.fail(error)

    work.then(outcome.succeed, on_error)
    return outcome


async def names_in(client: ZooKeeperClient, path: str, watch: Watch | None = None) -> list[str]:
    """Return the names of a znode's children, sorted; empty if it does not exist."""
    try:
        return sorted(await client.children(path, watch))
    except NoNode:
        return []


async def read_folder(
    client: ZooKeeperClient, mirror: ZnodeMirror, folder: str, watch: Watch | None = None
) -> list[Key]:
    """Read all children of a znode; return the keys that have changed."""
    paths = [f"{folder}/{name}" for name in await names_in(client, folder, watch)]
    changed = await read_znodes(client, mirror, paths)
    direct = [path for path in mirror.paths_below(folder) if "/" not in path[len(folder) + 1 :]]
    gone = set(direct) - set(paths)
    return changed + [key for path in sorted(gone) for key in mirror.remove(path)]


async def read_shared(client: ZooKeeperClient, mirror: ZnodeMirror) -> list[Key]:
    """Read what every broker knows: settings, quotas, credentials, ACLs and features."""
    changed = await read_znodes(client, mirror, [PRODUCER_IDS, FEATURE])
    for folder in (TOPIC_CONFIGS, BROKER_CONFIGS, CLIENTS, IPS, USERS):
        changed += await read_folder(client, mirror, folder)
    paths: list[str] = []
    for user in await names_in(client, USERS):
        folder = f"{USERS}/{user}/clients"
        paths += [f"{folder}/{name}" for name in await names_in(client, folder)]
    changed += await read_znodes(client, mirror, paths)
    gone = {x for x in mirror.paths_below(USERS) if "/clients/" in x} - set(paths)
    changed += [key for path in sorted(gone) for key in mirror.remove(path)]
    for tree in (LITERAL_ACLS, PREFIXED_ACLS):
        for type_name in RESOURCE_TYPES:
            changed += await read_folder(client, mirror, f"{tree}/{type_name}")
    return changed


async def read_topics(client: ZooKeeperClient, mirror: ZnodeMirror) -> list[Key]:
    """Read all topics and the states of their partitions."""
    topics = [f"{TOPICS}/{name}" for name in await names_in(client, TOPICS)]
    changed = await read_znodes(client, mirror, topics)
    states: list[str] = []
    for topic in topics:
        znode = mirror.znode(topic)
        for key in () if znode is None else znode.keys:
            value, _ = mirror.get(key)
            states += [state_path(str(key[1]), number) for number in value.assignments]
    changed += await read_znodes(client, mirror, states)
    return changed + mirror.retain(TOPICS, [*topics, *states])


async def read_controller_state(client: ZooKeeperClient, mirror: ZnodeMirror) -> list[Key]:
    """Read what only the controller knows: topics, brokers, and requests of other programs."""
    changed = await read_topics(client, mirror)
    for folder in (BROKER_IDS, DELETE_TOPICS, LOG_DIR_EVENTS):
        changed += await read_folder(client, mirror, folder)
    # An operator may have corrected damaged settings, which does not create a notification.
    return changed + await read_znodes(client, mirror, [REASSIGN_PARTITIONS, *mirror.damaged])
