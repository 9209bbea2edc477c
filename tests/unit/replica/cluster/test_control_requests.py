"""The order and the fence of requests of the controller (rule C10)."""

from __future__ import annotations

import pytest

from plog.errors import KafkaError, StaleBrokerEpoch, StaleControllerEpoch
from plogd.ports import Later
from plogd.replica.cluster.control_requests import ControlRequests
from tests.helpers.sim.sim_ports import outcome


class Site:
    """Requests to a broker in broker epoch 9; `started` are those that have begun."""

    def __init__(self) -> None:
        self.broker_epoch = 9
        self.control = ControlRequests(lambda: self.broker_epoch)
        self.started: list[str] = []
        self.waits: dict[str, Later[str]] = {}

    def send(self, name: str, controller: int = 1, broker: int = 9) -> Later[str]:
        async def operation() -> str:
            self.started.append(name)
            self.waits[name] = Later()
            return await self.waits[name]

        return self.control.run(operation, controller_epoch=controller, broker_epoch=broker)


@pytest.fixture
def site() -> Site:
    return Site()


def test_request_starts_when_the_earlier_one_has_been_applied(site: Site) -> None:
    first, second = site.send("first"), site.send("second")
    assert site.started == ["first"]
    site.waits["first"].succeed("done")
    assert (outcome(first), second.done, site.started) == ("done", False, ["first", "second"])


def test_failed_request_does_not_stop_the_next(site: Site) -> None:
    first, _ = site.send("first"), site.send("second")
    site.waits["first"].fail(KafkaError("failed"))
    with pytest.raises(KafkaError, match="failed"):
        outcome(first)
    assert site.started == ["first", "second"]


def test_lost_connection_does_not_stop_a_request(site: Site) -> None:
    first, second = site.send("first"), site.send("second")
    first.cancel()
    second.cancel()
    site.send("third")
    assert site.started == ["first"]
    site.waits["first"].succeed("done")
    site.waits["second"].succeed("done")
    assert site.started == ["first", "second", "third"]


def test_earlier_controller_is_rejected(site: Site) -> None:
    site.send("first", controller=5)
    late = site.send("late", controller=4)
    same = site.send("same", controller=5)
    site.waits["first"].succeed("done")
    with pytest.raises(StaleControllerEpoch):
        outcome(late)
    assert not same.done
    assert site.started == ["first", "same"]


def test_request_that_waits_is_fenced_by_a_newer_controller_before_it(site: Site) -> None:
    first = site.send("first", controller=1)
    site.send("newer", controller=2)
    waiting = site.send("waiting", controller=1)
    site.waits["first"].succeed("done")
    outcome(first)
    site.waits["newer"].succeed("done")
    with pytest.raises(StaleControllerEpoch):
        outcome(waiting)


@pytest.mark.parametrize("epoch", [8, 10, 0, -2])
def test_request_for_another_registration_is_rejected(site: Site, epoch: int) -> None:
    with pytest.raises(StaleBrokerEpoch):
        outcome(site.send("other", controller=7, broker=epoch))
    assert (site.started, site.control.controller_epoch) == ([], 0)


def test_request_without_a_broker_epoch_is_accepted(site: Site) -> None:
    site.send("old version", broker=-1)
    assert site.started == ["old version"]


@pytest.mark.parametrize("epoch", [9, -1])
def test_broker_without_a_registration_rejects_requests(site: Site, epoch: int) -> None:
    site.broker_epoch = -1
    with pytest.raises(StaleBrokerEpoch):
        outcome(site.send("early", broker=epoch))
    assert site.started == []


def test_request_for_the_old_registration_is_rejected_after_a_new_one(site: Site) -> None:
    site.send("first")
    waiting = site.send("waiting")
    site.broker_epoch = 10
    site.waits["first"].succeed("done")
    with pytest.raises(StaleBrokerEpoch):
        outcome(waiting)
