"""The connections between brokers, over a simulated network in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plog.client.network.tls_context import PemSource, Security
from plogd.config import BrokerConfig
from plogd.net.peer_connections import peer_security
from plogd.peers import PeerUnavailable
from tests.helpers.peers.conformance import WHO, PeersConformance
from tests.helpers.peers.connections_site import ConnectionsSite
from tests.helpers.peers.peer_site import LANE
from tests.helpers.sim.sim_broker import create_topic, fetch_request


class TestPeerConnections(PeersConformance):
    """`PeerConnections` passes the tests of `Peers`."""

    make_site = ConnectionsSite


def test_connection_is_replaced_when_the_address_changes() -> None:
    site = ConnectionsSite()
    create_topic(site.brokers[2], "t")
    waiting = site.ask(2, fetch_request("t", max_wait_ms=5000))
    site.advance(100)
    site.ports[2] = 19092
    assert site.answer(2, WHO).controller_id == 2
    assert site.opened == [("b2", 9092), ("b2", 19092)]
    assert isinstance(waiting.error, PeerUnavailable)
    assert "another address" in str(waiting.error)


def test_broker_without_an_address_is_unavailable() -> None:
    site = ConnectionsSite()
    reply = site.ask(9, WHO)
    assert isinstance(reply.error, PeerUnavailable)
    assert str(reply.error) == "broker 9 is not running"


def test_unreachable_broker_is_reported_once_until_it_is_reached() -> None:
    site = ConnectionsSite()
    site.kill(2)
    for _ in range(3):
        reply = site.ask(2, WHO)
        site.advance(2000)
        # Without the broker, which those who ask name in their lines.
        assert str(reply.error) == "cannot connect: connection refused"
    site.start(2)
    assert site.answer(2, WHO).controller_id == 2
    assert [line for line in site.brokers[1].reports if "broker 2" in line] == [
        "cannot reach broker 2: cannot connect: connection refused; retrying when there are"
        " requests for it",
        "connected to broker 2 at b2:9092 again",
    ]


def test_error_of_a_caller_is_a_bug() -> None:
    site = ConnectionsSite()
    site.answer(2, WHO)

    def fail(_: object) -> None:
        raise RuntimeError("bug")

    site.peers[1].ask(2, WHO, LANE).then(fail, fail)
    bugs, site.brokers[1].bugs = site.brokers[1].bugs, []
    assert bugs == []
    with pytest.raises(AssertionError):
        site.advance(100)
    [(where, error)] = site.brokers[1].bugs
    assert (where, str(error)) == ("a response from broker 2 at b2:9092", "bug")
    site.brokers[1].bugs = []
    assert site.answer(2, WHO).controller_id == 2


class TestPeerSecurity:
    """TLS of the inter-broker listener."""

    def config(self, **settings: Any) -> BrokerConfig:
        return replace(
            BrokerConfig(),
            listeners=("SSL://:9092", "PLAINTEXT://:9093"),
            ssl_keystore_location="/etc/plog/broker.pem",
            ssl_truststore_location="/etc/plog/ca.pem",
            ssl_key_password="secret",
            ssl_enabled_protocols=("TLSv1.3",),
            **settings,
        )

    def test_plaintext_listener_does_not_use_tls(self) -> None:
        assert peer_security(self.config()) is None
        assert peer_security(self.config(inter_broker_listener_name="OTHER")) is None

    def test_listener_uses_its_keystore_and_truststore(self) -> None:
        security = peer_security(self.config(security_inter_broker_protocol="SSL"))
        stored = PemSource(setting="ssl.keystore.location", path="/etc/plog/broker.pem")
        assert security == Security(
            trusted=PemSource(setting="ssl.truststore.location", path="/etc/plog/ca.pem"),
            key=stored,
            chain=stored,
            key_password="secret",
            versions=("TLSv1.3",),
        )

    def test_settings_of_the_listener_take_precedence(self) -> None:
        own = "listener.name.ssl.ssl.truststore.location"
        security = peer_security(
            self.config(
                inter_broker_listener_name="SSL", listener_overrides={own: "/etc/plog/own.pem"}
            )
        )
        assert security is not None
        assert security.trusted == PemSource(setting=own, path="/etc/plog/own.pem")

    def test_certificates_can_be_in_the_settings(self) -> None:
        config = replace(
            self.config(security_inter_broker_protocol="SSL"),
            ssl_keystore_location=None,
            ssl_keystore_key="key",
            ssl_keystore_certificate_chain="chain",
            ssl_truststore_certificates="ca",
        )
        security = peer_security(config)
        assert security is not None
        assert (security.key, security.chain, security.trusted) == (
            PemSource(setting="ssl.keystore.key", text="key"),
            PemSource(setting="ssl.keystore.certificate.chain", text="chain"),
            PemSource(setting="ssl.truststore.certificates", text="ca"),
        )
