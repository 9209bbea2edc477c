"""Settings of group membership: session timeouts, sizes, how long a first rebalance waits.

A part of `BrokerConfig` (broker_config.py). Kafka's names, types, bounds and defaults; where one of
these is ours, the text says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.settings import INT_MAX, MINUTE_MS, SECOND_MS, setting

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """Groups and their members."""

    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        6 * SECOND_MS,
        "The shortest session timeout a member of a group may ask for. A shorter one notices a dead"
        " member sooner, and costs more heartbeats.",
        at_least=0,
        unit="ms",
        group="Consumer groups",
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        30 * MINUTE_MS,
        "The longest session timeout a member of a group may ask for. A longer one leaves a member"
        " more time between heartbeats, and its partitions unread for longer when it dies.",
        at_least=0,
        unit="ms",
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        0,
        "How long an empty group waits for more members before its first generation begins; each"
        " that joins meanwhile prolongs it by as much, up to the rebalance timeout. Kafka's default"
        " is 3000, which lets fifty consumers that start together join at once but makes every"
        " first poll take three seconds; ours begins without delay, and such a start is a few more"
        " rebalances.",
        at_least=0,
        unit="ms",
    )
    group_max_size: int = setting(
        "group.max.size",
        INT_MAX,
        "The most members a group may have; a further one is refused with GROUP_MAX_SIZE_REACHED.",
        at_least=1,
    )
    plog_group_member_max_bytes: int = setting(
        "plog.group.member.max.bytes",
        1 * MIB,
        "The most bytes that one member of a group may send in JoinGroup (its ids, and the names"
        " and metadata of its protocols) or be assigned in SyncGroup. Larger ones are refused with"
        " INVALID_REQUEST.",
        at_least=1024,
        unit="bytes",
    )
    plog_group_max_bytes: int = setting(
        "plog.group.max.bytes",
        8 * MIB,
        "The most memory that the members of one group may use, with member ids that were given"
        " out and not yet used; a member counts as its metadata and assignment and about 2 KiB."
        " A member that would exceed it is refused with GROUP_MAX_SIZE_REACHED.",
        at_least=64 * 1024,
        unit="bytes",
    )
    plog_groups_max_bytes: int = setting(
        "plog.groups.max.bytes",
        64 * MIB,
        "The most memory that all groups with members may use. A member or group that would"
        " exceed it is refused with COORDINATOR_NOT_AVAILABLE, and clients try again.",
        at_least=1 * MIB,
        unit="bytes",
    )
