"""Every version of every message, compared byte for byte with kio, an independent implementation.

kio is a development dependency only. It has one class per version and message, with dates for
timestamps and None for a zero id; `_plain_entity` converts both sides to the same plain values. It
lacks the messages that Kafka 4 has removed; test_messages_kafka_3.py compares these.
"""

from __future__ import annotations

import io
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any
from uuid import UUID

import pytest

from plog.types import ZERO_UUID
from plog.wire.api_keys import ApiKey
from plog.wire.messages import API_BY_KEY
from plog.wire.schema import ApiMessage, Struct
from tests.unit.wire.filled import API_MESSAGES, every_version, filled

kio_index = pytest.importorskip("kio.index", reason="kio, the second opinion, is not installed")
kio_serial = pytest.importorskip("kio.serial", reason="kio, the second opinion, is not installed")

_SAME_AS = {(ApiKey.DESCRIBE_LOG_DIRS, 0): 1}
"""Versions that kio lacks because Kafka 4.0 dropped them, and the versions with the same bytes."""

_REMOVED = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
)
_MESSAGES = tuple(message for message in API_MESSAGES if message.api_key not in _REMOVED)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@every_version(_MESSAGES)
@pytest.mark.parametrize("seed", range(3))
def test_filled_message_equals_kios(
    message_type: type[ApiMessage], version: int, seed: int
) -> None:
    _assert_both_agree(filled(message_type, version, seed), version)


@every_version(_MESSAGES)
def test_message_with_nulls_equals_kios(message_type: type[ApiMessage], version: int) -> None:
    _assert_both_agree(filled(message_type, version, 1, nulls=True), version)


@every_version(_MESSAGES)
def test_message_with_defaults_equals_kios(message_type: type[ApiMessage], version: int) -> None:
    _assert_both_agree(message_type(), version)


def _assert_both_agree(message: ApiMessage, version: int) -> None:
    entity_type = _entity_type(message, version)
    data = message.encode(version)

    entity, size = kio_serial.entity_reader(entity_type)(data, 0)
    assert size == len(data)
    assert _plain_entity(entity) == _plain_struct(message, version)

    written = io.BytesIO()
    kio_serial.entity_writer(entity_type)(written, entity)
    assert written.getvalue() == data
    assert type(message).decode_prefix(written.getvalue(), version) == (message, len(data))


def _entity_type(message: ApiMessage, version: int) -> Any:
    version = _SAME_AS.get((message.api_key, version), version)
    if isinstance(message, API_BY_KEY[message.api_key].request):
        return kio_index.load_request_schema(message.api_key, version)
    return kio_index.load_response_schema(message.api_key, version)


def _plain_entity(value: Any) -> Any:
    match value:
        case tuple():
            return [_plain_entity(item) for item in value]
        case UUID():
            return value.bytes
        case timedelta():
            return value // timedelta(milliseconds=1)
        case datetime():
            return (value - _EPOCH) // timedelta(milliseconds=1)
        case IntEnum():
            return int(value)
        case _ if hasattr(value, "__version__"):
            return {x.name: _plain_entity(getattr(value, x.name)) for x in fields(value)}
        case _:
            return value


def _plain_struct(value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_plain_struct(item, version) for item in value]
    if not isinstance(value, Struct):
        return None if value == ZERO_UUID else value
    plain = {}
    for field in type(value).fields:
        if not field.versions.has(version):
            continue
        plain_value = _plain_struct(getattr(value, field.name), version)
        if field.name == "log_append_time_ms" and plain_value == -1:
            plain_value = None
        # kio omits the unit from the names of dates and durations.
        plain[field.name.removesuffix("_ms")] = plain_value
    return plain
