"""plog/cli/verifiable/json_events.py: a line for each event, with Java's names."""

from __future__ import annotations

import io
import json

import pytest

from plog.cli.verifiable.json_events import Events, java_class_of
from plog.client.errors import BufferExhausted, ClosedError, DeliveryTimedOut, RecordTooLarge
from plog.errors import NotLeaderOrFollower, TopicAuthorizationFailed


def test_an_event_is_a_line_of_json_that_begins_with_its_time() -> None:
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
def test_errors_have_the_names_of_javas_classes(error: Exception, name: str) -> None:
    assert java_class_of(error) == f"class {name}"
