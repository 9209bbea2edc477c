"""General settings of the broker: identity, data directories, topic defaults, HTTP and logging.

`BrokerConfig` (broker_config.py) inherits them. Names, types, bounds and defaults are Kafka's
unless the text says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.settings import SettingType, setting

# Kafka's default is in /tmp, where the operating system may delete the data.
DEFAULT_DATA_DIR = "./plog-data"
LOG_LEVELS = ("debug", "info", "warn", "error", "critical")


@dataclass(frozen=True, kw_only=True)
class GeneralSettings:
    """The general part of `BrokerConfig`."""

    node_id: int = setting(
        "node.id",
        1,
        "ID of this broker, unique in the cluster. Kafka has no default; plog's default suits a"
        " single-broker cluster. With `plog.metadata.store=zookeeper`, a broker gets an ID from"
        " ZooKeeper if this setting is -1 or not set.",
        at_least=0,
        also=(-1,),
        importance="high",
        group="Identity and data",
        aliases=("broker.id",),  # The name in ZooKeeper mode, which Kafka still accepts.
    )
    broker_rack: str | None = setting(
        "broker.rack",
        None,
        "Rack of this broker, for example the availability zone of its host. Clients see it in the"
        " cluster's metadata.",
        type=SettingType.STRING,
    )
    log_dirs: tuple[str, ...] | None = setting(
        "log.dirs",
        None,
        "Directories that store partitions. A new partition is placed in the directory with the"
        " fewest partitions. If not set, the broker uses the first directory in `$STATE_DIRECTORY`,"
        f" which systemd sets for its units, or `{DEFAULT_DATA_DIR}` if that variable is not set,"
        " and reports the directory in its first log line.",
        type=SettingType.LIST,
        importance="high",
        aliases=("log.dir",),  # In Kafka, log.dirs takes precedence over this setting.
    )
    plog_metadata_store: str = setting(
        "plog.metadata.store",
        "embedded",
        "Where the cluster's metadata, such as the list of topics, is stored. `embedded` stores"
        " it in a log, `__cluster_metadata-0`, in the first directory of `log.dirs`; this store"
        " supports a single broker and does not require any other service. `zookeeper` stores it in"
        " ZooKeeper, in the same form as Kafka 3.9 (`zookeeper.connect`).",
        one_of=("embedded", "zookeeper"),
    )
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir",
        2,  # KIP-1030.
        "Number of logs per directory that the broker loads or recovers concurrently at startup."
        " If much has to be recovered, this is a number of processes, of which never more run than"
        " there are cores. A new value takes effect at the next startup.",
        at_least=1,
        importance="high",
        update="cluster-wide",
    )

    num_partitions: int = setting(
        "num.partitions",
        1,
        "Number of partitions for a topic that is created without a partition count.",
        at_least=1,
        group="Topics",
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        1,
        "Number of replicas for a topic that is created without a replication factor.",
        at_least=1,
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        1,
        "Minimum number of in-sync replicas; with fewer, a partition rejects produce requests"
        " with `acks=all`.",
        at_least=1,
        importance="high",
        update="cluster-wide",
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        True,
        "Whether to create a missing topic when a client requests its metadata and the request"
        " allows topic creation.",
        importance="high",
    )
    plog_auto_create_topics_max_per_second: int = setting(
        "plog.auto.create.topics.max.per.second",
        100,
        "Maximum number of topics that metadata requests can create per second, and maximum"
        " number of these creations in progress at the same time. Additional requests fail with"
        " LEADER_NOT_AVAILABLE, which clients retry.",
        at_least=1,
        importance="low",
        update="cluster-wide",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable",
        True,
        "Whether clients can delete topics. If false, DeleteTopics requests fail.",
        importance="high",
    )

    plog_http_port: int = setting(
        "plog.http.port",
        9080,
        "Port for /metrics, /health and /ready; 0 disables them. If the default port is in use,"
        " the broker logs a warning and starts without them, so that several brokers can run on"
        " one host. If a port that you set explicitly is in use, the broker does not start.",
        at_least=0,
        at_most=65535,
        group="Health and logging",
    )
    plog_http_host: str = setting(
        "plog.http.host",
        "127.0.0.1",  # Other hosts must not reach pages without authentication by default.
        "Address for /metrics, /health and /ready. These pages do not require authentication.",
    )
    plog_status_interval_ms: int = setting(
        "plog.status.interval.ms",
        10_000,
        "Interval between updates of the status line that `systemctl status` shows: listeners,"
        " partitions, connections, bytes per second, and problems. Without systemd, the setting"
        " has no effect.",
        at_least=1000,  # Each update is a message to systemd.
        unit="ms",
        importance="low",
    )
    plog_log_level: str = setting(
        "plog.log.level",
        "info",
        "Minimum level of logged events. If twistd itself writes the log (options `--logfile` and"
        " `--logger`), the log contains events of all levels.",
        one_of=LOG_LEVELS,
        any_case=True,  # Kafka's own levels are in upper case.
        update="cluster-wide",
    )
