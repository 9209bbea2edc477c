"""Channels: each broker gets its control requests in order, and none is lost (rule C10)."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode, KafkaError, RequestTimedOut, UnsupportedVersion
from plog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from plogd.controller.cluster import broker_channels
from plogd.controller.cluster.broker_channels import BrokerChannels
from plogd.metadata.store import BrokerRegistration
from plogd.peers import REQUEST_TIMEOUT_MS, PeerRequest, PeerUnavailable
from plogd.ports import Later, ready
from tests.helpers.sim.sim_ports import SimPorts

OK = UpdateMetadataResponse(error_code=0)


class _Peers:
    """Records the requests, and lets the test answer them."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, Later[Any]]] = []
        self.answers_at_once = False

    def ask(
        self,
        broker_id: int,
        request: PeerRequest,
        lane: str,
        *,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
    ) -> Later[Any]:
        assert isinstance(request, UpdateMetadataRequest)
        assert lane == "control"
        later: Later[Any] = ready(OK) if self.answers_at_once else Later()
        self.asked.append((broker_id, request.controller_epoch, later))
        return later

    def close(self) -> None:
        """Do nothing."""

    def numbers(self, broker_id: int = 1) -> list[int]:
        """Return the numbers of the requests that were sent to a broker."""
        return [number for asked, number, _ in self.asked if asked == broker_id]


class _Site:
    def __init__(self) -> None:
        self.ports = SimPorts()
        self.peers = _Peers()
        self.channels = BrokerChannels(self.peers, self.ports.timers, self.ports.bundle().report)
        self.results: dict[int, Any] = {}

    def register(self, **epochs: int) -> None:
        self.channels.update(
            {
                int(name[1:]): BrokerRegistration(
                    broker_id=int(name[1:]), incarnation_id=bytes(16), broker_epoch=epoch
                )
                for name, epoch in epochs.items()
            }
        )

    def send(self, number: int, broker_id: int = 1) -> None:
        def keep(result: Any) -> None:
            self.results[number] = result

        later = self.channels.send(broker_id, UpdateMetadataRequest(controller_epoch=number))
        later.then(keep, keep)

    def answer(self, outcome: Any = OK) -> None:
        """Answer the last request."""
        later = self.peers.asked[-1][2]
        if isinstance(outcome, Exception):
            later.fail(outcome)
        else:
            later.succeed(outcome)


@pytest.fixture
def site() -> _Site:
    site = _Site()
    site.register(b1=10, b2=20)
    return site


def test_request_is_sent_when_the_one_before_it_has_been_answered(site: _Site) -> None:
    for number in (1, 2, 3):
        site.send(number)
    assert site.peers.numbers() == [1]
    site.answer()
    assert site.peers.numbers() == [1, 2]
    assert site.results == {1: OK}


def test_request_that_follows_from_a_response_is_sent_once(site: _Site) -> None:
    site.register(b1=10)
    later = site.channels.send(1, UpdateMetadataRequest(controller_epoch=1))
    later.then(lambda _: site.send(2), lambda error: None)
    site.answer()
    assert site.peers.numbers() == [1, 2]
    site.send(3)
    site.answer()
    # Not with the response to the request before it.
    assert site.results == {2: OK}
    assert site.peers.numbers() == [1, 2, 3]
    site.answer()
    assert site.results == {2: OK, 3: OK}


def test_brokers_do_not_wait_for_each_other(site: _Site) -> None:
    site.send(1, broker_id=1)
    site.send(2, broker_id=2)
    assert (site.peers.numbers(1), site.peers.numbers(2)) == ([1], [2])


@pytest.mark.parametrize("error", [PeerUnavailable("gone"), RequestTimedOut("slow")])
def test_request_without_an_answer_is_repeated_before_later_ones(
    site: _Site, error: KafkaError
) -> None:
    site.send(1)
    site.send(2)
    for _ in range(3):
        site.answer(error)
        site.ports.advance(100)
    assert site.peers.numbers() == [1, 1, 1, 1]
    assert len([text for text in site.ports.reports if "retrying" in text]) == 1
    site.answer()
    assert site.peers.numbers() == [1, 1, 1, 1, 2]
    assert "broker 1 answers again" in site.ports.reports


@pytest.mark.parametrize(
    "code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
)
def test_request_that_the_broker_rejects_is_repeated(site: _Site, code: ErrorCode) -> None:
    site.send(1)
    site.send(2)
    for _ in range(3):
        site.answer(UpdateMetadataResponse(error_code=code))
        site.ports.advance(100)
    assert site.peers.numbers() == [1, 1, 1, 1]
    assert site.results == {}
    [reported] = [text for text in site.ports.reports if "retrying" in text]
    assert code.name in reported
    site.answer()
    assert site.results == {1: OK}
    assert site.peers.numbers() == [1, 1, 1, 1, 2]


def test_request_that_no_version_can_carry_fails_and_later_ones_follow(site: _Site) -> None:
    site.send(1)
    site.send(2)
    site.answer(UnsupportedVersion("no common version"))
    assert isinstance(site.results[1], UnsupportedVersion)
    assert site.peers.numbers() == [1, 2]


def test_requests_to_a_broker_that_is_gone_fail(site: _Site) -> None:
    site.send(1)
    site.send(2)
    site.register(b2=20)
    assert [type(site.results[number]) for number in (1, 2)] == [PeerUnavailable] * 2
    site.send(3)
    assert isinstance(site.results[3], PeerUnavailable)
    site.ports.advance(60_000)
    assert site.peers.numbers() == [1]


def test_broker_that_registers_again_gets_only_the_requests_for_its_new_run(site: _Site) -> None:
    site.send(1)
    site.answer(PeerUnavailable("restarting"))
    site.register(b1=11, b2=20)
    assert isinstance(site.results[1], PeerUnavailable)
    site.send(2)
    site.ports.advance(1_000)
    assert site.peers.numbers() == [1, 2]
    site.answer()
    assert site.results[2] is OK


def test_unchanged_broker_keeps_its_channel(site: _Site) -> None:
    site.send(1)
    site.register(b1=10, b3=30)
    site.answer()
    assert site.results == {1: OK}


def test_closed_channels_send_nothing(site: _Site) -> None:
    site.send(1)
    site.answer(PeerUnavailable("gone"))
    site.channels.close()
    site.ports.advance(60_000)
    assert site.peers.numbers() == [1]
    assert isinstance(site.results[1], PeerUnavailable)


def test_requests_for_a_broker_that_does_not_respond_are_replaced(
    site: _Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_channels, "_QUEUE_MAX", 3)
    site.channels.on_dropped = lambda broker_id: site.send(100, broker_id)
    for number in range(1, 6):
        site.send(number)
    assert [number for number in site.results if number != 1] == [2, 3, 4]
    assert all(isinstance(site.results[number], PeerUnavailable) for number in (2, 3, 4))
    for _ in range(3):
        site.answer()
    assert site.peers.numbers() == [1, 100, 5]


def test_thousands_of_requests_that_are_answered_at_once_do_not_exhaust_the_stack(
    site: _Site,
) -> None:
    for number in range(5000):
        site.send(number)
    site.peers.answers_at_once = True
    site.answer()
    assert len(site.results) == 5000
    assert site.peers.numbers() == list(range(5000))
