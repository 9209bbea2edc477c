"""Read the metadata that a Kafka cluster keeps in ZooKeeper, without changing it.

`read_znodes` reads the relevant subtrees with kazoo; `read_state` turns them into the same
`ClusterState` that kraft_log_reader.py builds from a metadata log. Password settings are omitted,
because they are encrypted with a secret that only the broker has. Source: Kafka 3.9 ZkData,
TopicZNode, ProducerIdBlockZNode.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from plog.errors import PlogError
from plog.types import uuid_from_text
from plogd.tools.storage.cluster_state import (
    CLUSTER_DEFAULT,
    ClusterState,
    KafkaPartition,
    KafkaTopic,
    count_not_imported,
)

_TIMEOUT_S = 15.0
# Not the whole tree: it can contain the offsets of old consumers and data of other programs.
_TREES = (
    "/cluster/id",
    "/brokers/ids",
    "/brokers/topics",
    "/config/topics",
    "/config/brokers",
    "/config/users",
    "/config/clients",
    "/config/ips",
    "/kafka-acl",
    "/kafka-acl-extended",  # Prefixed patterns (KIP-290).
    "/delegation_token/tokens",
    "/latest_producer_id_block",
    "/admin/delete_topics",
)
_DEFAULT_ENTITY = "<default>"


class ZooKeeperUnusable(PlogError):
    """ZooKeeper is unreachable or its data is unusable; the message contains the remedy."""


def read_znodes(hosts: str) -> dict[str, bytes]:
    """Return the contents of all relevant znodes, by path below the chroot in `hosts`.

    Raises ZooKeeperUnusable.
    """
    # Imported here because kazoo is needed only for brokers in ZooKeeper mode, so the Debian
    # packages only suggest it.
    try:
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError
    except ModuleNotFoundError as error:
        raise ZooKeeperUnusable(
            f"cannot read ZooKeeper at {hosts}: kazoo is not installed; install Debian's"
            " python3-kazoo, or run pip install kazoo"
        ) from error

    # With `read_only`, a server that has lost its quorum also accepts the connection.
    client = KazooClient(hosts=hosts, read_only=True)
    try:
        client.start(timeout=_TIMEOUT_S)
        return {path: data for tree in _TREES for path, data in _walk(client, tree)}
    except (KazooException, KazooTimeoutError) as error:
        raise ZooKeeperUnusable(
            f"cannot read ZooKeeper at {hosts}: {error or type(error).__name__}; start ZooKeeper, "
            "or correct --zookeeper HOST:PORT/CHROOT"
        ) from error
    finally:
        client.stop()
        client.close()


def _walk(client: Any, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield the znodes of a subtree. `client` is a KazooClient, which lacks type annotations."""
    # Not every version of Kafka creates all of these znodes.
    if client.exists(path) is None:
        return
    data, _ = client.get(path)
    yield path, data or b""
    for child in sorted(client.get_children(path)):
        yield from _walk(client, f"{path}/{child}")


def read_state(znodes: Mapping[str, bytes], *, cluster_id: str, node_id: int) -> ClusterState:
    """Return the state that the znodes describe.

    Raises ZooKeeperUnusable for another cluster, or if the broker is still running.
    """
    actual_id = _json(znodes, "/cluster/id").get("id")
    if actual_id != cluster_id:
        raise ZooKeeperUnusable(
            f"this ZooKeeper belongs to cluster {actual_id}, but the data belongs to cluster"
            f" {cluster_id}; correct --zookeeper, including Kafka's chroot if it uses one"
        )
    # This znode is ephemeral: ZooKeeper removes it when the broker's session ends.
    if f"/brokers/ids/{node_id}" in znodes:
        raise ZooKeeperUnusable(
            f"broker {node_id} is registered in ZooKeeper: it is still running, or stopped less "
            "than zookeeper.session.timeout.ms ago; stop it, wait, then try again"
        )
    state = ClusterState(may_hold_old_formats=True)
    # Kafka has accepted the deletion of these topics, but has not finished it.
    deleted = set(_children(znodes, "/admin/delete_topics"))
    for name in _children(znodes, "/brokers/topics"):
        if name not in deleted:
            state.topics[name] = _topic(znodes, name)
    for name in _children(znodes, "/config/topics"):
        config = _config(znodes, f"/config/topics/{name}")
        # Topics that are being deleted still have settings.
        if config and name in state.topics:
            state.topic_configs[name] = config
    for entity in _children(znodes, "/config/brokers"):
        config = _config(znodes, f"/config/brokers/{entity}")
        if config:
            key = CLUSTER_DEFAULT if entity == _DEFAULT_ENTITY else entity
            state.broker_configs[key] = config
    block = _json(znodes, "/latest_producer_id_block")
    if block:
        state.next_producer_id = int(block["block_end"]) + 1  # The end is inclusive.
    _count_the_rest(znodes, state)
    return state


