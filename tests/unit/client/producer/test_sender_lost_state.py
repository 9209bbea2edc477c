"""A broker that has lost the state of a producer accepts any sequence number."""

from __future__ import annotations

from plog.errors import ErrorCode, OutOfOrderSequenceNumber
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.client.producer.producer_site import TOPIC
from tests.unit.client.producer.sender_site import codes, forget_producers, ready


def test_batch_overtaken_after_broker_lost_state_fails_unwritten() -> None:
    """It refuses one batch and does not know the producer, so it accepts the next."""
    site = ready(batch_size=1, retry_backoff_ms=1_000)
    forget_producers(site)
    codes(site, ErrorCode.NOT_ENOUGH_REPLICAS)
    first, second = site.sent(b"1", b"2")
    site.flush()
    assert second.metadata().offset == 1
    assert isinstance(first.error(), OutOfOrderSequenceNumber)
    assert "record not written, to preserve ordering: the broker" in str(first.error())
    assert "has already written a later record" in str(first.error())
    [after] = site.sent(b"3")
    site.flush()
    assert after.metadata().offset == 2
    assert site.values() == [b"first", b"2", b"3"]


def test_first_batch_to_recreated_topic_is_sent_alone() -> None:
    site = ready(batch_size=1, metadata_max_age_ms=1_000)
    site.sim.broker.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1_000), 5)
    create_topic(site.sim.broker, TOPIC)
    site.sim.advance(3_000)
    codes(site, ErrorCode.NOT_ENOUGH_REPLICAS)
    handles = site.sent(b"1", b"2", b"3")
    site.flush()
    assert [handle.metadata().offset for handle in handles] == [0, 1, 2]
