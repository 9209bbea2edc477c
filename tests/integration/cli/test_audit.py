"""``plog audit`` against a broker process: real losses and repetitions, and restarts.

The order of its steps and the comparison are tested in tests/unit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import plog
from plog.cli.main import main
from plogd.testing.broker_process import BrokerProcess
from plogd.testing.plugin import BrokerFactory

MINUTE_MS = 60_000
AUDITED: dict[str, Any] = {"plog_audit_enable": True, "plog_audit_producer": "web-1"}


@pytest.fixture
def broker(plog_broker_factory: BrokerFactory) -> Iterator[BrokerProcess]:
    made = plog_broker_factory({}, kind="process")
    with plog.Admin(bootstrap_servers=made.bootstrap_servers) as admin:
        admin.create_topic("clicks", partitions=2, configs={"retention.ms": "-1"})
    yield made
    if made.is_running:
        made.stop()


def send(broker: BrokerProcess, *values: bytes | None, minute: int = 1, **more: Any) -> None:
    settings = {**AUDITED, **more}
    with plog.Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        for value in values:
            producer.send("clicks", value, partition=0, timestamp=minute * MINUTE_MS).result(60)


def lose(broker: BrokerProcess, value: bytes, minute: int) -> None:
    """Send a record that the broker never receives, without waiting for an acknowledgment."""
    settings = {**AUDITED, "enable_idempotence": False, "acks": "0"}
    with (
        plog.Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer,
        broker.hooks.drop("Produce", topic="clicks") as lost,
    ):
        producer.send("clicks", value, timestamp=minute * MINUTE_MS).result(60)
        lost.wait()


def repeat(broker: BrokerProcess, value: bytes, minute: int) -> None:
    """Send a record twice: its acknowledgment is lost, and the producer is not idempotent."""
    settings = {**AUDITED, "enable_idempotence": False, "acks": "1"}
    with (
        plog.Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer,
        broker.hooks.drop("Produce", after=True, topic="clicks") as lost,
    ):
        producer.send("clicks", value, timestamp=minute * MINUTE_MS).result(60)
        assert lost.hits == 1


def audit(broker: BrokerProcess, *arguments: str) -> int:
    return main(["audit", "--bootstrap-server", broker.bootstrap_servers, *arguments])


def test_loss_and_repetition_are_found_in_their_window(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    send(broker, b"a", None, b"b")
    broker.kill()
    broker.restart()
    send(broker, *(b"%d" % number for number in range(10)), minute=2)
    assert audit(broker) == 0
    assert capsys.readouterr().out == (
        "clicks: reported 13, found 13 records in 2 windows\nall records are accounted for\n"
    )
    lose(broker, b"lost", minute=2)
    repeat(broker, b"twice", minute=2)
    lose(broker, b"lost", minute=3)
    repeat(broker, b"twice", minute=4)
    assert audit(broker) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "clicks 1970-01-01T00:02:00Z web-1: 12 records as reported, but their values differ"
    )
    assert lines[1:] == [
        "clicks 1970-01-01T00:03:00Z web-1: 1 records lost (reported 1, found 0)",
        "clicks 1970-01-01T00:04:00Z web-1: 1 records repeated (reported 1, found 2)",
        "clicks: reported 17, found 17 records in 4 windows",
        "found 3 problems",
    ]


def test_audit_continues_after_a_restart_of_the_broker(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    send(broker, *(b"%d" % number for number in range(10)))
    with ThreadPoolExecutor(1) as pool:
        # The broker is killed before it responds.
        held = broker.hooks.delay("Fetch", 600, topic="clicks")
        running = pool.submit(audit, broker)
        held.wait()
        broker.kill()
        broker.restart()
        assert running.result(120) == 0
    assert "clicks: reported 10, found 10 records in 1 windows" in capsys.readouterr().out


def test_deleted_records_are_not_compared(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    send(broker, b"a", b"b", minute=1)
    send(broker, b"c", minute=9)
    with plog.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({("clicks", 0): 1}).raise_first()
    assert audit(broker, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["accounted_for"] is True
    skipped = {"topic": "clicks", "before_ms": 2 * MINUTE_MS, "windows": 1}
    assert data["skipped"] == [{**skipped, "reported": 2, "found": 1}]


def test_failure_has_an_exit_code_of_its_own(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(broker) == 2
    assert "plog: cannot find topics to audit" in capsys.readouterr().err
    send(broker, b"a")
    assert audit(broker, "--topic", "click") == 2
    assert "cannot audit click: this topic does not exist; did you mean clicks?" in (
        capsys.readouterr().err
    )
    with pytest.raises(SystemExit) as stopped:
        audit(broker, "--topics", "clicks")
    assert stopped.value.code == 2
    assert "did you mean --topic?" in capsys.readouterr().err
