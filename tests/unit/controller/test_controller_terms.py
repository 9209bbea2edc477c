"""Controller: several brokers become the controller one after another."""

from __future__ import annotations

import pytest

from plog.errors import NotController, RequestTimedOut
from plog.zookeeper.operations import Delete
from plogd.concurrency import within
from plogd.controller.partition_creation import NewPartitions
from plogd.controller.topic_creation import NewTopic
from plogd.metadata.cache import TopicState
from plogd.ports import Later, ready
from tests.helpers.controller_site import (
    ControllerSite,
    Transactions,
    candidate,
    embedded,
    on_zookeeper,
    zookeeper_of,
)
from tests.helpers.metadata_sites import SESSION_TIMEOUT_MS
from tests.helpers.sim.sim_ports import outcome

ID = b"i" * 16


def check_inactive(site: ControllerSite) -> None:
    """Check that every operation fails immediately."""
    controller = site.controller
    assert not controller.is_active
    operations: list[Later[TopicState] | Later[None]] = [
        controller.create_topic(NewTopic(name="t")),
        controller.create_partitions(NewPartitions(topic="t", count=3)),
        controller.delete_topic("t", ID),
        controller.run_exclusively("t", lambda: ready(None)),
    ]
    for operation in operations:
        with pytest.raises(NotController):
            outcome(operation)
    with pytest.raises(NotController):
        controller.check_active()
    with pytest.raises(NotController):
        controller.plan(NewTopic(name="t"))
    with pytest.raises(NotController):
        controller.plan_partitions(NewPartitions(topic="t", count=3))


def test_single_broker_is_always_the_controller() -> None:
    site = embedded()
    assert site.controller.is_active
    site.controller.check_active()
    site.site.ports.advance(60_000)
    assert site.controller.is_active


def test_candidate_rejects_operations_until_it_is_elected() -> None:
    first = on_zookeeper()
    topic = first.created("t")
    second = candidate(first)
    zookeeper_of(second).run_for(60_000)
    check_inactive(second)
    assert not second.loading.done
    zookeeper_of(first).client.close()
    assert second.settle(second.loading) == [topic]
    assert second.controller.is_active
    assert second.created("u").name == "u"


@pytest.mark.parametrize("partitions", [1, 200])
def test_all_operations_fail_at_once_when_zookeeper_is_lost(partitions: int) -> None:
    site = on_zookeeper()
    creations = [site.create("t", partitions) for _ in range(200)]
    exclusive: Later[None] = Later()
    waiting = site.controller.run_exclusively("other", lambda: exclusive)
    zookeeper_of(site).run_for(0.6)
    zookeeper_of(site).zookeeper.lose_quorum()
    # Time for the slices, but none for a connection.
    zookeeper_of(site).run_for(1)
    for operation in [*creations, waiting]:
        with pytest.raises(NotController):
            outcome(operation)
    check_inactive(site)
    zookeeper_of(site).run_for(60_000)
    check_inactive(site)
    zookeeper_of(site).zookeeper.restore_quorum()
    zookeeper_of(site).run_for(1000)
    assert site.controller.is_active
    [topics] = site.elected
    assert [len(topic.partitions) for topic in topics] in ([], [partitions])
    assert site.count_states() == sum(len(topic.partitions) for topic in topics)


def test_operation_waits_while_the_connection_hangs_and_then_fails() -> None:
    site = on_zookeeper()
    client = zookeeper_of(site).client
    client.cut()
    creation = site.create("t", 200)
    work = within(creation, 1000, site.site.ports.timers, RequestTimedOut)
    zookeeper_of(site).run_for(1000)
    # The request is answered, and the operation continues.
    with pytest.raises(RequestTimedOut):
        outcome(work)
    assert site.controller.is_active
    zookeeper_of(site).run_for(SESSION_TIMEOUT_MS)
    check_inactive(site)
    client.restore()
    zookeeper_of(site).run_for(3 * SESSION_TIMEOUT_MS)
    # The transaction was lost with the connection.
    assert site.elected == [[]]
    assert zookeeper_of(site).zookeeper.names("/brokers/topics") == []


