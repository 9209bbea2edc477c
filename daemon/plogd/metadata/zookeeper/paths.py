"""The paths of Kafka's znodes, and the keys of the metadata store that they hold.

Pure text. Names of users, client ids and IP addresses are URL-encoded in paths. Source: Kafka 3.9
ZkData, Sanitizer.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote_plus

from plog.enums import AclPatternType, AclResourceType
from plogd.metadata.store import Key
from plogd.quota import DEFAULT
from plogd.security.acl import ResourcePattern

CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONFIG: Final = "/config"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
USERS: Final = "/config/users"
CLIENTS: Final = "/config/clients"
IPS: Final = "/config/ips"
CONFIG_CHANGES: Final = "/config/changes"
PRODUCER_IDS: Final = "/latest_producer_id_block"
FEATURE: Final = "/feature"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
MIGRATION: Final = "/migration"
"""Exists once a KRaft controller has started to migrate the cluster."""
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LITERAL_ACLS: Final = "/kafka-acl"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"
LITERAL_ACL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"

CONFIG_CHANGE_PREFIX: Final = "config_change_"
ACL_CHANGE_PREFIX: Final = "acl_changes_"
LOG_DIR_EVENT_PREFIX: Final = "log_dir_event_"

DEFAULT_NAME: Final = "<default>"
"""The name of the default entity in a path; a user of this name is URL-encoded."""

RESOURCE_TYPE_NAMES: Final = {
    AclResourceType.TOPIC: "Topic",
    AclResourceType.GROUP: "Group",
    AclResourceType.CLUSTER: "Cluster",
    AclResourceType.TRANSACTIONAL_ID: "TransactionalId",
    AclResourceType.DELEGATION_TOKEN: "DelegationToken",
    AclResourceType.USER: "User",
}
RESOURCE_TYPES: Final = {name: number for number, name in RESOURCE_TYPE_NAMES.items()}

# Those of Kafka's ZkData.PersistentZkPaths and KafkaZkClient.createAclPaths.
PERSISTENT_PATHS: Final = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_IDS,
    LOG_DIR_EVENTS,
    TOPIC_CONFIGS,
    CLIENTS,
    USERS,
    BROKER_CONFIGS,
    IPS,
    *(
        f"{tree}/{name}"
        for tree in (LITERAL_ACLS, PREFIXED_ACLS)
        for name in RESOURCE_TYPE_NAMES.values()
    ),
    LITERAL_ACL_CHANGES,
    EXTENDED_ACL_CHANGES,
)
"""The znodes that every broker creates when it starts, unless they exist."""


def sanitize(name: str) -> str:
    """Return the form of a name in a path; the default entity has a name of its own.

    >>> sanitize("CN=a b*~/é"), sanitize("")
    ('CN%3Da%20b%2A%7E%2F%C3%A9', '<default>')
    """
    if name == DEFAULT:
        return DEFAULT_NAME
    # Unlike Java's URLEncoder, quote() leaves the tilde.
    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    """Return the name of which `name` is the form in a path. Raises ValueError.

    >>> desanitize("a%2Fb"), desanitize("<default>")
    ('a/b', '')
    """
    return DEFAULT if name == DEFAULT_NAME else unquote_plus(name, errors="strict")


def topic_path(name: str) -> str:
    """Return the znode of a topic."""
    return f"{TOPICS}/{name}"


def partitions_path(name: str) -> str:
    """Return the parent of the znodes of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def state_path(name: str, number: int) -> str:
    """Return the znode of a partition's state.

    >>> state_path("clicks", 0)
    '/brokers/topics/clicks/partitions/0/state'
    """
    return f"{TOPICS}/{name}/partitions/{number}/state"


def topic_of_path(path: str) -> str | None:
    """Return the topic that the znode at `path` describes; None if it describes something else.

    >>> topic_of_path("/brokers/topics/clicks/partitions/0/state"), topic_of_path("/controller")
    ('clicks', None)
    """
    match path.split("/")[1:]:
        case ["brokers", "topics", name, *_] | ["config", "topics", name]:
            return name
    return None


def broker_path(broker_id: int) -> str:
    """Return the znode with which a broker is registered."""
    return f"{BROKER_IDS}/{broker_id}"


def resource_path(pattern: ResourcePattern) -> str:
    """Return the znode of the ACLs for a resource. Raises ValueError if there is no such znode."""
    tree = PREFIXED_ACLS if pattern.pattern_type == AclPatternType.PREFIXED else LITERAL_ACLS
    type_name = RESOURCE_TYPE_NAMES.get(AclResourceType(pattern.resource_type))
    # Kafka does not encode these names, so such a resource cannot have ACLs in ZooKeeper.
    if type_name is None or "/" in pattern.name or pattern.name in (".", ".."):
        raise ValueError(f"ZooKeeper cannot store ACLs for {pattern}")
    return f"{tree}/{type_name}/{pattern.name}"


def pattern_of(path: str) -> ResourcePattern:
    """Return the resource whose ACLs are in the znode `path`. Raises ValueError."""
    is_prefixed = path.startswith(PREFIXED_ACLS + "/")
    tree = PREFIXED_ACLS if is_prefixed else LITERAL_ACLS
    type_name, _, name = path.removeprefix(tree + "/").partition("/")
    if type_name not in RESOURCE_TYPES:
        raise ValueError(f"unknown resource type {type_name}")
    return ResourcePattern(
        resource_type=RESOURCE_TYPES[type_name],
        name=name,
        pattern_type=AclPatternType.PREFIXED if is_prefixed else AclPatternType.LITERAL,
    )


def path_of(key: Key) -> str:
    """Return the znode that holds a key. Raises ValueError for keys that no znode holds.

    The znode of an ACL depends on its resource, see `resource_path`.

    >>> path_of(("client_quota", "user", "bob", "client-id", ""))
    '/config/users/bob/clients/<default>'
    >>> path_of(("config", "broker", ""))
    '/config/brokers/<default>'
    """
    match key:
        case ("topic", str(name)):
            return topic_path(name)
        case ("partition", str(name), int(number)):
            return state_path(name, number)
        case ("delete_topic", str(name)):
            return f"{DELETE_TOPICS}/{name}"
        case ("config", "topic", str(name)):
            return f"{TOPIC_CONFIGS}/{name}"
        case ("config", "broker", str(name)):
            return f"{BROKER_CONFIGS}/{name or DEFAULT_NAME}"
        case ("scram", str(user), int()) | ("client_quota", "user", str(user)):
            return f"{USERS}/{sanitize(user)}"
        case ("client_quota", "user", str(user), "client-id", str(client_id)):
            return f"{USERS}/{sanitize(user)}/clients/{sanitize(client_id)}"
        case ("client_quota", "client-id", str(client_id)):
            return f"{CLIENTS}/{sanitize(client_id)}"
        case ("client_quota", "ip", str(ip)):
            return f"{IPS}/{sanitize(ip)}"
        case ("producer_ids",):
            return PRODUCER_IDS
        case ("feature", str()):
            return FEATURE
        case ("broker", int(broker_id)):
            return broker_path(broker_id)
        case ("controller",):
            return CONTROLLER
        case ("reassign_partitions",):
            return REASSIGN_PARTITIONS
        case _:
            raise ValueError(f"no znode holds the key {key}")
