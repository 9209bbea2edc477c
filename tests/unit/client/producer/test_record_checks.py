"""Errors name the invalid part of a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from plog.client.errors import ClosedError, RecordTooLarge, SerializationFailed
from plog.client.producer.core import ProducerCore
from plog.client.producer.record_checks import checked_partition
from plog.client.values import ProducerRecord, RecordMetadata
from plog.errors import InvalidTopicException
from tests.unit.client.producer.producer_site import TOPIC, ProducerSite, ready


class Index:
    """An integer of another library, such as NumPy's."""

    def __index__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"value": "text"}, "the value of a record for topic page-views is str, not bytes"),
        ({"key": 5}, "the key of a record for topic page-views is int, not bytes"),
        ({"partition": -1}, "partition -1 is negative"),
        ({"partition": "1"}, "partition '1' of topic page-views is not a number"),
        ({"partition": 1.0}, r"partition 1\.0 of topic page-views is not a number"),
        ({"timestamp": -1}, "timestamp -1 is not a whole number of ms since 1970"),
        ({"timestamp": 1.5}, r"timestamp 1\.5 is not a whole number"),
        ({"timestamp": 1 << 63}, "is not a whole number of ms"),
        (
            {"headers": [("a", "b")]},
            r"a header must be a name with bytes or None, not \('a', 'b'\)",
        ),
        ({"headers": [("a",)]}, "a header must be a name with bytes or None, not"),
        ({"headers": [(b"a", b"b")]}, "a header must be a name with bytes or None, not"),
        ({"headers": "ab"}, "a header must be a name with bytes or None, not 'a'"),
        ({"headers": 3}, "headers must be a mapping, or pairs of a name and bytes, not 3"),
        ({"value": b"x" * (2 << 20)}, r"larger than max\.request\.size=1048576"),
    ],
)
@pytest.mark.parametrize("core", [{}, {"interceptors": [object()]}])
def test_error_names_invalid_part_of_record(
    record: dict[str, Any], problem: str, core: dict[str, Sequence[Any]], caplog: Any
) -> None:
    site = ready(core=core)
    with pytest.raises((SerializationFailed, ValueError, RecordTooLarge), match=problem):
        site.core.send(TOPIC, **record)
    site.flush()
    assert site.values() == []


@pytest.mark.parametrize("topic", ["", None, 5, b"t", ["t"], "x" * 250, "\udc80"])
@pytest.mark.parametrize("core", [{}, {"value_serializer": bytes}])
def test_error_names_invalid_topic(topic: Any, core: dict[str, Any]) -> None:
    site = ready(core=core)
    with pytest.raises(InvalidTopicException, match="invalid topic name"):
        site.run(site.core.send_soon(topic, b"v"))


def test_partition_may_be_an_integer_of_another_library() -> None:
    assert checked_partition(Index(), TOPIC) == 1
    site = ready(partitions=2)
    [handle] = site.sent(b"v", partition=Index())
    site.flush()
    assert handle.metadata().partition == 1


def test_headers_may_be_pairs_lists_or_a_mapping() -> None:
    site = ready()
    many = [(f"h{number}", b"%d" % number) for number in range(2_000)]
    site.sent(b"1", headers=many)
    site.sent(b"2", headers=[["a", b"1"]])
    site.sent(b"3", headers={"a": None})
    site.flush()
    first, *others = site.records()
    assert list(first.headers) == many
    assert [record.headers for record in others] == [(("a", b"1"),), (("a", None),)]


def test_earliest_and_latest_timestamps_fit_into_one_batch() -> None:
    site = ready(topic={"message_timestamp_after_max_ms": str((1 << 63) - 1)})
    site.sent(b"1", timestamp=0)
    site.sent(b"2", timestamp=(1 << 63) - 1)
    site.flush()
    assert [record.timestamp for record in site.records()] == [0, (1 << 63) - 1]


@pytest.mark.parametrize("chosen", [5, -1, None, "0"])
def test_error_names_invalid_choice_of_partitioner(chosen: Any) -> None:
    site = ready(partitions=3, core={"partitioner": lambda *_: chosen})
    with pytest.raises(ValueError, match=rf"invalid partition {chosen!r} from the partitioner"):
        site.core.send(TOPIC, b"v")


def test_exception_of_partitioner_is_raised_unchanged() -> None:
    def broken(*_: object) -> int:
        raise LookupError("no table")

    site = ready(core={"partitioner": broken})
    with pytest.raises(LookupError, match="no table"):
        site.core.send(TOPIC, b"v")
    site.flush()
    assert site.values() == []


def test_partitioner_is_not_called_while_producer_closes() -> None:
    """As during `close`, in a thread that has looked up the topic just before."""
    site = ready(core={"partitioner": lambda *_: 0})
    topic = site.core._accumulator.topic(TOPIC)
    site.run(site.core.close())
    site.core._accumulator.topic = lambda name: topic  # type: ignore[method-assign]
    with pytest.raises(ClosedError):
        site.core.send(TOPIC, b"v")


def test_serializer_must_return_bytes() -> None:
    site = ready(core={"value_serializer": lambda value: 5})
    with pytest.raises(
        SerializationFailed, match=r"is int, not bytes: pass bytes, or create .* value_serializer"
    ):
        site.core.send(TOPIC, b"v")


class Forgetful:
    """An interceptor without a `return`."""

    def __init__(self) -> None:
        self.outcomes: list[RecordMetadata] = []

    def on_send(self, record: ProducerRecord) -> None:
        pass

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.outcomes.append(metadata)
        raise KeyboardInterrupt  # Like CancelledError or SystemExit: the engine continues.

    def close(self) -> None:
        pass


def test_record_is_sent_unchanged_when_interceptor_returns_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = ready(core={"interceptors": [Forgetful(), Forgetful()]})
    [handle] = site.sent(b"v")
    site.flush()
    assert handle.metadata().offset == 0
    assert "returned None for topic page-views, which is not a ProducerRecord" in caplog.text


def test_any_exception_of_interceptor_is_ignored() -> None:
    interceptor = Forgetful()
    site = ready(core={"interceptors": [interceptor]}, batch_size=1)
    handles = site.sent(b"1", b"2", b"3")
    site.flush()
    assert [handle.metadata().offset for handle in handles] == [0, 1, 2]
    assert len(interceptor.outcomes) == 3
    site.run(site.core.close())
    assert site.core.metrics()["requests-in-flight"] == 0


def test_topic_learned_during_send_is_accepted(monkeypatch: Any) -> None:
    """The application's partitioner decides even if another thread learns the topic meanwhile."""
    site = ProducerSite(partitions=4, core={"partitioner": lambda *_: 3})
    chosen = ProducerCore._chosen

    def slow(core: Any, *arguments: Any) -> int | None:
        partition = chosen(core, *arguments)
        if not core._accumulator.knows(TOPIC, None):
            site.know()  # As the engine's thread would at this moment.
        return partition

    monkeypatch.setattr(ProducerCore, "_chosen", slow)
    assert site.core.send(TOPIC, b"v") is None
    [handle] = site.sent(b"v")
    site.flush()
    assert handle.metadata().partition == 3
