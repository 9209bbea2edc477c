"""Which keys of the metadata store each znode holds, and how a change of a key changes its znode.

Pure. The contents of each kind of znode are in the modules *_znodes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from plog.zookeeper.operations import ZnodeStat
from plogd.metadata.store import Key, TopicValue
from plogd.metadata.zookeeper.acl_znodes import decode_acls, encode_acls
from plogd.metadata.zookeeper.broker_znodes import (
    decode_broker,
    decode_controller,
    decode_features,
    decode_log_dir_event,
    decode_producer_ids,
    encode_producer_ids,
)
from plogd.metadata.zookeeper.config_znodes import (
    credentials_of,
    decode_config,
    encode_config,
    quotas_of,
    with_credential,
    with_quotas,
)
from plogd.metadata.zookeeper.paths import LOG_DIR_EVENT_PREFIX, desanitize
from plogd.metadata.zookeeper.topic_znodes import (
    decode_partition,
    decode_reassignment,
    decode_topic,
    encode_partition,
    encode_topic,
)
from plogd.quota import QuotaEntity, quota_key
from plogd.security.acl import Acl, acl_key

Values: TypeAlias = dict[Key, Any]
LOG_DIR_FAILURE: Final = "log_dir_failure"
"""The first element of the keys for reports of failed log directories; the value is a broker id."""


def decode_znode(path: str, data: bytes, stat: ZnodeStat) -> Values:
    """Return the keys that a znode holds, with their values. Raises ValueError if it is damaged."""
    match path.split("/")[1:]:
        case ["brokers", "topics", name]:
            return {("topic", name): decode_topic(data)}
        case ["brokers", "topics", name, "partitions", number, "state"]:
            return {("partition", name, int(number)): decode_partition(data, stat.version)}
        case ["brokers", "ids", number]:
            return {("broker", int(number)): decode_broker(int(number), data, stat)}
        case ["config", *entity]:
            return _decode_config(entity, data)
        case ["kafka-acl", _, _] | ["kafka-acl-extended", "prefixed", _, _]:
            return {acl_key(acl): acl for acl in decode_acls(path, data)}
        case ["latest_producer_id_block"]:
            block = decode_producer_ids(data)
            return {} if block is None else {("producer_ids",): block}
        case ["feature"]:
            return {("feature", name): level for name, level in decode_features(data).items()}
        case ["controller"]:
            return {("controller",): decode_controller(data)}
        case ["admin", "delete_topics", name]:
            return {("delete_topic", name): True}
        case ["admin", "reassign_partitions"]:
            return {("reassign_partitions",): decode_reassignment(data)}
        case ["log_dir_event_notification", name]:
            sequence = int(name.removeprefix(LOG_DIR_EVENT_PREFIX))
            return {(LOG_DIR_FAILURE, sequence): decode_log_dir_event(data)}
        case _:
            raise ValueError("the path is unknown")


def _decode_config(entity: list[str], data: bytes) -> Values:
    config = decode_config(data)
    match entity:
        case ["topics", name]:
            return {("config", "topic", name): config} if config else {}
        case ["brokers", name]:
            return {("config", "broker", desanitize(name)): config} if config else {}
        case ["users", user]:
            name = desanitize(user)
            values = _quotas(QuotaEntity(user=name), config)
            for mechanism, credential in credentials_of(config):
                values[("scram", name, int(mechanism))] = credential
            return values
        case ["users", user, "clients", client_id]:
            entity_of_both = QuotaEntity(user=desanitize(user), client_id=desanitize(client_id))
            return _quotas(entity_of_both, config)
        case ["clients", client_id]:
            return _quotas(QuotaEntity(client_id=desanitize(client_id)), config)
        case ["ips", ip]:
            return _quotas(QuotaEntity(ip=desanitize(ip)), config)
        case _:
            raise ValueError("the type of the entity is unknown")


def _quotas(entity: QuotaEntity, config: Mapping[str, str]) -> Values:
    quotas = quotas_of(config)
    return {quota_key(entity): quotas} if quotas else {}


def encode_znode(
    path: str, changes: Mapping[Key, Any], old: bytes | None, *, term: int | None
) -> bytes | None:
    """Return the contents of a znode after some of its keys have changed; None to delete it.

    Args:
        changes: the new values, or None for keys to remove.
        old: the present contents; None if the znode does not exist.
        term: the controller's epoch, which the state of a partition contains.

    Raises ValueError for a key that is read-only.
    """
    kind = next(iter(changes))[0]
    encode = _ENCODERS.get(str(kind))
    if encode is None:
        raise ValueError(f"cannot write {next(iter(changes))}: the key is read-only")
    return encode(path, changes, old, term)


def _one(changes: Mapping[Key, Any]) -> Any:
    [value] = changes.values()
    return value


def _encode_topic(
    path: str, changes: Mapping[Key, Any], old: bytes | None, term: int | None
) -> bytes | None:
    topic: TopicValue = _one(changes)
    if term is None:
        raise ValueError(f"cannot write {path}: only the controller writes topics")
    return encode_topic(topic, old)


def _encode_partition(
    path: str, changes: Mapping[Key, Any], old: bytes | None, term: int | None
) -> bytes | None:
    value = _one(changes)
    if term is None:
        raise ValueError(f"cannot write {path}: only the controller writes partitions")
    return None if value is None else encode_partition(value, term, old)


def _encode_mark(
    path: str, changes: Mapping[Key, Any], old: bytes | None, term: int | None
) -> bytes | None:
    return None if _one(changes) is None else b""


def _encode_config(
    path: str, changes: Mapping[Key, Any], old: bytes | None, term: int | None
) -> bytes | None:
    # Without settings, Kafka keeps the znodes of topics and brokers, too.
    return encode_config(_one(changes) or {}, old)


def _encode_entity(
    path: str, changes: Mapping[Key, Any], old: bytes | None, term: int | None
) -> bytes | None:
    """Encode the znode of a user, a client id or an IP address."""
    config = decode_config(old or b"")
    for key, value in changes.items():
        if key[0] == "scram":
            config = with_credential(config, int(key[2]), value)
        else:
            config = with_quotas(config, value or {})
    return encode_config(config, old) if config else None


def _encode_acls(
    path: str, changes: Mapping[Key, Any], old: bytes | None, term: int | None
) -> bytes | None:
    rules: dict[Key, Acl] = {acl_key(acl): acl for acl in decode_acls(path, old or b"")}
    for key, value in changes.items():
        if value is None:
            rules.pop(key, None)
        else:
            rules[key] = value
    return encode_acls(rules.values(), path, old) if rules else None


def _encode_producer_ids(
    path: str, changes: Mapping[Key, Any], old: bytes | None, term: int | None
) -> bytes | None:
    value = _one(changes)
    last = decode_producer_ids(old or b"")
    return encode_producer_ids(value, 0 if last is None else last.next_producer_id, old)


_Encoder: TypeAlias = Callable[[str, Mapping[Key, Any], "bytes | None", "int | None"], "bytes|None"]
_ENCODERS: Final[dict[str, _Encoder]] = {
    "topic": _encode_topic,
    "partition": _encode_partition,
    "delete_topic": _encode_mark,
    "reassign_partitions": _encode_mark,
    LOG_DIR_FAILURE: _encode_mark,
    "config": _encode_config,
    "client_quota": _encode_entity,
    "scram": _encode_entity,
    "acl": _encode_acls,
    "producer_ids": _encode_producer_ids,
}
