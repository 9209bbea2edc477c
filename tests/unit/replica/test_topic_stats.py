"""Counters per topic, as dashboards for Kafka read them."""

from __future__ import annotations

from plog.wire.messages.delete_topics import DeleteTopicsRequest
from tests.helpers.sim.sim_broker import SimBroker, create_topic, records_of


def value(broker: SimBroker, name: str, topic: str) -> float | None:
    line = f'kafka_server_brokertopicmetrics_{name}_total{{topic="{topic}"}} '
    for found in broker.metrics.expose().decode().splitlines():
        if found.startswith(line):
            return float(found.removeprefix(line))
    return None


def test_appends_and_fetches_are_counted() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    broker.produce("t", b"a", b"b")
    broker.fetch("t")
    size = len(records_of((b"a", b"b")))
    names = ("messagesin", "bytesin", "bytesout", "totalproducerequests", "totalfetchrequests")
    assert [value(broker, name, "t") for name in names] == [2, size, size, 1, 1]


def test_duplicate_adds_no_messages_and_refused_batch_counts_as_failed() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    for _ in range(2):
        broker.produce("t", b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    broker.produce("t", records=b"x" * 70)
    names = ("messagesin", "totalproducerequests", "failedproducerequests")
    assert [value(broker, name, "t") for name in names] == [1, 3, 1]


def test_missing_topics_get_no_counters() -> None:
    broker = SimBroker().start()
    broker.produce("missing", b"a")
    assert "missing" not in broker.metrics.expose().decode()


def test_counters_of_a_deleted_topic_are_removed() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    broker.produce("t", b"a")
    broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    assert value(broker, "messagesin", "t") is None
