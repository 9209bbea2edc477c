"""The rule that decides which of a group's committed offsets have expired (KIP-211).

While a group has members, its offsets expire only in topics to which no member subscribes.
Otherwise, the retention time starts when the last member leaves. If the group never had members, or
the time at which the last member left was not recorded, the retention time starts with the commit.
OffsetCommit requests in versions 2 to 4 can specify a different retention time.

This module is pure: it does not remove anything. offset_removal.py scans the groups, and
`GroupShard.expire_offsets` writes tombstones for the returned offsets. Source: Kafka 4.3
ClassicGroup.offsetExpirationCondition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from plog.wire.internal.group_records import NO_TIMESTAMP
from plogd.coordinator.group.group_port import GroupPort
from plogd.coordinator.group.offset_table import CommittedOffset, OffsetsByTopic

_STABLE = "Stable"


def expired_partitions(
    topics: OffsetsByTopic,
    group: GroupPort,
    unstable: Collection[tuple[str, int]],
    *,
    now_ms: int,
    retention_ms: int,
    at_most: int,
) -> tuple[list[tuple[str, int]], bool]:
    """Return the partitions whose offsets have expired, and whether the group has no other offsets.

    `topics` contains the group's committed offsets, and `unstable` its partitions with offsets in
    open transactions; `retention_ms` is ``offsets.retention.minutes``. Returns up to `at_most`
    partitions.
    """
    # Once per group, because a group can have thousands of offsets.
    retention_start = _retention_start(group)
    expired: list[tuple[str, int]] = []
    is_all = not unstable  # An open transaction may still commit offsets.
    for topic, partitions in topics.items():
        if retention_start is None or group.is_subscribed_to(topic):
            is_all = False
            continue
        for partition, committed in partitions.items():
            due_ms = retention_start(committed) + retention_ms
            if committed.expire_timestamp != NO_TIMESTAMP:
                # In OffsetCommit 2 to 4, the client specifies the retention time.
                due_ms = committed.expire_timestamp
            if now_ms < due_ms or (topic, partition) in unstable:
                is_all = False
                continue
            if len(expired) == at_most:
                return expired, False
            expired.append((topic, partition))
    return expired, is_all


def _retention_start(group: GroupPort) -> Callable[[CommittedOffset], int] | None:
    """Return a function for the start of an offset's retention, or None if no offset expires."""
    if group.protocol_type is not None:
        if group.is_empty:
            since = group.empty_since
            return _since_commit if since is None else lambda _: since
        # While a group rebalances, its subscriptions may still change.
        knows_topics = group.uses_consumer_protocol and group.subscribed_topics is not None
        if not knows_topics or group.state.value != _STABLE:
            return None
    # Without a protocol type, the group never had members.
    return _since_commit


def _since_commit(committed: CommittedOffset) -> int:
    return committed.commit_timestamp
