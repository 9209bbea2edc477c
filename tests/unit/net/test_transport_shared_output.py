"""A response that is encoded once for many clients, in the output queues of several connections."""

from __future__ import annotations

from plogd.apis.encoded_response import EncodedResponse, SharedAnswer
from tests.helpers.net_parts import METADATA, Pump, frame, response
from tests.unit.net.test_transport import Broker

MIB = 1 << 20


def test_response_that_two_clients_do_not_read_counts_once() -> None:
    pump = Pump()
    broker = Broker(pump)
    try:
        responses = broker.shared.responses
        framed = response("x" * (8 * MIB))
        shared = EncodedResponse([framed[1_000:]])
        answer = SharedAnswer([framed[:1_000], *shared.parts], shared)
        broker.dispatch.answer = lambda api_key, text: answer
        clients = [broker.connect() for _ in range(2)]
        for client in clients:
            client.sendall(frame(METADATA, "a"))
        broker.until(lambda: len(responses) == 2)
        assert shared.nbytes <= responses.used_bytes <= shared.nbytes + 2_000
        broker.exchange(clients[0], framed)
        broker.until(lambda: len(responses) == 1)
        assert responses.used_bytes == shared.nbytes
        broker.exchange(clients[1], framed)
        broker.until(lambda: not responses.used_bytes)
    finally:
        broker.close()
        pump.close()
