"""The audit of producers against a broker process: kills, lost acknowledgments and no broker.

`account` reads the topic and the reports as an auditor does. Unit tests cover the rules.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred

import plog
import plog.aio
import plog.twisted
from plog.audit import (
    AUDIT_TOPIC,
    AuditCounts,
    AuditFinding,
    AuditLedger,
    FindingKind,
    parse_report,
    producer_of,
)
from plog.client.network.private_reactor import PrivateReactor
from plog.client.simple import SimpleConsumer
from plog.types import TopicPartition
from plogd.testing.broker_process import BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.helpers.eventually import eventually

TOPIC = "clicks"
AUDITED: dict[str, Any] = {"plog_audit_enable": True, "plog_audit_producer": "web-1"}
_KILLED = """
import sys
import plog
producer = plog.Producer(
    bootstrap_servers=sys.argv[1], plog_audit_enable=True, plog_audit_producer="web-1"
)
producer.send("clicks", b"first").result(60)
print("first", flush=True)
sys.stdin.readline()
for number in range(100):
    producer.send("clicks", b"%d" % number)
producer.flush()
print("sent", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def broker(plog_broker_factory: BrokerFactory) -> Iterator[BrokerProcess]:
    made = plog_broker_factory({"auto.create.topics.enable": "false"}, kind="process")
    with plog.Admin(bootstrap_servers=made.bootstrap_servers) as admin:
        admin.create_topic(TOPIC, partitions=3)
    yield made
    if made.is_running:
        made.stop()


def records_of(servers: str, topic: str) -> Iterator[plog.ConsumerRecord]:
    with SimpleConsumer(bootstrap_servers=servers) as consumer:
        for known in consumer.partitions_for(topic):
            partition = TopicPartition(topic, known.index)
            end_offset = consumer.end_offsets([partition])[partition]
            yield from consumer.records(partition, 0, end_offset)


def ledger_of(servers: str) -> AuditLedger:
    ledger = AuditLedger()
    for record in records_of(servers, AUDIT_TOPIC):
        ledger.add(parse_report(record.value))
    return ledger


def reported(servers: str) -> bool:
    """Return whether any report is in the log."""
    with plog.Admin(bootstrap_servers=servers) as admin:
        return AUDIT_TOPIC in admin.list_topics() and bool(ledger_of(servers).windows())


def account(servers: str) -> tuple[int, list[AuditFinding]]:
    """Return the number of records in the topic, and what differs from the reports."""
    actual, count = AuditCounts(), 0
    for record in records_of(servers, TOPIC):
        actual.add(TOPIC, record.timestamp, record.value, producer_of(record.headers))
        count += 1
    ledger = ledger_of(servers)
    assert ledger.missing_reports() == []
    assert ledger.conflicts == []
    return count, list(ledger.findings(actual))


def test_counts_equal_the_log_after_broker_kills_and_retries(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    with plog.Producer(bootstrap_servers=servers, batch_size=2000, **AUDITED) as producer:
        for number in range(3000):
            producer.send(TOPIC, b"%d" % number, timestamp=number * 100)
            if number in (1000, 2000):
                broker.kill()
                broker.restart()
    assert account(servers) == (3000, [])


def test_lost_acknowledgment_is_not_counted_twice(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    with plog.Producer(bootstrap_servers=servers, **AUDITED) as producer:
        producer.send(TOPIC, b"0").result(60)
        lost = broker.hooks.drop("Produce", after=True, topic=TOPIC)
        producer.send(TOPIC, b"1").result(60)
        assert lost.hits == 1
    assert account(servers) == (2, [])


def test_asyncio_producer_reports_when_it_closes(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers

    async def produce() -> None:
        async with plog.aio.Producer(bootstrap_servers=servers, **AUDITED) as producer:
            for number in range(500):
                await producer.send(TOPIC, b"%d" % number)

    asyncio.run(produce())
    assert account(servers) == (500, [])


def test_twisted_producer_reports_when_it_closes(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    private = PrivateReactor.current()

    async def produce() -> None:
        producer = plog.twisted.Producer(private.reactor, bootstrap_servers=servers, **AUDITED)
        for number in range(500):
            sent: Deferred[Any] = producer.send(TOPIC, b"%d" % number)
            if number % 100 == 0:
                await sent
        await producer.close()

    private.run(produce)
    assert account(servers) == (500, [])


def test_killed_producer_leaves_unreported_records(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "first\n"

        eventually(lambda: reported(servers), "report")
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "sent\n"
        process.send_signal(signal.SIGKILL)
    count, findings = account(servers)
    assert count == 101
    assert {finding.kind for finding in findings} == {FindingKind.UNREPORTED}
    assert sum(finding.records for finding in findings) == 100


def test_close_without_broker_ends_in_time(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    producer = plog.Producer(bootstrap_servers=broker.bootstrap_servers, **AUDITED)
    producer.send(TOPIC, b"0").result(60)
    eventually(lambda: reported(broker.bootstrap_servers), "report")
    producer.send(TOPIC, b"1").result(60)
    broker.kill()
    producer.close(2)
    assert f"before its audit reports were acknowledged ({TOPIC}: 1 records)" in caplog.text
