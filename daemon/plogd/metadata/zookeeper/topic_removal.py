"""Remove a topic's znodes, in as many transactions as it takes.

The order is Kafka's: the partitions, the topic, its settings, and last the mark that the topic is
being deleted. Each transaction checks the controller's epoch. If the broker dies in between, the
mark remains, and the next controller continues. Source: Kafka 3.9
TopicDeletionManager.completeDeleteTopic, KafkaZkClient.deleteTopicZNode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from plog.zookeeper.operations import (
    ANY_VERSION,
    Delete,
    MultiFailed,
    NoNode,
    Operation,
)
from plogd.metadata.store import ABSENT, Conflict, Fenced, Key, Written
from plogd.metadata.zookeeper.config_znodes import decode_config
from plogd.metadata.zookeeper.mirror import ZnodeMirror
from plogd.metadata.zookeeper.paths import (
    DELETE_TOPICS,
    TOPIC_CONFIGS,
    partitions_path,
    topic_path,
)
from plogd.metadata.zookeeper.reading import names_in, read_znode
from plogd.metadata.zookeeper.session import LOST, Session
from plogd.metadata.zookeeper.write_plan import Fencing, WriteUnit, config_notification

_GROUP: Final = 64
"""Number of operations in one transaction, besides the check."""
_LAST_OPERATIONS: Final = 5


async def remove_topic(
    unit: WriteUnit,
    session: Session,
    mirror: ZnodeMirror,
    fencing: Fencing,
    changed: Callable[[Iterable[Key]], None],
) -> None:
    """Remove the topic, unless its version does not match; set the unit's outcome."""
    [change] = unit.changes
    name = str(change.key[1])
    path = topic_path(name)
    # The mirror of a former controller is empty.
    if unit.term is not None and fencing.fence(unit.term) is None:
        unit.outcomes = [Fenced()]
        return
    value, version = mirror.get(change.key)
    if version != change.expected:
        changed(await session.retry(lambda: _synced(session, mirror, path)))
        value, version = mirror.get(change.key)
    if version != change.expected:
        unit.outcomes = [Conflict(value=value, version=version)]
        return
    if version == ABSENT:
        unit.outcomes = [Written(version=ABSENT)]
        return
    if unit.term is None:
        raise ValueError(f"cannot remove topic {name}: only the controller removes topics")
    while True:
        operations = await session.retry(lambda: _steps(session, name))
        if not operations:
            break
        check = fencing.fence(unit.term)
        if check is None:
            unit.outcomes = [Fenced()]
            return
        try:
            await session.multi([check, *operations])
        except MultiFailed as failure:
            if failure.index == 0:
                unit.outcomes = [Fenced()]
                fencing.fenced()
                return
            # Something has changed, or this is the repetition of a transaction that was applied:
            # the next round lists the znodes again.
        except LOST:
            continue
    keys: list[Key] = []
    for one in (path, f"{TOPIC_CONFIGS}/{name}", f"{DELETE_TOPICS}/{name}"):
        keys += [key for below in mirror.paths_below(one) for key in mirror.remove(below)]
        keys += mirror.remove(one)
    unit.outcomes = [Written(version=ABSENT)]
    changed(keys)


async def _synced(session: Session, mirror: ZnodeMirror, path: str) -> list[Key]:
    await session.sync()
    return await read_znode(session, mirror, path)


async def _steps(session: Session, name: str) -> list[Operation]:
    """Return the operations that remain, in order."""
    # What a lost connection has left of an earlier transaction must be visible.
    await session.sync()
    operations: list[Operation] = []
    folder = partitions_path(name)
    for number in await names_in(session, folder):
        for child in await names_in(session, f"{folder}/{number}"):
            operations.append(Delete(path=f"{folder}/{number}/{child}", version=ANY_VERSION))
        operations.append(Delete(path=f"{folder}/{number}", version=ANY_VERSION))
        # The last transaction has room for all that follows, so that the notification is not
        # separated from the deletion of the settings.
        if len(operations) + 2 > _GROUP - _LAST_OPERATIONS:
            return operations
    for path in (folder, topic_path(name)):
        if await session.exists(path) is not None:
            operations.append(Delete(path=path, version=ANY_VERSION))
    operations += await _config_steps(session, f"{TOPIC_CONFIGS}/{name}")
    mark = f"{DELETE_TOPICS}/{name}"
    if await session.exists(mark) is not None:
        operations.append(Delete(path=mark, version=ANY_VERSION))
    return operations


async def _config_steps(session: Session, path: str) -> list[Operation]:
    try:
        data, _ = await session.get(path)
    except NoNode:
        return []
    operations: list[Operation] = [Delete(path=path, version=ANY_VERSION)]
    try:
        has_settings = bool(decode_config(data))
    except ValueError:
        has_settings = True
    if has_settings:
        # The other brokers would otherwise use these settings for a new topic of this name.
        operations.append(config_notification(path))
    return operations
