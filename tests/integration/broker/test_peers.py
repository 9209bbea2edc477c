"""Real broker processes whose `Peers` ask each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plog.client.simple import SimpleClient
from plog.records.codec import Record
from plog.records.reader import iter_records
from plog.wire.messages.describe_cluster import DescribeClusterRequest
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.helpers.certificates import Authority
from tests.helpers.peers.peer_process import PeerProcess, options_of
from tests.helpers.sim.sim_broker import fetch_request

HOST = "127.0.0.1"
WHO = DescribeClusterRequest()
METADATA = MetadataRequest(
    topics=[MetadataRequestTopic(name="missing")], allow_auto_topic_creation=False
)
VALUE = bytes(range(256)) * 3600
COUNT = 10
"""Records of this size, together 9 MB."""

INSIDE = 1
"""The position of the inter-broker listener with TLS."""
PLAINTEXT = (f"listeners=PLAINTEXT://{HOST}:0",)
TLS = (
    f"listeners=PLAINTEXT://{HOST}:0,INSIDE://{HOST}:0",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:SSL",
    "inter.broker.listener.name=INSIDE",
    "listener.name.inside.ssl.client.auth=required",
)


def tls_settings(directory: Path) -> tuple[str, ...]:
    """Return settings with a second, TLS listener that requires certificates of the same CA."""
    authority = Authority()
    keystore = authority.broker().keystore(directory / "broker.pem")
    truststore = authority.truststore(directory / "ca.pem")
    return (
        *TLS,
        f"listener.name.inside.ssl.keystore.location={keystore}",
        f"listener.name.inside.ssl.truststore.location={truststore}",
    )


@pytest.fixture(scope="module", params=[False, True], ids=["plaintext", "tls"])
def brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int, PeerProcess]]:
    directory = tmp_path_factory.mktemp("peers")
    uses_tls = request.param
    settings = tls_settings(directory) if uses_tls else PLAINTEXT
    with (
        PeerProcess(*options_of(1, directory / "1", *settings)) as one,
        PeerProcess(*options_of(2, directory / "2", *settings)) as two,
    ):
        found = {1: one, 2: two}
        addresses = {
            number: (HOST, each.port(INSIDE if uses_tls else 0)) for number, each in found.items()
        }
        for each in found.values():
            each.use_addresses(addresses)
        yield found
        assert [each.stop() for each in found.values()] == [0, 0]


def test_every_broker_answers_every_broker(brokers: dict[int, PeerProcess]) -> None:
    asked = [
        (source, target, broker.start_ask(target, WHO, 2))
        for source, broker in brokers.items()
        for target in brokers
        for _ in range(20)
    ]
    for source, target, number in asked:
        answer = brokers[source].answer(number)
        assert brokers[source].response(answer, WHO, 2).controller_id == target


def test_lane_with_a_waiting_fetch_does_not_delay_another(
    brokers: dict[int, PeerProcess],
) -> None:
    one, two = brokers[1], brokers[2]
    with SimpleClient(HOST, two.port()) as client:
        client.create_topic("waiting")
        waiting = fetch_request("waiting", max_wait_ms=60_000)
        number = one.start_ask(2, waiting, 12, "fetch")
        assert one.ask(2, METADATA, 12).topics[0].name == "missing"
        client.produce("waiting", 0, [Record(value=b"now")])
    [partition] = one.response(one.answer(number), waiting, 12).responses[0].partitions
    assert [record.value for record in iter_records(partition.records)] == [b"now"]


def test_large_records_are_fetched(brokers: dict[int, PeerProcess]) -> None:
    one, two = brokers[1], brokers[2]
    with SimpleClient(HOST, one.port()) as client:
        client.create_topic("large")
        for _ in range(COUNT):
            client.produce("large", 0, [Record(value=VALUE)])
    answer = two.ask(1, fetch_request("large", partition_max_bytes=1 << 24), 12, "fetch")
    [partition] = answer.responses[0].partitions
    assert [record.value for record in iter_records(partition.records)] == [VALUE] * COUNT


def test_requests_import_no_modules(brokers: dict[int, PeerProcess]) -> None:
    """An upgrade may have replaced the files of the running broker."""
    for target in brokers:
        brokers[1].ask(target, WHO, 2, "another")
    assert brokers[1].modules() == []


def test_killed_broker_is_asked_again_after_its_restart(tmp_path: Path) -> None:
    with PeerProcess(*options_of(1, tmp_path / "1", *PLAINTEXT)) as one:
        with PeerProcess(*options_of(2, tmp_path / "2", *PLAINTEXT)) as two:
            port = two.port()
            one.use_addresses({2: (HOST, port)})
            assert one.ask(2, WHO, 2).controller_id == 2
            with SimpleClient(HOST, port) as client:
                client.create_topic("t")
            waiting = fetch_request("t", max_wait_ms=60_000)
            number = one.start_ask(2, waiting, 12, "fetch")
            assert one.ask(2, METADATA, 12, "fetch-2").topics
            two.kill()
        assert one.response(one.answer(number), waiting, 12) == "PeerUnavailable"
        assert one.ask(2, WHO, 2) == "PeerUnavailable"
        assert one.ask(1, WHO, 2).controller_id == 1
        own_port = (f"listeners=PLAINTEXT://{HOST}:{port}",)
        with PeerProcess(*options_of(2, tmp_path / "2", *own_port)) as two:
            assert two.port() == port
            assert one.ask(2, WHO, 2).controller_id == 2
        assert one.stop() == 0


def test_certificate_of_another_ca_is_not_trusted(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    settings = [tls_settings(folder) for folder in folders]
    with (
        PeerProcess(*options_of(1, tmp_path / "1", *settings[0])) as one,
        PeerProcess(*options_of(2, tmp_path / "2", *settings[1])) as two,
    ):
        one.use_addresses({2: (HOST, two.port(INSIDE))})
        number = one.start_ask(2, WHO, 2)
        answer = one.answer(number)
        assert answer["error"] == "PeerUnavailable"
        assert "certificate" in answer["text"]
        [line] = [line for line in one.log if "cannot reach broker 2: " in line]
        assert "certificate" in line
        assert line.count("broker 2") == line.count("127.0.0.1:") == 1
