"""Serializers, interceptors, callbacks and metrics of a producer."""

from __future__ import annotations

from typing import Any

import pytest

from plog import ProducerInterceptor
from plog.client.errors import RecordTooLarge, SerializationFailed
from plog.client.values import ProducerRecord, RecordMetadata
from plog.errors import MessageTooLarge, UnknownTopicOrPartition
from tests.unit.client.producer.producer_site import TOPIC, ProducerSite, ready


def test_callback_receives_metadata_or_error() -> None:
    site = ready(topic={"max_message_bytes": "600"})
    outcomes: list[Any] = []
    site.sent(b"a", on_delivery=lambda *outcome: outcomes.append(outcome))
    site.sent(b"x" * 1000, on_delivery=lambda *outcome: outcomes.append(outcome))
    site.flush()
    (first, no_error), (nothing, error) = sorted(outcomes, key=lambda x: x[0] is None)
    assert (first.offset, no_error, nothing) == (0, None, None)
    assert isinstance(error, MessageTooLarge)


def test_handle_callback_runs_when_done_or_immediately() -> None:
    site = ready()
    [handle] = site.sent(b"v")
    outcomes: list[Any] = []
    handle.add_callback(outcomes.append)
    assert outcomes == []
    site.flush()
    assert outcomes == [handle]
    handle.add_callback(outcomes.append)
    assert outcomes == [handle, handle]


def test_failing_callback_is_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    site = ready()

    def fail(*_: Any) -> None:
        raise RuntimeError("oops")

    outcomes: list[Any] = []
    site.sent(b"a", on_delivery=fail)
    site.sent(b"b", on_delivery=lambda *outcome: outcomes.append(outcome))
    site.flush()
    assert len(outcomes) == 1
    assert "oops" in caplog.text


class Interceptor:
    """Marks the records sent, and records their outcomes."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark
        self.outcomes: list[tuple[RecordMetadata, Exception | None]] = []
        self.is_closed = False

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value + self.mark)

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.outcomes.append((metadata, error))

    def close(self) -> None:
        self.is_closed = True


def test_interceptors_see_each_record_once_in_order() -> None:
    interceptors = [Interceptor(b"1"), Interceptor(b"2")]
    site = ProducerSite(core={"interceptors": interceptors}, buffer_memory=2_000, batch_size=1_000)
    for _ in range(20):
        site.run(site.core.send_soon(TOPIC, b"x" * 200))
    site.flush()
    assert site.values() == [b"x" * 200 + b"12"] * 20
    assert [x.offset for x, _ in interceptors[1].outcomes] == list(range(20))
    site.run(site.core.close())
    assert interceptors[0].is_closed


def test_failing_interceptor_is_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Interceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise RuntimeError("oops")

        def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
            raise RuntimeError("again")

    site = ready(core={"interceptors": [Broken(b""), Interceptor(b"2")]})
    site.sent(b"v")
    site.flush()
    assert site.values() == [b"v2"]
    assert "oops" in caplog.text
    assert "again" in caplog.text


def test_interceptor_cannot_choose_unknown_partition() -> None:
    class Lost(Interceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(partition=9)

    interceptor = Lost(b"")
    site = ready(core={"interceptors": [interceptor]})
    with pytest.raises(
        UnknownTopicOrPartition, match="cannot send to partition 9 of topic page-views: an"
    ):
        site.run(site.core.send_soon(TOPIC, b"v"))
    assert len(interceptor.outcomes) == 1


def test_interceptor_may_override_only_some_methods() -> None:
    class Counting(ProducerInterceptor):
        seen = 0

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            self.seen += 1
            return super().on_send(record)

    class Silent(ProducerInterceptor):
        """Overrides no method."""

    counting = Counting()
    site = ready(core={"interceptors": [counting, Silent()]})
    site.sent(b"v")
    site.run(site.core.close(5))
    assert counting.seen == 1
    assert site.values(0) == [b"v"]


def test_interceptors_are_notified_of_refused_records() -> None:
    interceptor = Interceptor(b"")
    site = ready(core={"interceptors": [interceptor]}, max_request_size=1000, batch_size=500)
    with pytest.raises(RecordTooLarge):
        site.core.send(TOPIC, b"x" * 2000)
    [(metadata, error)] = interceptor.outcomes
    assert (metadata.topic, metadata.partition, metadata.offset) == (TOPIC, -1, -1)
    assert isinstance(error, RecordTooLarge)


def test_serializers_are_called_for_everything_but_none() -> None:
    site = ready(
        core={"key_serializer": str.encode, "value_serializer": lambda x: b"%d" % x}, partitions=12
    )
    site.sent(7, key="foobar")  # type: ignore[arg-type]
    site.core.send(TOPIC, None, partition=0)
    site.flush()
    assert site.records(6)[0][2:4] == (b"foobar", b"7")
    assert site.values(0) == [None]


def test_failing_serializer_raises_serialization_failed() -> None:
    site = ready(core={"value_serializer": lambda x: 1 / x})
    with pytest.raises(
        SerializationFailed, match=r"value serializer failed .* page-views: ZeroDiv"
    ):
        site.core.send(TOPIC, 0)
    with pytest.raises(SerializationFailed, match="is float, not bytes"):
        site.core.send(TOPIC, 2)


def test_metrics_have_kafka_names_and_correct_values() -> None:
    site = ready()
    site.sent(*[b"x" * 100] * 50)
    site.flush()
    metrics = site.core.metrics()
    assert metrics["record-send-total"] == 50
    assert metrics["record-error-total"] == metrics["record-retry-total"] == 0
    assert metrics["records-per-request-avg"] == 50
    assert metrics["compression-rate-avg"] == 1
    assert 5_000 < metrics["batch-size-avg"] < 6_000
    assert 0 < metrics["request-latency-avg"] <= metrics["request-latency-max"]
    assert metrics["requests-in-flight"] == metrics["waiting-threads"] == 0
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"] == 32 << 20
