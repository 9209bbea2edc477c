"""Hooks on requests: their effect on the request, on later ones, and on files."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from plog.errors import NotLeaderOrFollower
from plog.wire.messages.fetch import FetchTopic
from plog.wire.messages.heartbeat import HeartbeatRequest
from plog.wire.messages.metadata import MetadataRequest
from plogd.apis.close_connection import CloseConnection
from plogd.apis.dispatch import Dispatched
from plogd.testing.hooked_dispatch import HookedDispatch, Rule, row_named
from tests.helpers.sim.sim_broker import (
    SimBroker,
    create_topic,
    fetch_request,
    produce_request,
)
from tests.helpers.sim.sim_file import open_file


class HookedBroker(SimBroker):
    """A broker whose requests go through a `HookedDispatch`."""

    def __init__(self) -> None:
        super().__init__()
        self.hooked = HookedDispatch(self.broker, self.dispatch, self.ports.timers)

    def dispatch_frame(self, frame: bytes, connection: Any = None) -> Dispatched:
        buffer = bytearray(frame)
        with self.ports.turn:
            dispatched = self.hooked(memoryview(buffer), connection or self.connection)
            buffer[:] = b"\xee" * len(buffer)
        return dispatched

    def rule(self, request: str, action: Any, **options: Any) -> Rule:
        rule = Rule(row=row_named(request), action=action, **options)
        self.hooked.rules.append(rule)
        return rule

    def end_offset(self, topic: str) -> int:
        return int(self.log(topic).log_end_offset)


@pytest.fixture
def broker() -> HookedBroker:
    broker = HookedBroker()
    broker.start()
    create_topic(broker, "orders")
    create_topic(broker, "others")
    return broker


def refuse() -> NotLeaderOrFollower:
    return NotLeaderOrFollower("another broker is the leader")


def test_failed_request_has_no_effect(broker: HookedBroker) -> None:
    rule = broker.rule("Produce", "fail", error=refuse())
    refused = broker.produce("orders", b"x")
    assert refused.error_code == NotLeaderOrFollower.code
    assert broker.end_offset("orders") == 0
    assert broker.produce("orders", b"x").error_code == 0
    assert rule.hits == 1


def test_request_failed_after_its_effect_is_handled(broker: HookedBroker) -> None:
    broker.rule("Produce", "fail", error=refuse(), after=True)
    assert broker.produce("orders", b"x").error_code == NotLeaderOrFollower.code
    assert broker.end_offset("orders") == 1


def test_dropped_request_has_no_effect(broker: HookedBroker) -> None:
    broker.rule("Produce", "drop")
    with pytest.raises(CloseConnection, match="a test hook dropped the Produce request"):
        broker.produce("orders", b"x")
    assert broker.end_offset("orders") == 0


def test_request_with_a_dropped_response_has_its_effect(broker: HookedBroker) -> None:
    broker.rule("Produce", "drop", after=True)
    with pytest.raises(CloseConnection):
        broker.produce("orders", b"x")
    assert broker.end_offset("orders") == 1


def test_delayed_request_starts_later(broker: HookedBroker) -> None:
    broker.rule("Produce", "delay", delay_ms=500)
    asked = broker.begin(produce_request("orders", b"x"), 9)
    broker.ports.advance(499)
    assert not asked.is_done
    assert broker.end_offset("orders") == 0
    broker.ports.advance(1)
    assert asked.response().responses[0].partition_responses[0].base_offset == 0


def test_nothing_overtakes_a_delayed_produce(broker: HookedBroker) -> None:
    """A request that runs alone starts no other request after it."""
    broker.rule("Produce", "delay", delay_ms=500)
    frames: list[Dispatched] = []
    inner = broker.dispatch_frame
    broker.dispatch_frame = lambda *args: frames.append(inner(*args)) or frames[-1]  # type: ignore
    broker.begin(produce_request("orders", b"x"), 9)
    assert frames[0].runs_alone


def test_delayed_response_does_not_delay_its_request(broker: HookedBroker) -> None:
    broker.rule("Produce", "delay", delay_ms=500, after=True)
    asked = broker.begin(produce_request("orders", b"x"), 9)
    broker.settle()
    assert broker.end_offset("orders") == 1
    assert not asked.is_done
    broker.ports.advance(500)
    assert asked.is_done


def test_invalid_delayed_request_closes_its_connection(broker: HookedBroker) -> None:
    broker.rule("Produce", "delay", delay_ms=500)
    asked = broker.begin(produce_request("orders", b"x", acks=0, partition=7), 9)
    broker.ports.advance(500)
    with pytest.raises(CloseConnection, match="acks=0"):
        asked.parts()


def test_disconnect_ends_the_delay(broker: HookedBroker) -> None:
    broker.rule("Produce", "delay", delay_ms=500)
    asked = broker.begin(produce_request("orders", b"x"), 9)
    asked.cancel()
    broker.ports.advance(1000)
    assert broker.end_offset("orders") == 0


@pytest.mark.parametrize("action", ["drop", "delay", "fail"])
def test_file_regions_of_an_unsent_response_are_closed(broker: HookedBroker, action: str) -> None:
    broker.produce("orders", b"x" * 100)
    file = open_file(broker.log("orders").segments.active.records_file)
    before = file._holders
    rule = broker.rule("Fetch", action, after=True, delay_ms=500, error=refuse())
    asked = None
    with contextlib.suppress(CloseConnection):
        asked = broker.begin(fetch_request("orders"), 11)
        broker.settle()
    if action == "delay":
        assert asked is not None
        asked.cancel()
    assert rule.hits == 1
    assert file._holders == before


def test_oldest_matching_hook_applies_to_a_request(broker: HookedBroker) -> None:
    first = broker.rule("Produce", "fail", error=refuse(), topic="others")
    second = broker.rule("Produce", "fail", error=refuse(), times=2)
    third = broker.rule("Produce", "fail", error=refuse())
    for _ in range(3):
        broker.produce("orders", b"x")
    assert (first.hits, second.hits, third.hits) == (0, 2, 1)
    assert broker.hooked.rules == [first]


def test_hook_without_a_limit_applies_to_all_requests(broker: HookedBroker) -> None:
    rule = broker.rule("Produce", "fail", error=refuse(), times=None)
    for _ in range(5):
        assert broker.produce("orders", b"x").error_code
    assert rule.hits == 5


def test_hook_may_select_a_client(broker: HookedBroker) -> None:
    broker.rule("Produce", "fail", error=refuse(), client_id="billing")
    assert broker.produce("orders", b"x").error_code == 0
    refused = broker.ask(produce_request("orders", b"x"), 9, client_id="billing")
    assert refused.responses[0].partition_responses[0].error_code


def test_hook_may_select_a_topic_by_name_or_id(broker: HookedBroker) -> None:
    topic_id = broker.broker.cache.topic("orders").topic_id  # type: ignore[union-attr]
    rule = broker.rule("Produce", "fail", error=refuse(), topic="orders", times=None)
    assert broker.produce("others", b"x").error_code == 0
    request = produce_request("orders", b"x")
    request.topic_data[0].topic_id = topic_id
    broker.ask(request, 13)
    assert rule.hits == 1


def test_hook_for_a_topic_applies_to_fetch_sessions_with_it(broker: HookedBroker) -> None:
    opened = broker.ask(fetch_request("orders", session_epoch=0), 11)
    rule = broker.rule("Fetch", "fail", error=refuse(), topic="orders")
    again = fetch_request("orders", session_id=opened.session_id, session_epoch=1)
    again.topics = list[FetchTopic]()
    assert broker.ask(again, 11).error_code == NotLeaderOrFollower.code
    assert rule.hits == 1


def test_other_requests_are_not_affected(broker: HookedBroker) -> None:
    rule = broker.rule("Heartbeat", "drop")
    broker.ask(MetadataRequest(topics=None), 12)
    assert rule.hits == 0
    with pytest.raises(CloseConnection):
        broker.ask(HeartbeatRequest(group_id="g"), 4)


def test_unreadable_request_is_passed_to_the_broker(broker: HookedBroker) -> None:
    broker.rule("Produce", "fail", error=refuse())
    with pytest.raises(CloseConnection, match="not a Kafka request"):
        broker.dispatch_frame(b"\0")


def test_when_hit_completes_after_the_given_number_of_requests(broker: HookedBroker) -> None:
    rule = broker.rule("Produce", "fail", error=refuse(), times=None)
    once, twice = rule.when_hit(1), rule.when_hit(2)
    broker.produce("orders", b"x")
    assert (once.done, twice.done) == (True, False)
    broker.produce("orders", b"x")
    assert twice.done
    assert rule.when_hit(2).done


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("Produces", "Produce"), ("fetch", "Fetch"), ("OFFSET_COMMIT", "OffsetCommit")],
)
def test_unknown_request_name_suggests_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean '{near}'"):
        row_named(wrong)


def test_topic_is_rejected_for_a_request_without_topics() -> None:
    with pytest.raises(ValueError, match="Heartbeat does not contain any topics"):
        Rule(row=row_named("Heartbeat"), action="drop", topic="orders")


def test_hook_with_a_limit_below_one_is_rejected() -> None:
    with pytest.raises(ValueError, match="times=0"):
        Rule(row=row_named("Produce"), action="drop", times=0)
