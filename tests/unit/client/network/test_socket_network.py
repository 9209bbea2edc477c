"""SocketNetwork runs the engine on blocking sockets, without a reactor."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable

import pytest

from plog.client.errors import ConnectionFailed
from plog.client.network.cluster import Cluster
from plog.client.network.socket_network import SocketChannel, SocketNetwork, run_blocking
from plog.client.settings import ClientSettings
from plog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from tests.unit.client.scripted_broker import ScriptedBroker, serve_versions


def cluster_at(port: int, **settings: int) -> Cluster:
    made = ClientSettings(bootstrap_servers=(f"127.0.0.1:{port}",), **settings)
    return Cluster(SocketNetwork(client_id="test"), made)


def test_request_over_a_plain_socket_returns_its_response() -> None:
    response = MetadataResponse(
        cluster_id="abc", brokers=[MetadataResponseBroker(node_id=7, host="127.0.0.1", port=1)]
    )
    with ScriptedBroker([serve_versions(), lambda _: response]) as broker:
        cluster = cluster_at(broker.port)
        metadata = run_blocking(cluster.refresh(()))
        run_blocking(cluster.close())
    assert metadata.cluster_id == "abc"
    assert broker.requests[0][0].client_id == "test"


def described(name: str) -> MetadataResponse:
    return MetadataResponse(cluster_id=name)


def test_request_is_sent_before_its_response_is_awaited() -> None:
    is_sent = threading.Event()

    def answer(_: object) -> MetadataResponse:
        is_sent.set()
        return described("one")

    with ScriptedBroker([answer]) as broker:
        channel = run_blocking(_channel(broker.port))
        response = channel.ask(MetadataRequest(), MetadataResponse, 12, timeout_s=60)
        assert is_sent.wait(60)
        assert run_blocking(_awaited(response)).cluster_id == "one"
        # A second await returns the same response.
        assert run_blocking(_awaited(response)).cluster_id == "one"
        channel.close()


def test_earlier_response_is_received_before_the_next_request() -> None:
    with ScriptedBroker([lambda _: described("one"), lambda _: described("two")]) as broker:
        channel = run_blocking(_channel(broker.port))
        first = channel.ask(MetadataRequest(), MetadataResponse, 12, timeout_s=60)
        second = channel.ask(MetadataRequest(), MetadataResponse, 12, timeout_s=60)
        assert run_blocking(_awaited(second)).cluster_id == "two"
        assert run_blocking(_awaited(first)).cluster_id == "one"
        channel.close()


def test_failure_of_an_earlier_response_concerns_only_its_caller() -> None:
    with ScriptedBroker([lambda _: b"\0\0\0\0"]) as broker:
        channel = run_blocking(_channel(broker.port))
        first = channel.ask(MetadataRequest(), MetadataResponse, 12, timeout_s=60)
        second = channel.ask(MetadataRequest(), MetadataResponse, 12, timeout_s=60)
        with pytest.raises(ConnectionFailed, match="is closed"):
            run_blocking(_awaited(second))
        with pytest.raises(ConnectionFailed, match="invalid response size"):
            run_blocking(_awaited(first))


async def _channel(port: int) -> SocketChannel:
    return await SocketNetwork().connect("127.0.0.1", port, None, timeout_s=60)


async def _awaited(response: Awaitable[MetadataResponse]) -> MetadataResponse:
    return await response


def test_unreachable_broker_is_named_in_the_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port}"):
        run_blocking(cluster_at(port, default_api_timeout_ms=200).refresh(()))


def test_gather_runs_sequentially_and_raises_the_first_error() -> None:
    done: list[int] = []

    async def work(number: int) -> int:
        done.append(number)
        if number == 2:
            raise ValueError("two")
        return number

    network = SocketNetwork()
    assert run_blocking(network.gather([work(1), work(3)])) == [1, 3]
    with pytest.raises(ValueError, match="two"):
        run_blocking(network.gather([work(2), work(4)]))
    assert done == [1, 3, 2, 4]


def test_spawn_is_refused() -> None:
    async def forever() -> None:
        pass

    with pytest.raises(RuntimeError, match="cannot start heartbeats without a reactor"):
        SocketNetwork().spawn(forever(), "heartbeats")


def test_neither_twisted_nor_asyncio_is_imported() -> None:
    program = (
        "import sys, plog.client.network.cluster, plog.client.network.socket_network;"
        "heavy = ('twisted', 'asyncio', 'OpenSSL', 'kazoo');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"
