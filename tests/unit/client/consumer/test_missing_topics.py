"""Missing topics and partitions are reported, and those created late are not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from plog.client.consumer.missing_topics import ANSWERS_NEEDED, MissingTopics
from plog.client.faces.polling_consumer import PollingConsumer
from plog.client.network.cluster import Cluster
from plog.client.network.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from plog.client.settings import ConsumerSettings
from plog.errors import ErrorCode, UnknownTopicOrPartition
from plog.types import TopicPartition
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.metadata import MetadataRequest
from tests.helpers.client.client_on_sim_network import SimNetwork
from tests.helpers.sim.sim_broker import create_topic

T9 = TopicPartition("t", 9)


# -- the rules ------------------------------------------------------------------------------------


def snapshot(*answered: str, **partitions: int) -> ClusterMetadata:
    """Return the metadata after a response; a topic with 0 partitions is unknown.

    `answered` are the topics in the response, by default all.
    """
    return ClusterMetadata(
        topics={
            name: TopicMetadata(
                name=name,
                error=ErrorCode.NONE if count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                partitions=tuple(PartitionMetadata(index=n, leader=1) for n in range(count)),
            )
            for name, count in partitions.items()
        },
        answered=frozenset(answered or partitions),
    )


def missing_topics(may_be_created: bool = False) -> MissingTopics:
    return MissingTopics(may_be_created=may_be_created, repeat_s=60)


def test_topic_is_reported_after_consecutive_responses() -> None:
    missing = missing_topics()
    for _ in range(ANSWERS_NEEDED - 1):
        assert missing.check(snapshot(a=0, b=1), ["a", "b"], (), 0) == ({}, ())
    report = missing.check(snapshot(a=0, b=1), ["a", "b"], (), 0)
    assert set(report.errors) == {"a"}
    assert "topic a does not exist" in str(report.errors["a"])
    assert missing.check(snapshot(a=0, b=1), ["a", "b"], (), 59) == ({}, ())
    assert set(missing.check(snapshot(a=0, b=1), ["a", "b"], (), 60).errors) == {"a"}


def test_responses_about_other_topics_do_not_count() -> None:
    missing = missing_topics()
    for _ in range(2 * ANSWERS_NEEDED):
        assert missing.check(snapshot("b", a=0, b=1), ["a", "b"], (), 0) == ({}, ())


def test_topic_that_appears_starts_over() -> None:
    missing = missing_topics()
    for _ in range(3):
        for _ in range(ANSWERS_NEEDED - 1):
            assert missing.check(snapshot(a=0), ["a"], (), 0) == ({}, ())
        missing.check(snapshot(a=1), ["a"], (), 0)


def test_topic_that_may_be_created_is_awaited_once() -> None:
    missing = missing_topics(may_be_created=True)
    reports = [
        missing.check(snapshot(a=0), ["a"], (), 100 * number) for number in range(ANSWERS_NEEDED)
    ]
    assert [report.awaited for report in reports] == [*[()] * (ANSWERS_NEEDED - 1), ("a",)]
    assert missing.check(snapshot(a=0), ["a"], (), 1e6) == ({}, ())


@pytest.mark.parametrize("may_be_created", [True, False])
def test_partition_beyond_the_last_one_is_always_an_error(may_be_created: bool) -> None:
    missing = missing_topics(may_be_created)
    for _ in range(ANSWERS_NEEDED):
        report = missing.check(snapshot(t=3), (), [T9], 0)
    assert set(report.errors) == {T9}
    assert "partition t-9 does not exist because topic t has 3 partitions" in str(report.errors[T9])
    assert missing.error_of(TopicPartition("t", 2)) is None
    assert not missing.may_appear(T9)


def test_topics_missing_together_share_one_error() -> None:
    missing = missing_topics()
    for _ in range(ANSWERS_NEEDED):
        report = missing.check(snapshot(a=0, b=0, t=1), ["a", "b"], [T9], 0)
    assert set(report.errors) == {"a", "b", T9}
    assert len(set(report.errors.values())) == 1


# -- in a consumer --------------------------------------------------------------------------------


@pytest.fixture
def sim() -> SimNetwork:
    sim = SimNetwork(auto_create_topics_enable=False)
    create_topic(sim.broker, "t", partitions=3)
    sim.broker.produce("t", b"a")
    return sim


MakeConsumer = Callable[..., PollingConsumer]


@pytest.fixture(params=[None, "g"], ids=["alone", "in-group"])
def make(sim: SimNetwork, request: pytest.FixtureRequest) -> MakeConsumer:
    def make(**settings: Any) -> PollingConsumer:
        options = {"auto_offset_reset": "earliest", "group_id": request.param, **settings}
        made = ConsumerSettings.from_options(bootstrap_servers=sim.bootstrap_servers, **options)
        cluster = Cluster(sim, made, auto_create_topics=made.allow_auto_create_topics)
        return PollingConsumer(cluster, sim, made)

    return make


def test_missing_topic_is_an_error_of_poll_without_auto_creation(
    sim: SimNetwork, make: MakeConsumer
) -> None:
    core = make(allow_auto_create_topics=False)
    core.subscribe(["typo"])
    before_s = sim.now_s()
    with pytest.raises(UnknownTopicOrPartition, match="topic typo does not exist"):
        sim.run(core.consume(timeout_s=60))
    assert sim.now_s() - before_s < 2


def test_other_topics_are_read_when_one_is_missing(sim: SimNetwork, make: MakeConsumer) -> None:
    core = make(allow_auto_create_topics=False)
    core.subscribe(["t", "typo"])
    [record] = sim.run(core.consume(timeout_s=60))
    assert record.value == b"a"
    with pytest.raises(UnknownTopicOrPartition, match="topic typo does not exist"):
        sim.run(core.consume(timeout_s=60))
    sim.broker.produce("t", b"b")
    assert [x.value for x in sim.run(core.consume(timeout_s=60))] == [b"b"]


def test_missing_topic_is_one_warning_with_auto_creation(
    sim: SimNetwork, make: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    core = make()
    core.subscribe(["typo"])
    with caplog.at_level(logging.WARNING, "plog.client"):
        assert sim.run(core.consume(timeout_s=30)) == []
    assert [x.message for x in caplog.records] == [
        "topic typo does not exist; waiting for it to be created"
    ]


def test_topic_created_a_moment_later_is_not_reported(
    sim: SimNetwork, make: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    core = make(allow_auto_create_topics=False)
    sim.run(core._cluster.refresh(["late"]))  # The snapshot without the topic is out of date soon.
    sim.call_later(0.3, lambda: sim.create_soon("late"))
    core.subscribe(["late"])
    assert sim.run(core.consume(timeout_s=10)) == []
    assert caplog.records == []
    sim.broker.produce("late", b"x")
    assert [x.value for x in sim.run(core.consume(timeout_s=10))] == [b"x"]


def test_topic_deleted_during_reading_is_reported(sim: SimNetwork, make: MakeConsumer) -> None:
    core = make(allow_auto_create_topics=False)
    core.subscribe(["t"])
    assert sim.run(core.consume(timeout_s=60))
    sim.broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    with pytest.raises(UnknownTopicOrPartition, match="topic t does not exist"):
        sim.run(core.consume(timeout_s=60))


def test_pattern_that_matches_nothing_is_not_reported(
    sim: SimNetwork, make: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    core = make(allow_auto_create_topics=False)
    core.subscribe(pattern="typo.*")
    assert sim.run(core.consume(timeout_s=90)) == []
    assert caplog.records == []


@pytest.mark.parametrize("may_create", [True, False])
def test_missing_partition_is_an_error_of_poll_and_position(
    sim: SimNetwork, make: MakeConsumer, may_create: bool
) -> None:
    core = make(allow_auto_create_topics=may_create)
    core.assign([T9])
    with pytest.raises(UnknownTopicOrPartition, match="t-9 does not exist because topic t has 3"):
        sim.run(core.consume(timeout_s=60))
    before_s = sim.now_s()
    with pytest.raises(UnknownTopicOrPartition, match="t-9 does not exist"):
        sim.run(core.position(T9, timeout_s=30))
    assert sim.now_s() - before_s < 1
    core.assign([T9])
    with pytest.raises(UnknownTopicOrPartition, match="t-9"):
        sim.run(core.consume(timeout_s=60))


def test_seek_in_missing_partition_is_reported_by_poll(sim: SimNetwork, make: MakeConsumer) -> None:
    core = make()
    core.assign([T9])
    core.seek(T9, 5)
    with pytest.raises(UnknownTopicOrPartition, match="t-9 does not exist"):
        sim.run(core.consume(timeout_s=60))


def test_position_error_names_missing_topic_that_may_be_created(
    sim: SimNetwork, make: MakeConsumer
) -> None:
    core = make()
    typo = TopicPartition("typo", 0)
    core.assign([typo])
    with pytest.raises(UnknownTopicOrPartition, match="topic typo does not exist"):
        sim.run(core.position(typo, timeout_s=3))


def test_partition_added_later_is_read(sim: SimNetwork, make: MakeConsumer) -> None:
    core = make(allow_auto_create_topics=False)
    create_topic(sim.broker, "grows", partitions=1)
    one = TopicPartition("grows", 1)
    core.assign([one])
    with pytest.raises(UnknownTopicOrPartition):
        sim.run(core.consume(timeout_s=60))
    from plog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

    grown = CreatePartitionsTopic(name="grows", count=2, assignments=None)
    sim.broker.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=1000), 3)
    sim.broker.produce("grows", b"x", partition=1)
    assert [x.value for x in sim.run(core.consume(timeout_s=10))] == [b"x"]


def test_no_topic_is_created_without_auto_creation(sim: SimNetwork, make: MakeConsumer) -> None:
    core = make(allow_auto_create_topics=False)
    core.subscribe(["typo"])
    with pytest.raises(UnknownTopicOrPartition):
        sim.run(core.consume(timeout_s=60))
    asked = [x for x in sim.requests if isinstance(x, MetadataRequest)]
    assert asked
    assert not any(x.allow_auto_topic_creation for x in asked)
