"""Formatters for ``plog console-consumer``, which convert a record into the bytes to print.

Source: Kafka 4.3 DefaultMessageFormatter, LoggingMessageFormatter, NoOpMessageFormatter. The
formatters for internal topics are in coordinator_formatters.py.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from plog.cli.console.coordinator_formatters import COORDINATOR_FORMATTERS
from plog.cli.console.deserializers import Deserializer, find_deserializer
from plog.cli.options import UsageError
from plog.client.values import ConsumerRecord
from plog.records.batch import TimestampType

# Kafka's formatter prints the parts in this order, whatever the order of the options is.
_PRINTED: Final = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
_BYTES: Final = ("key.separator", "line.separator", "headers.separator", "null.literal")
_DESERIALIZERS: Final = ("key", "value", "headers", "header")
_TYPE_NAMES: Final = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


class Formatter(Protocol):
    """Formats records for output."""

    def format(self, record: ConsumerRecord) -> bytes:
        """Return the bytes to print, including line endings. Raises PlogError."""


class DefaultFormatter:
    """Prints the requested parts of a record, with separators between them."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        _check_names(properties)
        # The methods are looked up once, because `format` runs for each record.
        self._parts = [
            getattr(self, f"_{name}")
            for name in _PRINTED
            if _is_true(properties.get(f"print.{name}", ""))
        ]
        if _is_true(properties.get("print.value", "true")):
            self._parts.append(self._value)
        self._separator = _bytes(properties, "key.separator", "\t")
        self._end = _bytes(properties, "line.separator", "\n")
        self._between_headers = _bytes(properties, "headers.separator", ",")
        self._null = _bytes(properties, "null.literal", "null")
        self._of_key = find_deserializer(properties.get("key.deserializer"))
        self._of_value = find_deserializer(properties.get("value.deserializer"))
        self._of_header = find_deserializer(
            properties.get("headers.deserializer", properties.get("header.deserializer"))
        )

    def format(self, record: ConsumerRecord) -> bytes:
        # As in Kafka, there is no line ending either.
        if not self._parts:
            return b""
        return self._separator.join([part(record) for part in self._parts]) + self._end

    def _timestamp(self, record: ConsumerRecord) -> bytes:
        name = timestamp_type_name(record)
        return b"NO_TIMESTAMP" if name is None else b"%s:%d" % (name.encode(), record.timestamp)

    def _partition(self, record: ConsumerRecord) -> bytes:
        return b"Partition:%d" % record.partition

    def _offset(self, record: ConsumerRecord) -> bytes:
        return b"Offset:%d" % record.offset

    def _delivery(self, record: ConsumerRecord) -> bytes:
        return b"Delivery:NOT_PRESENT"  # Only share groups count deliveries (KIP-932).

    def _epoch(self, record: ConsumerRecord) -> bytes:
        epoch = record.leader_epoch
        return b"Epoch:NOT_PRESENT" if epoch < 0 else b"Epoch:%d" % epoch

    def _headers(self, record: ConsumerRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self._between_headers.join(
            name.encode("utf-8", "surrogateescape") + b":" + self._shown(self._of_header, value)
            for name, value in record.headers
        )

    def _key(self, record: ConsumerRecord) -> bytes:
        return self._shown(self._of_key, record.key)

    def _value(self, record: ConsumerRecord) -> bytes:
        return self._shown(self._of_value, record.value)

    def _shown(self, deserialize: Deserializer | None, data: bytes | None) -> bytes:
        if data is None:
            return self._null
        return data if deserialize is None else deserialize(data).encode()


class LoggingFormatter(DefaultFormatter):
    """Prints records like DefaultFormatter, and also logs a line per record to standard error."""

    def format(self, record: ConsumerRecord) -> bytes:
        name = timestamp_type_name(record)
        when = "" if name is None else f"{name}:{record.timestamp}, "
        # As in Kafka's formatter, no comma follows a null key.
        key = "null " if record.key is None else f"{_text(record.key)}, "
        value = "null" if record.value is None else _text(record.value)
        print(f"{when}key:{key}value:{value}", file=sys.stderr)
        return super().format(record)


class NoOpFormatter:
    """Prints nothing, to measure the speed of the consumer without formatting."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Ignore the properties, because this formatter has none."""

    def format(self, record: ConsumerRecord) -> bytes:
        return b""


class JsonFormatter:
    """Prints one JSON object per line; bytes that are not UTF-8 are encoded as base64."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        if properties:
            raise UsageError("--json prints all parts and does not accept formatter properties")

    def format(self, record: ConsumerRecord) -> bytes:
        fields = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": timestamp_type_name(record),
            "leader_epoch": record.leader_epoch,
            # JSON cannot contain the surrogates of names that are not UTF-8.
            "headers": [
                [name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), _json(value)]
                for name, value in record.headers
            ],
            "key": _json(record.key),
            "value": _json(record.value),
        }
        # Without this argument, each character that is not ASCII would become six or more
        # characters.
        return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


FORMATTERS: Final[Mapping[str, Callable[[Mapping[str, str]], Formatter]]] = {
    "DefaultMessageFormatter": DefaultFormatter,
    "LoggingMessageFormatter": LoggingFormatter,
    "NoOpMessageFormatter": NoOpFormatter,
    **COORDINATOR_FORMATTERS,
}


def find_formatter(name: str) -> Callable[[Mapping[str, str]], Formatter]:
    """Return the formatter for a Java class, with or without its package. Raises UsageError.

    >>> find_formatter("kafka.tools.NoOpMessageFormatter").__name__
    'NoOpFormatter'
    """
    # Older releases of Kafka nest some classes: GroupMetadataManager$OffsetsMessageFormatter.
    found = FORMATTERS.get(name.replace("$", ".").rpartition(".")[2])
    if found is None:
        raise UsageError(f"unknown formatter {name}; use one of {', '.join(FORMATTERS)}")
    return found


def timestamp_type_name(record: ConsumerRecord) -> str | None:
    """Return Java's name of the timestamp type; None for a record without a timestamp."""
    return None if record.timestamp < 0 else _TYPE_NAMES.get(record.timestamp_type)


def _check_names(properties: Mapping[str, str]) -> None:
    # Kafka's formatter ignores unknown names, so a misspelled one would have no effect.
    names = {f"print.{part}" for part in (*_PRINTED, "value")} | set(_BYTES)
    deserializers = {f"{part}.deserializer" for part in _DESERIALIZERS}
    for name in properties:
        # Kafka passes properties with this prefix to the deserializer, so they are accepted.
        is_of_deserializer = any(name.startswith(f"{known}.") for known in deserializers)
        if name not in names | deserializers and not is_of_deserializer:
            known = ", ".join(sorted(names | deserializers))
            raise UsageError(f"unknown formatter property {name}; use one of {known}")


def _bytes(properties: Mapping[str, str], name: str, default: str) -> bytes:
    # Python decodes command-line bytes that are not UTF-8 as surrogates (PEP 383).
    return properties.get(name, default).encode("utf-8", "surrogateescape")


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _json(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        # An object, so that a program can tell these bytes from text that looks like base64.
        return {"base64": base64.b64encode(data).decode()}
