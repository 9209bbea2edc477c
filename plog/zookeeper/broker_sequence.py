"""The ids that ZooKeeper assigns to brokers, for a program that waits for the answer.

Each write raises the version of the znode /brokers/seqid, and the broker that has written gets the
new version. A starting broker calls this before its reactor runs. Source: Kafka 3.9 KafkaZkClient.
generateBrokerSequenceId, BrokerSequenceIdZNode.
"""

from __future__ import annotations

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from plog.client.network.tls_context import Security
from plog.error_base import PlogError
from plog.zookeeper.kazoo_client import new_kazoo
from plog.zookeeper.kazoo_errors import error_of
from plog.zookeeper.sockets import Sockets

_PATH = "/brokers/seqid"


class NoBrokerId(PlogError):
    """ZooKeeper could not be reached in time."""


def next_in_sequence(
    connect: str, *, session_timeout_ms: int, connection_timeout_ms: int, security: Security | None
) -> int:
    """Return a positive number that no other broker of the cluster gets. This blocks.

    `connect` is ``zookeeper.connect``. Raises NoBrokerId or ZooKeeperError.
    """
    sockets = Sockets(security)
    # kazoo warns of a chroot that does not exist yet.
    hosts, _, chroot = connect.partition("/")
    client = new_kazoo(hosts, sockets, session_timeout_ms, security)
    path = f"/{chroot}{_PATH}" if chroot else _PATH
    try:
        client.start(connection_timeout_ms / 1000)
        client.ensure_path(path)
        # A repetition after a lost response skips a number, which is harmless.
        return int(client.retry(client.set, path, b"").version)
    except KazooTimeoutError as error:
        raise NoBrokerId(
            f"cannot connect to ZooKeeper at {connect}: {sockets.problem or 'no response'}; start"
            " ZooKeeper, or correct zookeeper.connect"
        ) from error
    except KazooException as error:
        raise error_of(error) from error
    finally:
        client.stop()
        client.close()
