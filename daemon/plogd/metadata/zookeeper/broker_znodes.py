"""The znodes of brokers and of the controller, and the cluster's other single values.

Source: Kafka 3.9 BrokerIdZNode, ControllerZNode, ControllerEpochZNode, ClusterIdZNode,
ProducerIdBlockZNode, FeatureZNode, ConfigEntityChangeNotificationSequenceZNode,
LogDirEventNotificationSequenceZNode.
"""

from __future__ import annotations

import re
from typing import Any, Final

from plog.types import ZERO_UUID
from plog.zookeeper.operations import ZnodeStat
from plogd.metadata.store import BrokerRegistration, Endpoint, ProducerIdsValue
from plogd.metadata.zookeeper.znode_json import (
    decode_object,
    encode_json,
    int_of,
    merged,
    object_of,
    text_of,
)

# As in Kafka's EndPoint: an IPv6 address is in brackets, and the host may be empty.
_ENDPOINT: Final = re.compile(r"([^:/]+)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_INT64: Final = range(-(1 << 63), 1 << 63)


# -- brokers ---------------------------------------------------------------------------------------


def encode_broker(registration: BrokerRegistration, now_ms: int) -> bytes:
    """Return the contents of a broker's znode (version 5)."""
    # Only old clients read these two: they are those of the first plaintext listener.
    plaintext = [one for one in registration.endpoints if one.security_protocol == "PLAINTEXT"]
    fields: dict[str, Any] = {
        "features": {},
        "listener_security_protocol_map": {
            one.name: one.security_protocol for one in registration.endpoints
        },
        "endpoints": [_endpoint_text(one) for one in registration.endpoints],
        "jmx_port": -1,
        "port": plaintext[0].port if plaintext else -1,
        "host": plaintext[0].host if plaintext else None,
        "version": 5,
        "timestamp": str(now_ms),
    }
    if registration.rack is not None:
        fields["rack"] = registration.rack
    return encode_json(fields)


def _endpoint_text(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.name}://{host}:{endpoint.port}"


def decode_broker(broker_id: int, data: bytes, stat: ZnodeStat) -> BrokerRegistration:
    """Return the registration in a broker's znode. Raises ValueError."""
    value = decode_object(data)
    version = int_of(value, "version")
    if version < 1:
        raise ValueError(f"unknown version {version}")
    rack = value.get("rack")
    if rack is not None and not isinstance(rack, str):
        raise ValueError("rack is not a text")
    return BrokerRegistration(
        broker_id=broker_id,
        # Only KRaft records have one; the broker epoch serves the same purpose.
        incarnation_id=ZERO_UUID,
        endpoints=_endpoints_of(value, version),
        rack=rack,
        broker_epoch=stat.czxid,
    )


def _endpoints_of(value: dict[str, Any], version: int) -> tuple[Endpoint, ...]:
    if version == 1:
        texts: Any = [f"PLAINTEXT://{text_of(value, 'host')}:{int_of(value, 'port')}"]
    else:
        texts = value.get("endpoints")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError("endpoints is not a list of texts")
    # Before version 4, the names of listeners were those of their security protocols.
    protocols = object_of(value, "listener_security_protocol_map")
    endpoints = []
    for text in texts:
        found = _ENDPOINT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text} is not an endpoint")
        name, host, port = found.groups()
        protocol = protocols.get(name, name)
        endpoints.append(
            Endpoint(name=name, host=host, port=int(port), security_protocol=str(protocol))
        )
    return tuple(endpoints)


# -- the controller --------------------------------------------------------------------------------


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    """Return the contents of the controller's znode (version 2)."""
    fields = {
        "version": 2,
        "brokerid": broker_id,
        "timestamp": str(now_ms),
        "kraftControllerEpoch": -1,
    }
    return encode_json(fields)


def decode_controller(data: bytes) -> int:
    """Return the id of the controller. Raises ValueError."""
    return int_of(decode_object(data), "brokerid")


def kraft_epoch_of(data: bytes) -> int:
    """Return the epoch of a KRaft controller that has taken over the cluster, or -1."""
    # Missing in version 1, which Kafka 3.3 and older versions write.
    return int_of(decode_object(data), "kraftControllerEpoch", -1)


def decode_epoch(data: bytes) -> int:
    """Return the controller epoch. Raises ValueError."""
    text = data.decode()
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("not a number")
    return int(text)


# -- single values ---------------------------------------------------------------------------------


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return the contents of the znode of the cluster id."""
    return encode_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """Return the cluster id. Raises ValueError."""
    return text_of(decode_object(data), "id")


def encode_producer_ids(value: ProducerIdsValue, first_id: int, old: bytes | None = None) -> bytes:
    """Return the contents of the znode of the newest block, which starts at `first_id`."""
    fields = {
        "version": 1,
        "broker": value.broker_id,
        # Texts, because a JSON number may lose digits of a 64-bit integer.
        "block_start": str(first_id),
        "block_end": str(value.next_producer_id - 1),
    }
    return encode_json(merged(old, fields))


def decode_producer_ids(data: bytes) -> ProducerIdsValue | None:
    """Return the reserved producer ids; None before the first block. Raises ValueError."""
    if not data:
        return None
    value = decode_object(data)
    end = int(text_of(value, "block_end"))
    if end not in _INT64:
        raise ValueError("block_end does not fit into 64 bits")
    # The znode does not contain the broker epoch.
    return ProducerIdsValue(
        broker_id=int_of(value, "broker"), broker_epoch=-1, next_producer_id=end + 1
    )


def encode_features(levels: dict[str, int], old: bytes | None = None) -> bytes:
    """Return the contents of the znode of finalized features (version 2)."""
    features = {name: {"max_version_level": level} for name, level in levels.items()}
    return encode_json(merged(old, {"version": 2, "status": 1, "features": features}))


def decode_features(data: bytes) -> dict[str, int]:
    """Return the levels of the finalized features. Raises ValueError."""
    value = decode_object(data)
    if int_of(value, "version") not in (1, 2):
        raise ValueError(f"unknown version {value['version']}")
    # The status 0 means that features are disabled.
    if int_of(value, "status") != 1:
        return {}
    features = object_of(value, "features")
    return {name: int_of(object_of(features, name), "max_version_level") for name in features}


def encode_config_change(entity_path: str) -> bytes:
    """Return the contents of the notification that settings have changed (version 2).

    >>> encode_config_change("topics/clicks").decode()
    '{"version":2,"entity_path":"topics/clicks"}'
    """
    return encode_json({"version": 2, "entity_path": entity_path})


def changed_config_path(data: bytes) -> str:
    """Return the znode whose change a notification reports. Raises ValueError."""
    value = decode_object(data)
    # Version 1, before quotas of users, has an entity type and a name.
    if int_of(value, "version") == 1:
        entity = f"{text_of(value, 'entity_type')}/{text_of(value, 'entity_name')}"
    else:
        entity = text_of(value, "entity_path")
    if any(name in ("", ".", "..") for name in entity.split("/")):
        raise ValueError(f"{entity!r} is not the path of an entity")
    return f"/config/{entity}"


def encode_log_dir_event(broker_id: int) -> bytes:
    """Return the contents of the notification that a log directory of a broker has failed."""
    return encode_json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes) -> int:
    """Return the broker whose log directory has failed. Raises ValueError."""
    return int_of(decode_object(data), "broker")
