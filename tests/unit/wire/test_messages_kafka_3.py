"""Messages that Kafka 4 has removed, compared with the bytes and the JSON of Kafka 3.9."""

from __future__ import annotations

import json

import pytest

from plog.wire.api_keys import ApiKey
from plog.wire.as_json import as_json
from plog.wire.messages import API_BY_KEY
from plog.wire.schema import ApiMessage
from tests.corpus.control_requests import ControlMessage, load

KEYS = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
)
TYPES: dict[str, type[ApiMessage]] = {
    message.__name__: message
    for key in KEYS
    for message in (API_BY_KEY[key].request, API_BY_KEY[key].response)
}


@pytest.mark.parametrize("example", load(), ids=lambda one: f"{one.name}-v{one.version}")
def test_message_equals_kafkas(example: ControlMessage) -> None:
    message, size = TYPES[example.name].decode_prefix(example.data, example.version)
    assert size == len(example.data)
    assert message.encode(example.version) == example.data
    assert as_json(message, example.version) == json.loads(example.json)


def test_every_version_of_every_message_is_compared() -> None:
    assert {(one.name, one.version) for one in load()} == {
        (name, version)
        for name, message in TYPES.items()
        for version in range(message.min_version, message.max_version + 1)
    }
