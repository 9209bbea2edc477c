"""Settings of the broker as a whole: who it is, what topics get, what it tells about itself.

A part of `BrokerConfig` (broker_config.py). Kafka's names, types, bounds and defaults; where one of
these is ours, the text says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.settings import SettingType, setting

DEFAULT_DATA_DIR = "./plog-data"
LOG_LEVELS = ("debug", "info", "warn", "error", "critical")


@dataclass(frozen=True, kw_only=True)
class GeneralSettings:
    """Identity and data, topics, health and logging."""

    node_id: int = setting(
        "node.id",
        1,
        "This broker's number in the cluster. Kafka has no default here; ours serves one broker.",
        at_least=0,
        importance="high",
        group="Identity and data",
        aliases=("broker.id",),
    )
    log_dirs: tuple[str, ...] | None = setting(
        "log.dirs",
        None,
        "Directories that hold the partitions; a new partition goes to the one that holds the"
        f" fewest. If it is not set, `{DEFAULT_DATA_DIR}` is used and the first line of the log"
        " says so.",
        type=SettingType.LIST,
        importance="high",
        aliases=("log.dir",),
    )
    plog_metadata_store: str = setting(
        "plog.metadata.store",
        "embedded",
        "Where topics and the rest of the cluster's state live. `embedded` is a log of our own,"
        " `__cluster_metadata-0`, in the first of `log.dirs`: one broker, nothing else to run.",
        one_of=("embedded",),
    )
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir",
        2,
        "How many logs of one directory are loaded or recovered at the same time. A new value"
        " counts at the next start.",
        at_least=1,
        importance="high",
        update="cluster-wide",
    )

    num_partitions: int = setting(
        "num.partitions",
        1,
        "Partitions of a topic whose creator does not say how many.",
        at_least=1,
        group="Topics",
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        1,
        "Replicas of a topic whose creator does not say how many.",
        at_least=1,
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        1,
        "In-sync replicas a partition needs to take a produce request with `acks=all`.",
        at_least=1,
        importance="high",
        update="cluster-wide",
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        True,
        "Create a topic when a client asks for the metadata of one that does not exist and its"
        " request allows that.",
        importance="high",
    )
    plog_auto_create_topics_max_per_second: int = setting(
        "plog.auto.create.topics.max.per.second",
        100,
        "Topics created in a second because clients ask for their metadata, and the most that may"
        " be in progress. The others get LEADER_NOT_AVAILABLE, at which clients ask again.",
        at_least=1,
        importance="low",
        update="cluster-wide",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable",
        True,
        "Let clients delete topics; if not, DeleteTopics is refused.",
        importance="high",
    )

    plog_http_port: int = setting(
        "plog.http.port",
        9080,
        "Port of /metrics, /health and /ready; 0 turns them off. If the port is taken, the default"
        " one is given up with a warning, so that several brokers start on one host; one that is"
        " set keeps the broker from starting.",
        at_least=0,
        at_most=65535,
        group="Health and logging",
    )
    plog_http_host: str = setting(
        "plog.http.host",
        "127.0.0.1",
        "Address of /metrics, /health and /ready. They ask nobody for a password.",
    )
    plog_log_level: str = setting(
        "plog.log.level",
        "info",
        "The least important events that are logged. A log that twistd writes itself (its "
        "options `--logfile` and `--logger`) has them all.",
        one_of=LOG_LEVELS,
        any_case=True,
        update="cluster-wide",
    )
