"""The tests that every implementation of `Peers` must pass.

A test module derives a class from `PeersConformance` and sets `make_site`. The brokers of the site
are described in peer_site.py; unless a test says otherwise, broker 1 asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plog.errors import ErrorCode, RequestTimedOut, UnsupportedVersion
from plog.wire.api_keys import ApiKey
from plog.wire.messages.api_versions import ApiVersionsRequest
from plog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.messages.describe_cluster import DescribeClusterRequest
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from plog.wire.schema import ApiMessage
from plogd.apis.api_table import HANDLERS, Row
from plogd.apis.error_responses import refuse_at_top_level
from plogd.peers import PeerUnavailable, VersionedRequest
from tests.helpers.peers.peer_site import BROKERS, PeerSite, Reply
from tests.helpers.sim.sim_broker import create_topic, fetch_request

WHO = DescribeClusterRequest()
"""A request whose response contains the id of the broker that has handled it."""
TOPIC = "t"


def named(name: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )


def names(requests: list[ApiMessage]) -> list[str | None]:
    """Return the topics of the Metadata requests in `requests`."""
    return [
        request.topics[0].name
        for request in requests
        if isinstance(request, MetadataRequest) and request.topics
    ]


class PeersConformance:
    """The tests; `make_site` creates the brokers with the given API table."""

    make_site: Callable[..., PeerSite]

    @pytest.fixture
    def site(self) -> PeerSite:
        return type(self).make_site()

    def wait_for_data(self, site: PeerSite, target: int = 2, lane: str = "fetch") -> Reply:
        """Start a Fetch that waits at broker `target` for 5 s."""
        if site.brokers[target].broker.cache.topic(TOPIC) is None:
            create_topic(site.brokers[target], TOPIC)
        return site.ask(target, fetch_request(TOPIC, max_wait_ms=5000), lane)

    # -- responses ----------------------------------------------------------------------------

    @pytest.mark.parametrize("source", BROKERS)
    def test_every_broker_answers_every_broker(self, site: PeerSite, source: int) -> None:
        for target in BROKERS:
            assert site.answer(target, WHO, source=source).controller_id == target

    def test_request_to_the_own_broker_does_not_use_the_network(self, site: PeerSite) -> None:
        reply = site.ask(1, WHO)
        assert reply.is_done
        assert reply.value.controller_id == 1
        assert site.arrived == {1: [], 2: [], 3: []}

    @pytest.mark.parametrize("target", [1, 2])
    def test_error_of_the_handler_is_in_the_response(self, site: PeerSite, target: int) -> None:
        answer = site.answer(target, DescribeClusterRequest(endpoint_type=2))
        assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE

    @pytest.mark.parametrize("target", [1, 2])
    def test_change_is_made_by_the_asked_broker(self, site: PeerSite, target: int) -> None:
        topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        answer = site.answer(target, CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0
        created = [each for each in BROKERS if site.brokers[each].broker.cache.topic("new")]
        assert created == [target]

    def test_records_are_fetched_from_another_broker(self, site: PeerSite) -> None:
        create_topic(site.brokers[2], TOPIC)
        site.brokers[2].produce(TOPIC, b"a" * 100_000)
        answer = site.answer(2, fetch_request(TOPIC))
        [partition] = answer.responses[0].partitions
        log = site.brokers[2].log(TOPIC)
        assert partition.high_watermark == 1
        assert bytes(partition.records) == log.read(0, 1 << 20, end_offset=1).region.read()

    # -- versions -----------------------------------------------------------------------------

    @pytest.mark.parametrize("target", [1, 2])
    def test_request_is_built_for_the_version_that_both_support(
        self, site: PeerSite, target: int
    ) -> None:
        versions = []

        def build(version: int) -> ApiMessage:
            versions.append(version)
            return WHO

        assert site.answer(target, VersionedRequest(DescribeClusterRequest, build)).brokers
        assert versions == [2]

    def test_only_a_versioned_request_is_sent_without_topic_names(self, site: PeerSite) -> None:
        create_topic(site.brokers[2], TOPIC)
        topic_id = site.brokers[2].broker.cache.topic(TOPIC).topic_id  # type: ignore[union-attr]
        site.brokers[2].produce(TOPIC, b"value")

        def build(version: int) -> ApiMessage:
            assert version == 18
            topic = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0)])
            return FetchRequest(topics=[topic])

        answer = site.answer(2, VersionedRequest(FetchRequest, build))
        assert answer.responses[0].topic_id == topic_id
        assert site.answer(2, fetch_request(TOPIC)).responses[0].topic == TOPIC

    @pytest.mark.parametrize("target", [1, 2])
    def test_api_that_the_broker_lacks_is_unsupported(self, site: PeerSite, target: int) -> None:
        before = site.ask(target, WHO)
        unsupported = site.ask(target, ControlledShutdownRequest(broker_id=1))
        after = site.ask(target, WHO)
        site.advance(100)
        assert isinstance(unsupported.error, UnsupportedVersion)
        assert (before.value.controller_id, after.value.controller_id) == (target, target)

    def test_request_between_brokers_is_accepted_from_the_own_broker(self) -> None:
        def handle(request: Any, context: Any, broker: Any) -> ControlledShutdownResponse:
            return ControlledShutdownResponse(error_code=request.broker_id)

        refuse = refuse_at_top_level(ControlledShutdownResponse)
        row = Row(ApiKey.CONTROLLED_SHUTDOWN, 1, 3, handle, refuse, only_between_brokers=True)
        site = type(self).make_site((*HANDLERS, row))
        assert site.answer(1, ControlledShutdownRequest(broker_id=7)).error_code == 7

    # -- order --------------------------------------------------------------------------------

    def test_requests_of_a_lane_arrive_and_are_answered_in_order(self, site: PeerSite) -> None:
        replies = [site.ask(2, named(f"n{number}")) for number in range(5)]
        site.advance(100)
        replies += [site.ask(2, named(f"n{number}")) for number in range(5, 10)]
        site.advance(100)
        assert names(site.arrived[2]) == [f"n{number}" for number in range(10)]
        assert site.replies == replies

    def test_request_in_a_callback_does_not_overtake_waiting_ones(self, site: PeerSite) -> None:
        """Both while the connection is opened, and when a response arrives."""
        peers = site.peers[1]

        def ask_more(_: object) -> None:
            Reply(site, peers.ask(2, named("late"), "control"))

        # The first request fails without being sent, while the others wait.
        first = peers.ask(2, ControlledShutdownRequest(broker_id=1), "control")
        first.then(ask_more, ask_more)
        for name in ("a", "b"):
            site.ask(2, named(name))
        site.advance(100)
        assert names(site.arrived[2]) == ["a", "b", "late"]

    def test_lanes_do_not_wait_for_each_other(self, site: PeerSite) -> None:
        fetch = self.wait_for_data(site)
        site.advance(100)
        behind = site.ask(2, WHO, "fetch")
        assert site.answer(2, WHO, "control").controller_id == 2
        assert not fetch.is_done
        assert not behind.is_done
        site.advance(5000)
        assert (fetch.error, behind.value.controller_id) == (None, 2)

    def test_each_lane_to_a_broker_has_one_connection(self, site: PeerSite) -> None:
        for target, lane in [(2, "a"), (2, "b"), (3, "a"), (2, "a"), (2, "b")]:
            site.answer(target, WHO, lane)
        opened = {
            target: sum(isinstance(request, ApiVersionsRequest) for request in site.arrived[target])
            for target in BROKERS
        }
        assert opened == {1: 0, 2: 2, 3: 1}

    # -- failures -----------------------------------------------------------------------------

    def test_dead_broker_is_unavailable_until_it_runs_again(self, site: PeerSite) -> None:
        assert site.answer(2, WHO).controller_id == 2
        site.kill(2)
        for _ in range(3):
            with pytest.raises(PeerUnavailable):
                site.answer(2, WHO)
        site.start(2)
        site.advance(2000)  # Longer than every backoff.
        assert site.answer(2, WHO).controller_id == 2

    def test_broker_whose_request_waited_can_be_killed(self, site: PeerSite) -> None:
        from_dead = [self.wait_for_data(site, target=3)]
        site.advance(100)
        from_dead.append(site.ask(2, WHO))
        site.kill(1)
        site.advance(60_000)
        assert not any(reply.is_done for reply in from_dead), "no code of the broker may run"
        assert site.answer(3, WHO, source=2).controller_id == 3
        site.start(1)
        assert site.answer(1, WHO, source=2).controller_id == 1
        assert site.answer(2, WHO).controller_id == 2

    def test_lost_connection_fails_its_requests_and_no_others(self, site: PeerSite) -> None:
        lost = self.wait_for_data(site)
        other_lane = self.wait_for_data(site, lane="other")
        other_broker = self.wait_for_data(site, target=3)
        site.advance(100)
        behind = site.ask(2, WHO, "fetch")
        site.network.lose_response(1, 2)
        site.advance(5000)
        assert isinstance(lost.error or other_lane.error, PeerUnavailable)
        assert isinstance(behind.error or other_lane.error, PeerUnavailable)
        assert (lost.error is None) != (other_lane.error is None)
        assert other_broker.error is None
        assert other_broker.is_done
        assert site.answer(2, WHO, "fetch").controller_id == 2

    def test_processed_request_may_fail(self, site: PeerSite) -> None:
        site.answer(2, WHO)
        site.network.lose_response(1, 2)
        topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        with pytest.raises(PeerUnavailable):
            site.answer(2, CreateTopicsRequest(topics=[topic]))
        assert site.brokers[2].broker.cache.topic("new") is not None

    @pytest.mark.parametrize("direction", [(1, 2), (2, 1)])
    def test_cut_network_ends_in_a_timeout(
        self, site: PeerSite, direction: tuple[int, int]
    ) -> None:
        site.answer(2, WHO)
        site.network.cut(*direction)
        late = site.ask(2, WHO, timeout_ms=1000)
        behind = site.ask(2, WHO, timeout_ms=5000)
        assert site.answer(3, WHO).controller_id == 3
        site.advance(850)
        assert not late.is_done
        site.advance(100)
        assert isinstance(late.error, RequestTimedOut)
        assert isinstance(behind.error, PeerUnavailable)
        assert site.answer(3, WHO).controller_id == 3
        site.network.heal(*direction)
        site.advance(2000)
        assert site.answer(2, WHO).controller_id == 2

    def test_cut_network_before_the_connection_ends_in_a_timeout(self, site: PeerSite) -> None:
        site.network.cut(1, 2)
        late = site.ask(2, WHO, timeout_ms=1000)
        later = site.ask(2, WHO, timeout_ms=60_000)
        site.advance(999)
        assert not late.is_done
        site.advance(1)
        assert isinstance(late.error, RequestTimedOut)
        assert not later.is_done
        site.network.heal(1, 2)
        site.advance(1000)
        assert later.value.controller_id == 2
        assert len(site.arrived[2]) == 2, "ApiVersions, and the request that has not timed out"

    def test_short_cut_only_delays_requests(self, site: PeerSite) -> None:
        site.answer(2, WHO)
        site.network.cut(2, 1)
        replies = [site.ask(2, named(name)) for name in ("a", "b")]
        site.advance(1000)
        assert not replies[0].is_done
        site.network.heal(2, 1)
        site.advance(10)
        assert site.replies[-2:] == replies
        assert [reply.error for reply in replies] == [None, None]

    # -- cancellation and closing -------------------------------------------------------------

    def test_cancelled_request_is_dropped_and_later_ones_are_answered(self, site: PeerSite) -> None:
        site.answer(2, WHO)
        dropped = self.wait_for_data(site, lane="control")
        kept = site.ask(2, WHO)
        dropped.later.cancel()
        site.advance(6000)
        assert kept.value.controller_id == 2

    def test_request_cancelled_before_the_connection_is_not_sent(self, site: PeerSite) -> None:
        dropped = site.ask(2, named("dropped"))
        kept = site.ask(2, named("kept"))
        dropped.later.cancel()
        site.advance(100)
        assert names(site.arrived[2]) == ["kept"]
        assert kept.error is None
        assert kept.is_done

    def test_closing_fails_pending_and_later_requests(self, site: PeerSite) -> None:
        in_flight = self.wait_for_data(site)
        site.advance(100)
        waiting = site.ask(3, WHO)
        site.peers[1].close()
        site.settle()
        late = site.ask(2, WHO)
        own = site.ask(1, WHO)
        for reply in (in_flight, waiting, late, own):
            assert isinstance(reply.error, PeerUnavailable)
        assert site.answer(3, WHO, source=2).controller_id == 3
