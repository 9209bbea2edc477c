"""Reserved space for the metadata on a full disk."""

from __future__ import annotations

from plog.errors import ErrorCode
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from tests.helpers.sim.sim_broker import SimBroker, create_topic


def full_broker() -> SimBroker:
    """A broker with one topic on a completely full disk."""
    broker = SimBroker().start()
    create_topic(broker, "t")
    broker.produce("t", b"kept")
    broker.files.capacity_bytes = 0
    return broker


def test_broker_restarts_repeatedly_on_a_full_disk() -> None:
    broker = full_broker()
    for _ in range(20):
        files = broker.files.kill()
        files.capacity_bytes = 0
        broker = broker.restart(files)
        assert broker.fetch("t").high_watermark == 1
        assert broker.produce("t", b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_topic_can_be_deleted_on_a_full_disk() -> None:
    broker = full_broker()
    [answer] = broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5).responses
    assert answer.error_code == 0
