"""Events of the verifiable tools: one JSON object per line, in the format of Kafka's tools.

Kafka's system tests and other checkers parse these lines. Therefore the names of events, fields and
errors, and the order of fields, match Kafka's tools.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from typing import IO, Final

_PACKAGE: Final = "org.apache.kafka.common.errors."
# Errors whose Java names cannot be derived from the names in plog.
_JAVA_NAMES: Final[Mapping[str, str]] = {
    "AuthenticationFailed": _PACKAGE + "SaslAuthenticationException",
    "BufferExhausted": "org.apache.kafka.clients.producer.BufferExhaustedException",
    "ClosedError": "org.apache.kafka.common.KafkaException",
    "ConnectionFailed": _PACKAGE + "NetworkException",
    "CorruptMessage": _PACKAGE + "CorruptRecordException",
    "DeliveryTimedOut": _PACKAGE + "TimeoutException",
    "MessageTooLarge": _PACKAGE + "RecordTooLargeException",
    "RequestTimedOut": _PACKAGE + "TimeoutException",
    "RecordTooLarge": _PACKAGE + "RecordTooLargeException",
    "SerializationFailed": _PACKAGE + "SerializationException",
    "TlsFailed": _PACKAGE + "SslAuthenticationException",
}


class Events:
    """Prints events; any thread can call `print`."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream or sys.stdout
        self._lock = threading.Lock()

    def print(self, name: str, **fields: object) -> None:
        """Print an event, which starts with the current time."""
        event = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
        line = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
        # The engine's thread prints results while the main thread prints other events.
        with self._lock:
            self._stream.write(line + "\n")
            # A test that reads the pipe must see each event immediately.
            self._stream.flush()


def java_class_of(error: Exception) -> str:
    """Return the text that Java prints for an error's class.

    >>> from plog.errors import UnknownTopicOrPartition
    >>> java_class_of(UnknownTopicOrPartition())
    'class org.apache.kafka.common.errors.UnknownTopicOrPartitionException'
    """
    name = type(error).__name__
    if name in _JAVA_NAMES:
        return f"class {_JAVA_NAMES[name]}"
    bare = name.removesuffix("Exception").removesuffix("Error")
    # TopicAuthorizationFailed is Java's TopicAuthorizationException.
    if bare.endswith("AuthorizationFailed"):
        bare = bare.removesuffix("Failed")
    return f"class {_PACKAGE}{bare}Exception"
