"""Explain why a client and this broker do not share an API version, and what to do about it.

These functions are pure; dispatch.py calls them to write the log line. The client does not get an
explanation, because it could not decode a response in an unknown version. Source: KIP-896 (the
versions that Kafka 4 still supports); librdkafka CONFIGURATION.md; kafka-python's KafkaClient.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.header import RequestHeader
from plogd.apis.api_table import Row
from plogd.connection_context import ConnectionContext

_CLIENT_ID_MAX_CHARACTERS = 100
"""A client id can have 32,767 bytes; a log line contains only its beginning."""
# A ZooKeeper ConnectRequest consists of the version, last zxid, timeout, session id and password;
# newer clients add a read-only flag.
_ZOOKEEPER_CONNECT_BYTES = (44, 45)
_ZOOKEEPER_PASSWORD_LENGTH_AT = 24
# KIP-896: a broker of Kafka 4 supports clients from Kafka 2.1 on.
_TOO_OLD = (
    "use a client for Kafka 2.1 or newer; if the client is already newer, it is configured to"
    " behave like an older version: remove api.version.request and broker.version.fallback"
    " (librdkafka) or api_version (kafka-python) from its settings"
)
_TOO_NEW = (
    "the client does not negotiate versions (ApiVersions); enable version negotiation, or use an"
    " older client"
)
_ZOOKEEPER = (
    "not a Kafka request but a ZooKeeper connect request: a client's zookeeper.connect setting"
    " points to this broker; replace tools that require ZooKeeper with newer versions that use"
    " --bootstrap-server"
)
_SASL = (
    "listener {listener} does not authenticate clients; set security.protocol={protocol} in the"
    " client and remove its sasl.* settings"
)


def explain_version(
    row: Row, header: RequestHeader, connection: ConnectionContext, frame: memoryview
) -> str:
    """Return the reason for closing a connection after a request in an unsupported version."""
    if _is_zookeeper_connect(frame):
        return _ZOOKEEPER
    remedy = _TOO_OLD if header.api_version < row.first_version else _TOO_NEW
    return (
        f"{row.name} version {header.api_version} is not supported (only {row.first_version} to"
        f" {row.last_version}): {describe_client(header, connection)} has no version in common with"
        f" this broker; {remedy}"
    )


def explain_api(header: RequestHeader, connection: ConnectionContext) -> str:
    """Return the reason for closing a connection after a request for an unsupported API."""
    client = describe_client(header, connection)
    if header.api_key == ApiKey.SASL_HANDSHAKE:
        remedy = _SASL.format(
            listener=connection.listener_name, protocol=connection.security_protocol
        )
        return f"{client} requested SASL authentication: {remedy}"
    try:
        name = f"{ApiKey(header.api_key).name} ({header.api_key})"
    except ValueError:
        name = f"api key {header.api_key}"
    return (
        f"{name} is not supported, and {client} has not requested the supported APIs (ApiVersions)"
    )


def describe_client(header: RequestHeader, connection: ConnectionContext) -> str:
    """Describe the client by its client id and software, if it has sent them."""
    client_id = header.client_id
    if client_id is None:
        name = "a client without a client.id"
    else:
        shortened = client_id[:_CLIENT_ID_MAX_CHARACTERS]
        name = f"client {shortened!r}{'…' if shortened != client_id else ''}"
    # The default of Kafka's ClientInformation, for clients that have not sent their software.
    if connection.client_software_name == "unknown":
        return f"{name} (software unknown)"
    return f"{name} ({connection.client_software_name} {connection.client_software_version})"


def _is_zookeeper_connect(frame: memoryview) -> bool:
    at = _ZOOKEEPER_PASSWORD_LENGTH_AT
    return (
        len(frame) in _ZOOKEEPER_CONNECT_BYTES
        # ZooKeeper's protocol version; as a Kafka header, it means Produce in version 0.
        and int.from_bytes(frame[:4], "big") == 0
        # A ZooKeeper session password has 16 bytes.
        and int.from_bytes(frame[at : at + 4], "big") == 16
    )
