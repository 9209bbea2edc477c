"""The audit of producers against a broker process: kills, lost acknowledgments and no broker.

The function `account` reads a topic and the reports, as an auditor does. Unit tests cover the
rules.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import plog
from plog.audit import (
    AUDIT_TOPIC,
    AuditCounts,
    AuditFinding,
    AuditLedger,
    AuditReport,
    FindingKind,
    parse_report,
    producer_of,
)
from plog.client.simple import SimpleConsumer
from plog.types import TopicPartition
from plogd.testing.broker_process import BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.helpers.client.faces import NAMES, open_face
from tests.helpers.eventually import eventually
from tests.integration.client_servers import Server

TOPIC = "clicks"
AUDITED: dict[str, Any] = {"plog_audit_enable": True, "plog_audit_producer": "web-1"}
_KILLED = """
import sys
import uuid
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
    with SimpleConsumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        for known in consumer.partitions_for(topic):
            partition = TopicPartition(topic, known.index)
            end_offset = consumer.end_offsets([partition])[partition]
            yield from consumer.records(partition, 0, end_offset)


def reports_of(servers: str) -> list[AuditReport]:
    with plog.Admin(bootstrap_servers=servers) as admin:
        if AUDIT_TOPIC not in admin.list_topics():
            return []
    return [parse_report(record.value) for record in records_of(servers, AUDIT_TOPIC)]


def account(servers: str, topic: str = TOPIC) -> tuple[int, list[AuditFinding]]:
    """Return the number of records in the topic, and what differs from the reports."""
    ledger, actual, count = AuditLedger(), AuditCounts(), 0
    for report in reports_of(servers):
        ledger.add(report)
    assert ledger.missing_reports() == []
    assert ledger.conflicts == []
    for record in records_of(servers, topic):
        actual.add(topic, record.timestamp, record.value, producer_of(record.headers))
        count += 1
    return count, list(ledger.findings(actual, topics=[topic]))


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


@pytest.mark.parametrize("name", NAMES)
def test_producer_of_each_face_reports_when_it_closes(broker: BrokerProcess, name: str) -> None:
    servers = broker.bootstrap_servers
    with open_face(name) as face:
        producer = face.producer(bootstrap_servers=servers, **AUDITED)
        sent = [producer.send(TOPIC, b"%d" % number) for number in range(200)]
        sent[-1].result(60)
        producer.close()
    assert account(servers) == (200, [])
    assert [report.is_final for report in reports_of(servers)][-1]


def test_transactional_producer_on_kafka_reports_committed_records_only(
    kafka_servers: dict[str, Server],
) -> None:
    settings = kafka_servers["kafka"].settings
    servers = str(settings["bootstrap_servers"])
    topic = f"audited-{uuid.uuid4().hex[:12]}"
    with plog.Admin(**settings) as admin:
        admin.create_topic(topic, partitions=1)
    with plog.Producer(transactional_id=topic, **AUDITED, **settings) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    assert account(servers, topic) == (3, [])


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

        eventually(lambda: reports_of(servers), "report")
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
    eventually(lambda: reports_of(broker.bootstrap_servers), "report")
    producer.send(TOPIC, b"1").result(60)
    broker.kill()
    producer.close(2)
    assert f"before its audit reports were acknowledged ({TOPIC}: 1 records)" in caplog.text