def test_controller_campaigns_once_for_each_term() -> None:
    site = on_zookeeper()
    store = zookeeper_of(site).store
    campaigns: list[float] = []
    campaign = store.campaign

    def counted() -> Later[int]:
        campaigns.append(site.site.ports.clock.monotonic_ms())
        return campaign()

    store.campaign = counted  # type: ignore[method-assign]
    for _ in range(3):
        zookeeper_of(site).zookeeper.lose_quorum()
        zookeeper_of(site).run_for(60_000)
        zookeeper_of(site).zookeeper.restore_quorum()
        zookeeper_of(site).run_for(1000)
    assert len(campaigns) == 3
    assert site.elected == [[], [], []]


def test_controller_whose_session_expires_is_elected_with_the_next_epoch() -> None:
    site = on_zookeeper()
    topic = site.created("t")
    zookeeper = zookeeper_of(site)
    zookeeper.zookeeper.expire(zookeeper.client.session_id)
    zookeeper.run_for(1000)
    assert site.elected == [[topic]]
    assert zookeeper.zookeeper.data("/controller_epoch") == b"2"
    assert site.created("u").name == "u"


def test_deposed_controller_writes_and_requests_nothing() -> None:
    first = on_zookeeper()
    first.created("t", 1)
    second = candidate(first)
    # Its server lags behind, so the first controller does not notice that it was deposed.
    zookeeper_of(first).client.hold()
    zookeeper_of(first).zookeeper.write(Delete(path="/controller"))
    second.settle(second.loading)
    transactions = Transactions(first)
    calls = list(first.brokers.calls)
    creation, other = first.create("u", 200), first.create("v", 1)
    waiting = first.create("u", 1)
    zookeeper_of(first).run_for(1000)
    for operation in (creation, other, waiting):
        with pytest.raises(NotController):
            outcome(operation)
    check_inactive(first)
    zookeeper = zookeeper_of(first).zookeeper
    assert zookeeper.names("/brokers/topics") == ["t"]
    assert zookeeper.data("/controller_epoch") == b"2"
    # Both creations shared the only transaction, and the campaign did not send one.
    assert len(transactions.sent) == 1
    assert first.brokers.calls == calls
    # It becomes the controller again.
    second.created("w", 1)
    zookeeper_of(first).client.catch_up()
    zookeeper_of(second).client.close()
    zookeeper_of(first).run_for(3 * SESSION_TIMEOUT_MS)
    assert [topic.name for topic in first.elected[0]] == ["t", "w"]


def test_next_term_waits_for_the_requests_of_the_former_one() -> None:
    """Otherwise, a call that is late would change the topics of the next term."""
    site = on_zookeeper()
    site.brokers.held = []
    creation = site.create("t", 1)
    zookeeper_of(site).run_for(10)
    assert site.brokers.calls == ["start t"]
    zookeeper_of(site).zookeeper.write(Delete(path="/controller"))
    zookeeper_of(site).run_for(1000)
    with pytest.raises(NotController):
        outcome(creation)
    check_inactive(site)
    site.brokers.held[0].succeed(None)
    zookeeper_of(site).run_for(1000)
    [[topic]] = site.elected
    assert topic.name == "t"


def test_term_that_ends_while_topics_are_loaded_is_followed_by_another() -> None:
    first = on_zookeeper()
    for number in range(5):
        first.created(f"t{number}", 200)
    zookeeper = zookeeper_of(first).zookeeper
    second = candidate(first)
    zookeeper_of(first).client.close()
    # The election takes a few round trips, and then the topics are loaded in slices.
    while zookeeper_of(second).store.load(("topic",)) == {}:
        second.site.ports.timers.run_next()
    assert not second.loading.done
    assert not second.controller.is_active
    zookeeper.write(Delete(path="/controller"))
    topics = second.settle(second.loading)
    assert len(topics) == 5
    assert second.elected == []
    assert zookeeper.data("/controller_epoch") == b"3"


def test_stopped_controller_does_not_campaign_again() -> None:
    first = on_zookeeper()
    second = candidate(first)
    first.controller.stop()
    second.controller.stop()
    check_inactive(first)
    zookeeper_of(first).store.close()
    zookeeper_of(first).client.close()
    zookeeper_of(second).run_for(60_000)
    assert first.elected == second.elected == []
    check_inactive(second)
