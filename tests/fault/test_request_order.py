"""F28, F29, F45: requests that arrive twice, out of order, or after a long poll.

On a real process: first requests with known responses, then a real client next_request a proxy that
repeats each request and the five before it, like a network that lost the ACKs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from plog.client.simple import SimpleClient
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.reader import iter_records
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from plog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from plog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from plogd.testing.broker_process import BrokerProcess
from tests.fault.peers import Peer, address_of, request_frame
from tests.helpers.programs.confluent import create_topic, produce, read
from tests.helpers.proxy import PRODUCE, Proxy

NONE, OUT_OF_ORDER_SEQUENCE_NUMBER = 0, 45
ACKS_ALL = -1
VERSION = 9


class Producer:
    """An idempotent producer that pipelines given sequence numbers."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        with SimpleClient(*address_of(broker.bootstrap_servers), timeout_s=60) as client:
            client.create_topic(topic)
        self._peer = Peer(broker.bootstrap_servers)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = cast(InitProducerIdResponse, self._peer.request(request, 4))
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch

    def send(self, numbers: Sequence[int]) -> list[tuple[int, int]]:
        """Send one record per sequence number, all pipelined; return (error, offset) of each."""
        requests = [self._request(number) for number in numbers]
        for place, request in enumerate(requests):
            self._peer.send(request_frame(request, VERSION, place))
        results = []
        for place, request in enumerate(requests):
            response = cast(ProduceResponse, self._peer.response_to(request, VERSION, place))
            [partition] = response.responses[0].partition_responses
            results.append((partition.error_code, partition.base_offset))
        return results

    def values(self) -> list[int]:
        """Return the values in the log."""
        with SimpleClient(*address_of(self._broker.bootstrap_servers)) as client:
            return [int(each.value or b"") for each in client.fetch(self._topic, 0, 0)]

    def _request(self, number: int) -> ProduceRequest:
        batch = build_batch(
            [Record(value=b"%d" % number)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=number,
        )
        return produce_request(self._topic, batch)


def produce_request(topic: str, batch: bytes) -> ProduceRequest:
    """Return a request with one batch for partition 0."""
    data = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
    return ProduceRequest(
        acks=ACKS_ALL,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def test_five_repeated_batches_in_flight_are_appended_once(
    own_broker: BrokerProcess, topic: str
) -> None:
    producer = Producer(own_broker, topic)
    first = producer.send([0, 1, 2, 3, 4])
    assert first == [(NONE, offset) for offset in range(5)]
    assert producer.send([0, 1, 2, 3, 4]) == first
    assert producer.send([4, 2, 0]) == [(NONE, 4), (NONE, 2), (NONE, 0)]
    # After one more batch, the broker forgets the oldest one's offset but still refuses it.
    assert producer.send([5, 0, 1, 5]) == [
        (NONE, 5),
        (OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (NONE, 1),
        (NONE, 5),
    ]
    assert producer.values() == [0, 1, 2, 3, 4, 5]


def test_out_of_order_batches_are_refused_and_not_appended(
    own_broker: BrokerProcess, topic: str
) -> None:
    producer = Producer(own_broker, topic)
    refused = (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send([0, 2, 1, 4, 3]) == [(NONE, 0), refused, (NONE, 1), refused, refused]
    assert producer.values() == [0, 1]
    assert producer.send([2, 3, 4]) == [(NONE, 2), (NONE, 3), (NONE, 4)]
    assert producer.values() == [0, 1, 2, 3, 4]


def fetch_request(topic: str, max_wait_ms: int) -> FetchRequest:
    """Return a fetch request for offset 0."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        isolation_level=0,
        session_id=0,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


def fetched(peer: Peer, request: FetchRequest) -> list[bytes]:
    """Return the values in the next response, which must belong to `request`."""
    response = cast(FetchResponse, peer.response_to(request, 11, 1))
    [partition] = response.responses[0].partitions
    records = partition.records
    assert partition.error_code == NONE
    assert records is None or isinstance(records, memoryview)
    return [bytes(each.value or b"") for each in iter_records(records)] if records else []


def test_produce_after_a_long_poll_waits_for_the_poll(
    own_broker: BrokerProcess, topic: str
) -> None:
    with SimpleClient(*address_of(own_broker.bootstrap_servers)) as client:
        client.create_topic(topic)
    next_request = produce_request(topic, build_batch([Record(value=b"after")]))
    with Peer(own_broker.bootstrap_servers) as peer:
        poll = fetch_request(topic, max_wait_ms=1000)
        peer.send(request_frame(poll, 11, 1) + request_frame(next_request, VERSION, 2))
        # Without other producers, only this record could have ended the poll early.
        assert fetched(peer, poll) == []
        assert isinstance(peer.response_to(next_request, VERSION, 2), ProduceResponse)
        assert fetched_now(peer, topic) == [b"after"]


def test_long_poll_ends_with_another_clients_record_before_its_own_produce(
    own_broker: BrokerProcess, topic: str
) -> None:
    with SimpleClient(*address_of(own_broker.bootstrap_servers)) as client:
        client.create_topic(topic)
        next_request = produce_request(topic, build_batch([Record(value=b"after")]))
        with Peer(own_broker.bootstrap_servers) as peer:
            poll = fetch_request(topic, max_wait_ms=300_000)
            peer.send(request_frame(poll, 11, 1) + request_frame(next_request, VERSION, 2))
            client.produce(topic, 0, [Record(value=b"other")])
            assert fetched(peer, poll) == [b"other"]
            assert isinstance(peer.response_to(next_request, VERSION, 2), ProduceResponse)
            assert fetched_now(peer, topic) == [b"other", b"after"]


def fetched_now(peer: Peer, topic: str) -> list[bytes]:
    """Return all values in the log."""
    request = fetch_request(topic, max_wait_ms=0)
    peer.send(request_frame(request, 11, 1))
    return fetched(peer, request)


# Small batches, and retries without delay.
MANY_BATCHES = {
    "batch.num.messages": 20,
    "max.in.flight": 5,
    "retry.backoff.ms": 1,
    "enable.idempotence": True,
    "acks": "all",
}
SENT = [{"value": b"%d" % number} for number in range(2000)]


def test_repeated_requests_have_no_effect_on_a_client(
    own_broker: BrokerProcess, topic: str
) -> None:
    create_topic(own_broker.bootstrap_servers, topic)
    last: list[bytes] = []
    repeated = 0

    def repeat(request: bytes) -> list[bytes]:
        """Repeat the last five Produce requests, oldest first."""
        nonlocal repeated
        if int.from_bytes(request[:2], "big") != PRODUCE:
            return []
        last.append(request)
        del last[:-5]
        repeated += len(last)
        return list(last)

    with Proxy(own_broker.bootstrap_servers, lambda answer: answer.payload, again=repeat) as proxy:
        errors = produce(proxy.bootstrap_servers, topic, SENT, MANY_BATCHES)
    assert set(errors) == {None}
    assert repeated >= 100
    found = [message.value() for message in read(own_broker.bootstrap_servers, topic)]
    assert found == [message["value"] for message in SENT]
