"""The id of a broker for which ``node.id`` is not set: from its directories or from ZooKeeper.

The id determines the broker's whole configuration, so tap.py gets it before the service is built,
and before the reactor runs: these functions block. Source: Kafka 3.9 KafkaServer.
getOrGenerateBrokerId.
"""

from __future__ import annotations

from plog.error_base import PlogError, reason_of
from plog.zookeeper_settings import tls_properties
from plogd.config import BrokerConfig
from plogd.log.disk.checkpoint_files import read_meta_properties
from plogd.os_files import OsFiles


class NodeIdUnknown(PlogError):
    """The id cannot be determined, because a log directory cannot be read."""


def find_node_id(config: BrokerConfig) -> int:
    """Return the id in ``meta.properties``, or a new one from ZooKeeper. Raises PlogError."""
    failures = []
    files = OsFiles()
    for log_dir in config.data_dirs:
        try:
            identity = read_meta_properties(files, log_dir)
        except OSError as error:
            failures.append(f"{log_dir}: {reason_of(error)}")
            continue
        if identity is not None:
            return identity.node_id
    # The directory may contain the id of this broker.
    if failures:
        raise NodeIdUnknown(
            f"cannot determine the id of this broker: {', '.join(failures)}; repair the directory,"
            " or set node.id"
        )
    return _new_node_id(config)


def _new_node_id(config: BrokerConfig) -> int:
    from plog.zookeeper.broker_sequence import next_in_sequence
    from plog.zookeeper.tls_settings import security_of

    is_tls = config.zookeeper_ssl_client_enable
    session_timeout_ms = config.zookeeper_session_timeout_ms
    number = next_in_sequence(
        (config.zookeeper_connect or "").replace(" ", ""),
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms or session_timeout_ms,
        security=security_of(tls_properties(config)) if is_tls else None,
    )
    return config.reserved_broker_max_id + number
