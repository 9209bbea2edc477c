"""A directory with a mark of lost records, on which plog and Apache Kafka 3.9 take turns (rule C2).

docs/cluster.md says what an operator does before and after Kafka has run.
"""

from __future__ import annotations

from plogd.log.file_names import LOST_RECORDS
from tests.cluster.clients import create_on, produce, read
from tests.cluster.conftest import StartBroker
from tests.helpers.eventually import eventually
from tests.helpers.programs.kafka_server import KafkaServer

NO_LEADER = "1 partitions have no leader: orders-0; this broker has lost the end of their logs"


def test_kafka_ignores_the_mark_of_lost_records(
    kafka: KafkaServer, make_broker: StartBroker
) -> None:
    other = make_broker("other", node_id="2")
    plog = make_broker(log_dirs=str(kafka.log_dir), zookeeper_session_timeout_ms="6000")
    plog.start()
    other.start()
    create_on(plog, "orders", 1, 2)
    produce(plog, "orders", *(b"%d" % number for number in range(10)))
    other.stop()
    plog.stop()
    log = kafka.log_dir / "orders-0"
    (log / "00000000000000000000.log").unlink()
    plog.start()
    eventually(lambda: NO_LEADER in plog.log_text(), "a partition without a leader")
    assert (log / LOST_RECORDS).exists()
    plog.stop()
    kafka.start()
    # It leads the partition without the lost records, and assigns their offsets again.
    produce(kafka, "orders", b"of Kafka")
    assert read(kafka, "orders", 1) == [b"of Kafka"]
    kafka.stop()
    assert (log / LOST_RECORDS).exists()
    reports = plog.log_text().count(NO_LEADER)
    plog.start()
    eventually(lambda: plog.log_text().count(NO_LEADER) > reports, "no leader")
    plog.stop()
    (log / LOST_RECORDS).unlink()
    plog.start()
    assert read(plog, "orders", 1) == [b"of Kafka"]
    plog.stop()