def _topic(znodes: Mapping[str, bytes], name: str) -> KafkaTopic:
    path = f"/brokers/topics/{name}"
    value = _json(znodes, path)
    try:
        topic_id = uuid_from_text(value["topic_id"]) if value.get("topic_id") else None
        topic = KafkaTopic(name=name, topic_id=topic_id)
        # The keys of a JSON object are text, which would be sorted as 1, 10, 2.
        for number, replicas in sorted(value["partitions"].items(), key=lambda item: int(item[0])):
            partition = _json(znodes, f"{path}/partitions/{number}/state")
            topic.partitions[int(number)] = KafkaPartition(
                replicas=tuple(replicas),
                # A partition has no state until the controller has elected its first leader.
                isr=tuple(partition.get("isr", ())),
                leader_epoch=int(partition.get("leader_epoch", 0)),
            )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ZooKeeperUnusable(f"cannot decode the znode {path}: {error!r}") from error
    return topic


def _count_the_rest(znodes: Mapping[str, bytes], state: ClusterState) -> None:
    # The znode of a user may contain both SCRAM credentials and quotas.
    users = [path for path in znodes if _is_below(path, "/config/users")]
    configs = {path: _config(znodes, path) for path in users}
    scram = [path for path, config in configs.items() if any("SCRAM" in key for key in config)]
    count_not_imported(state, "SCRAM users", scram)
    quotas = [path for path, config in configs.items() if any("SCRAM" not in x for x in config)]
    for tree in ("/config/clients", "/config/ips"):
        quotas += [path for path in znodes if _is_below(path, tree) and _config(znodes, path)]
    count_not_imported(state, "client quotas", quotas)
    for tree in ("/kafka-acl", "/kafka-acl-extended"):
        for path in znodes:
            if _is_below(path, tree):
                count_not_imported(state, "ACLs", _json(znodes, path).get("acls", ()))
    tokens = [path for path in znodes if _is_below(path, "/delegation_token/tokens")]
    count_not_imported(state, "delegation tokens", tokens)


def _is_below(path: str, tree: str) -> bool:
    return path.startswith(tree + "/")


def _children(znodes: Mapping[str, bytes], parent: str) -> list[str]:
    prefix = parent + "/"
    return [
        path.removeprefix(prefix)
        for path in znodes
        if path.startswith(prefix) and "/" not in path.removeprefix(prefix)
    ]


def _config(znodes: Mapping[str, bytes], path: str) -> dict[str, str]:
    # The values are text in plog, but JSON also allows numbers.
    return {str(k): str(v) for k, v in _json(znodes, path).get("config", {}).items()}


def _json(znodes: Mapping[str, bytes], path: str) -> dict[str, Any]:
    """Return the JSON object in a znode; empty if the znode is missing or empty."""
    data = znodes.get(path, b"")
    if not data:
        return {}
    try:
        value = json.loads(data)
    except ValueError as error:
        raise ZooKeeperUnusable(f"cannot decode the znode {path}: not JSON: {error}") from error
    return value if isinstance(value, dict) else {}
