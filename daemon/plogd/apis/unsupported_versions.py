"""Why a client and this broker have no version of an API in common, and what to do about it.

Pure; called by dispatch.py for the one line that tells of it. Nothing of this can be told the
client itself: an answer in a version it does not know would be taken for garbage. Source: KIP-896
(what Kafka 4 still serves); librdkafka CONFIGURATION.md; kafka-python's KafkaClient.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.header import RequestHeader
from plogd.apis.api_table import Row
from plogd.connection_context import ConnectionContext

_CLIENT_ID_MAX_CHARACTERS = 100
# A ZooKeeper client's greeting: version, last zxid, timeout, session id, password; maybe a flag.
_ZOOKEEPER_GREETING_BYTES = (44, 45)
_ZOOKEEPER_PASSWORD_LENGTH_AT = 24
_TOO_OLD = (
    "it is too old, use a client of Kafka 2.1 or newer; if it is newer, it has been told to behave"
    " like an old one: remove api.version.request and broker.version.fallback (librdkafka) or"
    " api_version (kafka-python) from its settings"
)
_TOO_NEW = (
    "it has not asked which versions are served, or does not keep to the answer: have it negotiate"
    " them (ApiVersions), or use an older client"
)
_ZOOKEEPER = (
    "no Kafka request but a ZooKeeper client's greeting: somebody's zookeeper.connect names this"
    " broker; old tools that need ZooKeeper have to be replaced by newer ones that take"
    " --bootstrap-server"
)
_SASL = (
    "the listener {listener} asks nobody to log in: set security.protocol={protocol} in the client"
    " and remove its sasl.* settings"
)


def explain_version(
    row: Row, header: RequestHeader, connection: ConnectionContext, frame: memoryview
) -> str:
    """For a request in a version that is not served."""
    if _is_zookeeper_greeting(frame):
        return _ZOOKEEPER
    remedy = _TOO_OLD if header.api_version < row.first_version else _TOO_NEW
    return (
        f"{row.name} version {header.api_version} is not served, only {row.first_version} to"
        f" {row.last_version}: {describe_client(header, connection)} has no common version with"
        f" this broker; {remedy}"
    )


def explain_api(header: RequestHeader, connection: ConnectionContext) -> str:
    """For a request of an API that is not served."""
    client = describe_client(header, connection)
    if header.api_key == ApiKey.SASL_HANDSHAKE:
        remedy = _SASL.format(
            listener=connection.listener_name, protocol=connection.security_protocol
        )
        return f"{client} wants to log in by SASL: {remedy}"
    try:
        name = f"{ApiKey(header.api_key).name} ({header.api_key})"
    except ValueError:
        name = f"api key {header.api_key}"
    return f"{name} is not served, and {client} has not looked at what is (ApiVersions)"


def describe_client(header: RequestHeader, connection: ConnectionContext) -> str:
    """The client's own words about itself, as far as it has said any."""
    client_id = header.client_id
    if client_id is None:
        name = "a client without an id"
    else:
        shortened = client_id[:_CLIENT_ID_MAX_CHARACTERS]
        name = f"the client {shortened!r}{'…' if shortened != client_id else ''}"
    if connection.client_software_name == "unknown":
        return f"{name} (software unknown)"
    return f"{name} ({connection.client_software_name} {connection.client_software_version})"


def _is_zookeeper_greeting(frame: memoryview) -> bool:
    at = _ZOOKEEPER_PASSWORD_LENGTH_AT
    return (
        len(frame) in _ZOOKEEPER_GREETING_BYTES
        and int.from_bytes(frame[:4], "big") == 0
        and int.from_bytes(frame[at : at + 4], "big") == 16
    )
