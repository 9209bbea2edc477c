"""plog/cli/verifiable/json_events.py: one line per event, with Java's names of errors."""

from __future__ import annotations

import io
import json

import pytest

from plog.cli.verifiable.json_events import Events, java_class_of
from plog.client.errors import BufferExhausted, ClosedError, DeliveryTimedOut, RecordTooLarge
from plog.errors import NotLeaderOrFollower, TopicAuthorizationFailed


def test_event_is_a_json_line_with_timestamp_first() -> None:
    stream = io.StringIO()
    events = Events(stream)
    events.print("startup_complete")
    events.print("x", key=None, value="ä", count=1)
    first, second = stream.getvalue().splitlines()
    assert list(json.loads(first)) == ["timestamp", "name"]
    assert second.endswith('"name":"x","key":null,"value":"ä","count":1}')


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (DeliveryTimedOut(), "org.apache.kafka.common.errors.TimeoutException"),
        (RecordTooLarge("x"), "org.apache.kafka.common.errors.RecordTooLargeException"),
        (ClosedError("x"), "org.apache.kafka.common.KafkaException"),
        (BufferExhausted("x"), "org.apache.kafka.clients.producer.BufferExhaustedException"),
        (TopicAuthorizationFailed(),
         "org.apache.kafka.common.errors.TopicAuthorizationException"),
        (NotLeaderOrFollower(), "org.apache.kafka.common.errors.NotLeaderOrFollowerException"),
    ],
)  # fmt: skip
def test_error_has_the_name_of_javas_class(error: Exception, name: str) -> None:
    assert java_class_of(error) == f"class {name}"
