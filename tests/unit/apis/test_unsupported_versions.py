"""The log line about a client that has no API version in common with the broker."""

from __future__ import annotations

import pytest

from plog.wire.api_keys import ApiKey
from plog.wire.header import RequestHeader
from plogd.apis.api_table import HANDLERS
from plogd.apis.unsupported_versions import describe_client, explain_api, explain_version
from plogd.connection_context import ConnectionContext

[PRODUCE] = [row for row in HANDLERS if row.api_key == ApiKey.PRODUCE]


def connection(software: str = "unknown", release: str = "unknown") -> ConnectionContext:
    return ConnectionContext(
        listener_name="OUTSIDE",
        security_protocol="SSL",
        client_address=("192.0.2.1", 5000),
        local_address=("192.0.2.2", 9092),
        client_software_name=software,
        client_software_version=release,
    )


def explain(version: int, **software: str) -> str:
    header = RequestHeader(0, version, 7, "billing")
    return explain_version(PRODUCE, header, connection(**software), memoryview(bytes(30)))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_client_is_named_with_its_version_and_the_remedy(version: int) -> None:
    text = explain(version)
    served = f"{PRODUCE.first_version} to {PRODUCE.last_version}"
    assert text.startswith(f"Produce version {version} is not supported (only {served}): client")
    assert "'billing' (software unknown)" in text
    for remedy in ("Kafka 2.1 or newer", "broker.version.fallback", "api_version"):
        assert remedy in text


def test_newer_client_is_not_called_old() -> None:
    text = explain(99, software="apache-kafka-java", release="9.0")
    assert "'billing' (apache-kafka-java 9.0)" in text
    assert "Kafka 2.1 or newer" not in text
    assert "ApiVersions" in text


def test_client_id_is_truncated() -> None:
    header = RequestHeader(0, 0, 7, "x" * 30_000)
    assert len(describe_client(header, connection())) < 200
    assert describe_client(header._replace(client_id=None), connection()).startswith("a client w")


def test_zookeeper_client_is_distinguished_from_an_old_producer() -> None:
    connect = bytes(12) + b"\0\0\x75\x30" + bytes(8) + b"\0\0\0\x10" + bytes(16)
    header = RequestHeader(0, 0, 0, "")
    for frame in (connect, connect + b"\0"):
        text = explain_version(PRODUCE, header, connection(), memoryview(frame))
        assert "zookeeper.connect" in text


def test_sasl_request_is_explained_with_the_remedy() -> None:
    text = explain_api(RequestHeader(17, 1, 7, "billing"), connection())
    assert "OUTSIDE does not authenticate clients; set security.protocol=SSL" in text


def test_unsupported_api_is_named() -> None:
    assert "LEADER_AND_ISR (4)" in explain_api(RequestHeader(4, 1, 7, None), connection())
    assert "api key 999" in explain_api(RequestHeader(999, 1, 7, None), connection())
