"""Settings for replication between the brokers of a cluster.

`BrokerConfig` (broker_config.py) inherits them. Names, types, bounds and defaults are Kafka's
unless the text says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.settings import LONG_MAX, MIB, SECOND_MS, SettingType, setting

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_REPLICA_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    """The part of `BrokerConfig` for leaders and followers; a single broker does not use it."""

    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        True,
        "Whether the controller lets preferred leaders lead again, for example after a restart of"
        " their broker. It checks this every `leader.imbalance.check.interval.seconds`.",
        importance="high",
        group="Replication",
    )
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "Maximum number of bytes per second that this broker receives for the replicas in the topic"
        " setting `follower.replication.throttled.replicas` that are not in sync.",
        type=SettingType.LONG,
        at_least=0,
        unit="bytes/s",
        update="per-broker",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        300,
        "Time between two checks of the controller whether preferred leaders lead.",
        type=SettingType.LONG,
        at_least=1,
        unit="s",
        importance="high",
    )
    leader_imbalance_per_broker_percentage: int = setting(
        "leader.imbalance.per.broker.percentage",
        10,
        "The controller elects a broker as the leader of its partitions if other brokers lead more"
        " than this percentage of the partitions whose preferred leader it is.",
        at_least=0,
        importance="high",
    )
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "Maximum number of bytes per second that this broker sends to followers that are not in"
        " sync, for the replicas in the topic setting `leader.replication.throttled.replicas`.",
        type=SettingType.LONG,
        at_least=0,
        unit="bytes/s",
        update="per-broker",
    )
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms",
        SECOND_MS,
        "Time for which a follower waits after an error before it fetches a partition again.",
        at_least=0,
        unit="ms",
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes",
        MIB,
        "Maximum number of bytes of one partition in a response to a follower. The first batch is"
        " returned even if it is larger, so that replication can continue.",
        at_least=0,
        unit="bytes",
    )
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes",
        1,
        "Minimum number of bytes for which the response to a follower waits, up to"
        " `replica.fetch.wait.max.ms`.",
        unit="bytes",
        importance="high",
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        10 * MIB,
        "Maximum size of the records in a response to a follower. The first batch is returned even"
        " if it is larger.",
        at_least=0,
        unit="bytes",
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        500,
        "Maximum time for which a follower's fetch waits at the leader for new records. It should"
        " be far below `replica.lag.time.max.ms`; otherwise, followers of topics with few records"
        " leave the in-sync replicas.",
        unit="ms",
        importance="high",
    )
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        30 * SECOND_MS,
        "If a follower has not fetched all records of its leader for this time, the leader removes"
        " it from the in-sync replicas. With a low value, short pauses remove followers; with a"
        " high value, produce requests with `acks=all` wait longer for a follower that has failed.",
        type=SettingType.LONG,
        at_least=1,  # Kafka accepts 0, with which every follower leaves at every check.
        unit="ms",
        importance="high",
    )
    replica_selector_class: str = setting(
        "replica.selector.class",
        "",
        "Which replica consumers read from. With"
        f" `{RACK_AWARE_REPLICA_SELECTOR}`,"
        " a consumer reads from an in-sync replica in its rack (its `client.rack` and the brokers'"
        " `broker.rack`), if there is one. By default, and with"
        f" `{LEADER_SELECTOR}`, it reads from the leader. plog cannot load other Java classes.",
        one_of=("", LEADER_SELECTOR, RACK_AWARE_REPLICA_SELECTOR),
    )
    replica_socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms",
        30 * SECOND_MS,
        "Timeout of a follower's requests to its leader; at least `replica.fetch.wait.max.ms`.",
        at_least=1,
        unit="ms",
        importance="high",
    )
    replication_quota_window_num: int = setting(
        "replication.quota.window.num",
        11,
        "Number of samples from which the rates of throttled replication are calculated.",
        at_least=1,
        importance="low",
    )
    replication_quota_window_size_seconds: int = setting(
        "replication.quota.window.size.seconds",
        1,
        "Duration of each sample from which the rates of throttled replication are calculated.",
        at_least=1,
        unit="s",
        importance="low",
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that is not in sync may become leader if no in-sync replica is online."
        " Records that only the offline replicas have are then lost. The controller elects the"
        " replica with the longest log.",
        importance="high",
        update="cluster-wide",
    )
