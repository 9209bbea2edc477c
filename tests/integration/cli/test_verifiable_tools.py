"""The verifiable tools print the same events as Kafka's own, with the same fields."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.client.plog_command import Plog
from tests.helpers.programs.kafka_tools import KafkaTools


@pytest.fixture
def plog(broker: BrokerProcess) -> Plog:
    """The `plog` command, connected to the shared broker."""
    return Plog(broker.bootstrap_servers)


def _events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def _shape(event: object) -> object:
    """Return the names and types of an event's fields, which do not vary between runs.

    The timestamp and the name come first; Java may order the other fields differently each time.
    """
    if isinstance(event, dict):
        assert "name" not in event or list(event)[:2] == ["timestamp", "name"]
        return sorted(
            (name, value if name == "name" else str(_shape(value))) for name, value in event.items()
        )
    if isinstance(event, list):
        return [_shape(each) for each in event]
    return "number" if isinstance(event, int | float) else type(event).__name__


def test_producer_events_match_kafkas(kafka_tools: KafkaTools, plog: Plog, topic: str) -> None:
    options = [
        "--topic", topic, "--max-messages", "5", "--value-prefix", "3", "--repeating-keys", "2",
    ]  # fmt: skip
    ours = _events(plog.run("verifiable-producer", *options).decode())
    with kafka_tools.start(
        "VerifiableProducer", "--bootstrap-server", plog.bootstrap_servers, *options
    ) as process:
        theirs = process.wait_until(
            lambda lines: _events("\n".join(lines)) if "tool_data" in "".join(lines) else None,
            "the last event",
        )
    assert list(map(_shape, ours)) == list(map(_shape, theirs))
    sent = [event for event in ours if event["name"] == "producer_send_success"]
    assert [(x["key"], x["value"], x["offset"]) for x in sent] == [
        ("0", "3.0", 0), ("1", "3.1", 1), ("0", "3.2", 2), ("1", "3.3", 3), ("0", "3.4", 4),
    ]  # fmt: skip
    assert (ours[-1]["sent"], ours[-1]["acked"]) == (5, 5)


def test_consumer_events_match_kafkas(kafka_tools: KafkaTools, plog: Plog, topic: str) -> None:
    plog.run("produce", "--topic", topic, stdin=b"a\nb\nc\n")

    def options(group: str) -> list[str]:
        return ["--topic", topic, "--group-id", group, "--max-messages", "3", "--verbose"]

    ours = _events(plog.run("verifiable-consumer", *options(f"{topic}-ours")).decode())
    with kafka_tools.start(
        "VerifiableConsumer", "--bootstrap-server", plog.bootstrap_servers,
        *options(f"{topic}-theirs"),
    ) as process:  # fmt: skip
        theirs = process.wait_until(
            lambda lines: (
                _events("\n".join(lines)) if "shutdown_complete" in "".join(lines) else None
            ),
            "the last event",
        )
    for event in ours:
        same = next(x for x in theirs if x["name"] == event["name"])
        assert _shape(event) == _shape(same)
    names = [event["name"] for event in ours]
    assert names[:2] == ["startup_complete", "partitions_assigned"]
    assert names[2:6] == ["record_data"] * 3 + ["records_consumed"]
    assert names[-2:] == ["partitions_revoked", "shutdown_complete"]
    assert {x["name"] for x in theirs} - {"shutdown_requested"} == set(names)
    committed = next(event for event in ours if event["name"] == "offsets_committed")
    assert committed["offsets"] == [{"topic": topic, "partition": 0, "offset": 3}]


def test_records_reported_as_sent_survive_a_kill(own_broker: BrokerProcess) -> None:
    plog = Plog(own_broker.bootstrap_servers)
    with (
        plog.start("verifiable-producer", "--topic", "t", "--throughput", "200") as producer,
        plog.start("verifiable-consumer", "--topic", "t", "--group-id", "g", "--verbose") as reader,
    ):
        producer.wait_for_lines(100)
        own_broker.kill()
        own_broker.restart()
        before = len(producer.lines)
        producer.wait_for_lines(before + 200)
        assert producer.stop() == 130
        events = _events("\n".join(producer.lines))
        acked = {x["value"] for x in events if x["name"] == "producer_send_success"}
        assert events[-1]["acked"] == len(acked) > 200

        def values(lines: object) -> set[str] | None:
            found = {
                x["value"] for x in _events("\n".join(reader.lines)) if x["name"] == "record_data"
            }
            return found if acked <= found else None

        reader.wait_until(values, "all acknowledged records")
        assert reader.stop() == 130


def test_failed_send_is_an_event(plog: Plog) -> None:
    unreachable = Plog("127.0.0.1:1")
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".properties") as config:
        config.write("max.block.ms=300\n")
        config.flush()
        out = unreachable.run(
            "verifiable-producer", "--topic", "t", "--max-messages", "1", "--command-config",
            config.name,
        )  # fmt: skip
    [_, failure, _, data] = _events(out.decode())
    assert failure["name"] == "producer_send_error"
    assert failure["exception"] == "class org.apache.kafka.common.errors.TimeoutException"
    assert list(failure) == ["timestamp", "name", "key", "value", "topic", "exception", "message"]
    assert (data["sent"], data["acked"]) == (1, 0)


def test_producer_stops_without_a_broker() -> None:
    """Like Kafka's tool, it prints an event for the unsent record, then the totals.

    Its error is not the timeout of max.block.ms.
    """
    with Plog("127.0.0.1:1").start("verifiable-producer", "--topic", "t") as producer:
        producer.wait_for_lines(1)
        assert producer.stop(signal.SIGTERM) == 143
    [_, failure, shutdown, data] = _events("\n".join(producer.lines))
    assert failure["name"] == "producer_send_error"
    assert failure["exception"] == "class org.apache.kafka.common.KafkaException"
    assert shutdown["name"] == "shutdown_complete"
    assert (data["sent"], data["acked"]) == (1, 0)
