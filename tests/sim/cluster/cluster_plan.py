"""The seed's choices for a cluster: the settings of its brokers, its topics, and its faults."""

from __future__ import annotations

import random
from dataclasses import replace

from plogd.config import BrokerConfig
from tests.sim.admins import TopicPlan
from tests.sim.plan import make_config

MACHINE_FAULTS = (
    "power_loss",
    "kill",
    "crash_at_an_operation",
    "clean_stop",
    "disk_full",
    "scarce_room",
    "failed_sync",
    "failed_operation",
    "failed_read",
    "slow_disk",
    "slow_network",
    "dropped_connections",
    "clock_jump",
)
"""The faults of one machine; see nemesis.py."""
MAX_BROKERS = 5


def choose_brokers(seed: int) -> int:
    """Return the number of brokers of a seed, if none is given."""
    return random.Random(f"brokers {seed}").randint(1, MAX_BROKERS)


def choose_session_ms(chance: random.Random) -> int:
    """Return the session timeout: far shorter than the default, so that brokers fail over often."""
    return chance.choice((600, 1_000, 2_000))


def make_cluster_config(chance: random.Random, seed: int, brokers: int) -> BrokerConfig:
    """Return the settings that all brokers share."""
    return replace(
        make_config(chance, seed),
        plog_metadata_store="zookeeper",
        zookeeper_connect="zookeeper:2181/plog",
        replica_lag_time_max_ms=chance.choice((300, 1_000, 4_000)),
        replica_fetch_wait_max_ms=chance.choice((20, 100, 200)),
        replica_fetch_backoff_ms=chance.choice((20, 100)),
        replica_fetch_max_bytes=chance.choice((1, 700, 1 << 20)),
        # A leader alone, with a slow disk, few open files and a cold cache, needs 2 s for a fetch.
        replica_socket_timeout_ms=chance.choice((3_000, 6_000)),
        offsets_topic_replication_factor=min(3, brokers),
        offsets_topic_num_partitions=chance.choice((1, 2)),
        # One request at a time would let a produce that waits for followers delay all others.
        queued_max_requests=500,
    )


def make_machine_config(config: BrokerConfig, node_id: int) -> BrokerConfig:
    """Return the settings of one broker."""
    listeners = (f"PLAINTEXT://b{node_id}:9092",)
    # Otherwise, a broker returns the address that a connection of the simulator has.
    return replace(config, node_id=node_id, listeners=listeners, advertised_listeners=listeners)


def make_cluster_topics(chance: random.Random, brokers: int) -> list[TopicPlan]:
    """Return the topics that exist for the whole run."""
    forever = {"retention.ms": "-1"}

    def plan(name: str, partitions: int, replicas: int, **settings: str) -> TopicPlan:
        min_isr = str(chance.randint(1, max(1, replicas - 1)))
        more = {key.replace("_", "."): value for key, value in settings.items()}
        return TopicPlan(
            name,
            partitions,
            {**forever, "min.insync.replicas": min_isr, **more},
            replication_factor=replicas,
        )

    return [
        plan("kept", 2, min(3, brokers)),
        plan("packed", 1, brokers, compression_type=chance.choice(("gzip", "zstd", "lz4"))),
        plan("stamped", 1, min(2, brokers), message_timestamp_type="LogAppendTime"),
        plan("sized", 1, min(3, brokers), retention_bytes=chance.choice(("0", "3000", "10000"))),
    ]
