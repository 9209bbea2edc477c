"""Settings for consumer groups: session timeouts, sizes and the initial rebalance delay.

`BrokerConfig` (broker_config.py) inherits them. Names, types, bounds and defaults are Kafka's
unless the text says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.settings import INT_MAX, MIB, MINUTE_MS, SECOND_MS, setting


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """The part of `BrokerConfig` for groups and their members."""

    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        6 * SECOND_MS,
        "Minimum session timeout that a group member may request. Shorter timeouts detect a"
        " failed member sooner at the cost of more frequent heartbeats.",
        at_least=0,
        unit="ms",
        group="Consumer groups",
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        30 * MINUTE_MS,
        "Maximum session timeout that a group member may request. Longer timeouts give members"
        " more time between heartbeats but delay the detection of failures.",
        at_least=0,
        unit="ms",
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        0,
        "Time for which an empty group waits for more members before its first rebalance. Each"
        " member that joins in the meantime extends the wait by the same amount of time, up to"
        " the rebalance timeout. With Kafka's default of 3000, fifty consumers that start"
        " together join in one rebalance, but every first poll is delayed by three seconds; with"
        " plog's default of 0, the group needs a few additional rebalances instead.",
        at_least=0,
        unit="ms",
    )
    group_max_size: int = setting(
        "group.max.size",
        INT_MAX,  # As in Kafka; plog.group.max.bytes limits the memory.
        "Maximum number of members in a group; additional members are rejected with"
        " GROUP_MAX_SIZE_REACHED.",
        at_least=1,
    )
    plog_group_member_max_bytes: int = setting(
        "plog.group.member.max.bytes",
        1 * MIB,
        "Maximum number of bytes that a group member may send in JoinGroup (its ids, and the"
        " names and metadata of its protocols) or be assigned in SyncGroup. Larger requests fail"
        " with INVALID_REQUEST.",
        at_least=1024,
        unit="bytes",
    )
    plog_group_max_bytes: int = setting(
        "plog.group.max.bytes",
        8 * MIB,
        "Maximum memory for the members of one group, including issued member ids that are not"
        " yet in use. Each member uses about 2 KiB in addition to its metadata and its"
        " assignment. A member that would exceed the limit is rejected with"
        " GROUP_MAX_SIZE_REACHED.",
        at_least=64 * 1024,  # Enough for about thirty members.
        unit="bytes",
    )
    plog_groups_max_bytes: int = setting(
        "plog.groups.max.bytes",
        64 * MIB,
        "Maximum memory for all groups with members. A member or group that would exceed the"
        " limit is rejected with COORDINATOR_NOT_AVAILABLE, and clients retry.",
        at_least=1 * MIB,
        unit="bytes",
    )
