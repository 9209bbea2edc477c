"""Several brokers on ZooKeeper: election, replication and failover with real requests."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from plog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from plog.zookeeper.operations import SetData
from plogd.controller.cluster import broker_channels
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.sim.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperCluster


@pytest.fixture
def cluster() -> ZooKeeperCluster:
    """Three brokers with a topic of three replicas."""
    cluster = ZooKeeperCluster(3)
    cluster.create("t")
    return cluster


def test_one_broker_is_the_controller_and_all_brokers_know_it() -> None:
    cluster = ZooKeeperCluster(3)
    for broker in cluster.brokers.values():
        cache = broker.broker.cache
        assert (cache.controller_id, set(cache.live_brokers)) == (cluster.controller, {1, 2, 3})


def test_records_with_acks_all_are_on_all_replicas(cluster: ZooKeeperCluster) -> None:
    assert sorted(cluster.state("t").isr) == [1, 2, 3]
    assert cluster.produce("t", b"a", b"b") == 0
    assert {cluster.replica(one, "t").log.log_end_offset for one in (1, 2, 3)} == {2}
    assert cluster.values("t") == [b"a", b"b"]


def test_another_replica_leads_when_the_leader_dies(cluster: ZooKeeperCluster) -> None:
    assert cluster.produce("t", b"a") == 0
    old = cluster.leader("t")
    cluster.kill(old)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    new = cluster.leader("t")
    assert new != old
    assert old not in cluster.state("t").isr
    assert cluster.produce("t", b"b") == 0
    assert cluster.values("t") == [b"a", b"b"]
    # It returns as a follower, and joins the ISR again.
    cluster.start(old)
    cluster.advance(5_000)
    assert sorted(cluster.state("t").isr) == [1, 2, 3]
    assert cluster.replica(old, "t").log.log_end_offset == 2


def test_another_broker_becomes_the_controller(cluster: ZooKeeperCluster) -> None:
    old = cluster.controller
    cluster.kill(old)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert cluster.controller != old
    cluster.create("u", replication_factor=2)
    assert cluster.produce("u", b"a") == 0
    assert cluster.produce("t", b"b") == 0


def test_all_brokers_die_and_return(cluster: ZooKeeperCluster) -> None:
    for number in range(5):
        assert cluster.produce("t", b"%d" % number) == 0
    for one in (1, 2, 3):
        cluster.kill(one)
    for one in (3, 2, 1):
        cluster.start(one)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert sorted(cluster.state("t").isr) == [1, 2, 3]
    assert cluster.produce("t", b"5") == 0
    assert cluster.values("t") == [b"%d" % number for number in range(6)]
    assert {cluster.replica(one, "t").log.log_end_offset for one in (1, 2, 3)} == {6}


def test_broker_that_was_not_the_leader_rejects_records(cluster: ZooKeeperCluster) -> None:
    other = next(one for one in (1, 2, 3) if one != cluster.leader("t"))
    assert cluster.produce("t", b"a", to=other) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_too_few_replicas_in_sync_reject_records(cluster: ZooKeeperCluster) -> None:
    config = [CreatableTopicConfig(name="min.insync.replicas", value="2")]
    topic = CreatableTopic(name="u", num_partitions=1, replication_factor=3, configs=config)
    cluster.ask_controller(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert cluster.produce("u", b"a") == 0
    leader = cluster.leader("u")
    for one in {1, 2, 3} - {leader}:
        cluster.kill(one)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert cluster.state("u").isr == (leader,)
    assert cluster.produce("u", b"b") == ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.produce("u", b"c", acks=1) == 0


def test_topic_requests_to_other_brokers_are_rejected(cluster: ZooKeeperCluster) -> None:
    other = next(one for one in (1, 2, 3) if one != cluster.controller)
    topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
    response = cluster.ask(other, CreateTopicsRequest(topics=[topic]), 7)
    assert response.topics[0].error_code == ErrorCode.NOT_CONTROLLER


def test_topic_is_deleted_on_all_brokers(cluster: ZooKeeperCluster) -> None:
    assert cluster.produce("t", b"a") == 0
    gone = next(one for one in (1, 2, 3) if one != cluster.controller)
    cluster.kill(gone)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    cluster.ask_controller(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
    cluster.advance(1000)
    for broker in cluster.brokers.values():
        assert broker.broker.cache.topic("t") is None
        assert not broker.broker.replica_manager.topics.partitions
    # The broker that was gone moves its log away.
    cluster.start(gone)
    cluster.advance(1000)
    names = cluster.files[gone].listdir("/data")
    assert "t-0" not in names
    assert any(name.endswith("-stray") for name in names)


def test_broker_that_returns_during_a_deletion_deletes_the_topic(
    cluster: ZooKeeperCluster,
) -> None:
    controller = cluster.controller
    gone, other = (one for one in (1, 2, 3) if one != controller)
    cluster.kill(gone)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    # The deletion waits for this broker.
    cluster.cut(controller, other)
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
    deleting = cluster.brokers[controller].begin(request, 5)
    cluster.advance(100)
    cluster.start(gone)
    cluster.advance(1_000)
    assert not deleting.is_done
    cluster.heal(controller, other)
    cluster.until(lambda: deleting.is_done)
    cluster.advance(1_000)
    assert cluster.brokers[gone].broker.cache.topic("t") is None
    assert "t-0" not in cluster.files[gone].listdir("/data")


def test_topic_gets_more_partitions(cluster: ZooKeeperCluster) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=4, assignments=None)], timeout_ms=10_000
    )
    [result] = cluster.ask_controller(request, 3).results
    assert result.error_code == 0, result.error_message
    cluster.advance(100)
    for number in range(4):
        assert cluster.produce("t", b"a", number=number) == 0


def test_committed_offsets_survive_the_death_of_the_coordinator(
    cluster: ZooKeeperCluster,
) -> None:
    assert cluster.commit("g", 7) == 0
    coordinator = cluster.coordinator("g")
    cluster.kill(coordinator)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert cluster.coordinator("g") != coordinator
    assert cluster.committed("g") == 7


def test_broker_whose_session_expires_serves_again(cluster: ZooKeeperCluster) -> None:
    assert cluster.produce("t", b"a") == 0
    leader = cluster.leader("t")
    cluster.zookeeper.expire(cluster.client(leader).session_id)
    cluster.advance(10_000)
    assert sorted(cluster.state("t").isr) == [1, 2, 3]
    assert cluster.produce("t", b"b") == 0
    assert cluster.values("t") == [b"a", b"b"]


def test_broker_that_reads_its_new_epoch_late_serves_again(cluster: ZooKeeperCluster) -> None:
    follower = next(
        one for one in (1, 2, 3) if one not in (cluster.controller, cluster.leader("t"))
    )
    client = cluster.client(follower)

    def hold_reads(asking: MockZooKeeperClient, request: Request) -> Fault:
        # It has registered, but cannot read the states of its partitions for a second.
        if asking is client and request.kind == "multi":
            asking.hold()
            cluster.timers.call_later(1_000, asking.catch_up)
        return Fault.NONE

    cluster.zookeeper.on_request = hold_reads
    cluster.zookeeper.expire(client.session_id)
    cluster.advance(20_000)
    assert sorted(cluster.state("t").isr) == [1, 2, 3]


def test_broker_that_was_out_of_reach_for_long_gets_everything(
    cluster: ZooKeeperCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_channels, "_QUEUE_MAX", 4)
    controller = cluster.controller
    away = next(one for one in (1, 2, 3) if one != controller)
    cluster.cut(controller, away)
    for number in range(5):
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[controller, away])
        topic = CreatableTopic(
            name=f"u{number}", num_partitions=-1, replication_factor=-1, assignments=[assignment]
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        assert cluster.ask_controller(request, 7).topics[0].error_code == 0
    assert not cluster.brokers[away].broker.cache.topic("u0")
    cluster.heal(controller, away)
    cluster.advance(60_000)
    for number in range(5):
        assert cluster.produce(f"u{number}", b"a") == 0
        assert cluster.replica(away, f"u{number}").log.log_end_offset == 1


def test_leader_whose_session_expires_follows_the_next_leader() -> None:
    cluster = ZooKeeperCluster(3, auto_leader_rebalance_enable=False)
    leader, follower = cluster.create_away_from_controller("u")
    assert cluster.produce("u", b"a") == 0
    cluster.zookeeper.expire(cluster.client(leader).session_id)
    cluster.advance(10_000)
    assert cluster.leader("u") == follower
    assert sorted(cluster.state("u").isr) == [1, 2, 3]


def test_tail_of_a_leader_that_was_cut_off_is_truncated(cluster: ZooKeeperCluster) -> None:
    assert cluster.produce("t", b"kept") == 0
    old = cluster.leader("t")
    others = [one for one in (1, 2, 3) if one != old]
    for one in others:
        cluster.cut(old, one)
    cluster.client(old).cut()
    lost = cluster.begin_produce("t", b"lost", acks=1)
    cluster.until(lambda: lost.is_done)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert cluster.leader("t") != old
    assert cluster.produce("t", b"new") == 0
    cluster.client(old).restore()
    for one in others:
        cluster.heal(old, one)
    cluster.advance(30_000)
    assert cluster.values("t") == [b"kept", b"new"]
    assert {cluster.replica(one, "t").log.log_end_offset for one in (1, 2, 3)} == {2}


def test_broker_that_stops_hands_its_partitions_over_first(cluster: ZooKeeperCluster) -> None:
    assert cluster.produce("t", b"a") == 0
    for _ in range(2):
        old = cluster.leader("t")
        cluster.stop(old)
        # No session has to expire.
        cluster.until(lambda: cluster.has_controller, within_ms=1_000)
        assert cluster.leader("t") in cluster.brokers
        assert cluster.produce("t", b"b") == 0
    [last] = cluster.brokers
    cluster.stop(last)
    for one in (1, 2, 3):
        cluster.start(one)
    cluster.advance(5_000)
    assert sorted(cluster.state("t").isr) == [1, 2, 3]
    assert cluster.values("t") == [b"a", b"b", b"b"]


def test_broker_stops_after_the_last_attempt_to_hand_over_a_partition(
    cluster: ZooKeeperCluster,
) -> None:
    cluster.create("pair", replication_factor=2)
    leader = cluster.leader("pair")
    [follower] = set(cluster.state("pair").isr) - {leader}
    cluster.kill(follower)
    cluster.until(lambda: cluster.has_controller and cluster.state("pair").isr == (leader,))
    stopping = cluster.brokers[leader].broker.stop()
    started_ms = cluster.timers.clock.monotonic_ms()
    cluster.until(lambda: stopping.done)
    # Three attempts, with a second between them.
    assert 2_000 <= cluster.timers.clock.monotonic_ms() - started_ms < 3_000


def test_groups_wait_until_there_are_enough_brokers_for_the_replicas_of_their_offsets() -> None:
    cluster = ZooKeeperCluster(2)
    request = FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
    for _ in range(3):
        [found] = cluster.ask(1, request, 4).coordinators
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "offsets.topic.replication.factor is 3" in found.error_message
        assert "2 brokers are registered; start 1 more" in found.error_message
    warnings = [text for text in cluster.brokers[1].reports if "start 1 more" in text]
    assert len(warnings) == 1
    cluster.start(3)
    cluster.advance(1_000)
    cluster.create("t")
    assert cluster.commit("g", 7) == 0
    assert len(cluster.state("__consumer_offsets").isr) == 3


def test_topic_is_not_available_while_the_controller_cannot_be_reached(
    cluster: ZooKeeperCluster,
) -> None:
    controller = cluster.controller
    other = next(one for one in (1, 2, 3) if one != controller)
    cluster.kill(controller)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True
    )
    [topic] = cluster.ask(other, request, 12).topics
    assert topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_any_broker_creates_topics_automatically(cluster: ZooKeeperCluster) -> None:
    other = next(one for one in (1, 2, 3) if one != cluster.controller)
    topics = [MetadataRequestTopic(name="auto")]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    [first] = cluster.ask(other, request, 9).topics
    assert first.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    cluster.advance(1_000)
    [second] = cluster.ask(other, request, 9).topics
    assert second.error_code == 0


def test_leaders_of_several_topics_are_on_different_brokers() -> None:
    cluster = ZooKeeperCluster(3)
    for number in range(8):
        cluster.create(f"t{number}", replication_factor=1)
    assert len({cluster.leader(f"t{number}") for number in range(8)}) > 1


def test_replicas_are_placed_in_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    cluster = ZooKeeperCluster(4, racks=racks)
    cluster.create("t", partitions=20, replication_factor=2)
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=30, assignments=None)], timeout_ms=10_000
    )
    [result] = cluster.ask_controller(request, 3).results
    assert result.error_code == 0, result.error_message
    topic = cluster.brokers[cluster.controller].broker.cache.topic("t")
    assert topic is not None
    assert len(topic.partitions) == 30
    for state in topic.partitions:
        assert {racks[one] for one in state.replicas} == {"a", "b"}
    # All brokers have followers and leaders.
    assert {state.replicas[1] for state in topic.partitions} == {1, 2, 3, 4}
    assert {state.leader for state in topic.partitions} == {1, 2, 3, 4}


def test_topic_is_not_created_if_only_some_brokers_have_racks() -> None:
    cluster = ZooKeeperCluster(3, racks={1: "a"})
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    [result] = cluster.ask_controller(CreateTopicsRequest(topics=[topic]), 7).topics
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "set broker.rack on all brokers or on none" in result.error_message
    # The request can place the replicas itself.
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 3])
    topic = CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    [result] = cluster.ask_controller(CreateTopicsRequest(topics=[topic]), 7).topics
    assert result.error_code == 0


def test_followers_of_several_topics_are_on_different_brokers() -> None:
    cluster = ZooKeeperCluster(3)
    pairs = set()
    for number in range(12):
        cluster.create(f"t{number}", replication_factor=2)
        topic = cluster.brokers[1].broker.cache.topic(f"t{number}")
        assert topic is not None
        pairs.add(topic.partitions[0].replicas)
    # With the same follower after each leader, there would be at most three pairs.
    assert len(pairs) > 3


def test_logs_of_a_topic_whose_state_is_damaged_keep_their_records(
    cluster: ZooKeeperCluster,
) -> None:
    assert cluster.produce("t", b"precious") == 0
    path = "/brokers/topics/t/partitions/0/state"
    sound = cluster.zookeeper.data(path)
    assert sound is not None
    cluster.zookeeper.write(SetData(path=path, data=b"{"))
    for _ in range(2):
        node_id = cluster.controller
        cluster.kill(node_id)
        cluster.advance(2 * SESSION_TIMEOUT_MS)
        cluster.start(node_id)
        cluster.advance(2 * SESSION_TIMEOUT_MS)
    cluster.zookeeper.write(SetData(path=path, data=sound))
    node_id = cluster.controller
    cluster.stop(node_id)
    cluster.start(node_id)
    cluster.advance(30_000)
    assert cluster.values("t") == [b"precious"]


def test_partition_that_cannot_be_written_does_not_delay_elections_of_others() -> None:
    cluster = ZooKeeperCluster(3)
    for name in "abc":
        cluster.create(name, partitions=3)
    number = next(n for n in range(3) if cluster.leader("a", n) != cluster.controller)
    dead = cluster.leader("a", number)
    path = f"/brokers/topics/a/partitions/{number}/state"
    cluster.zookeeper.write(SetData(path=path, data=b"{"))
    cluster.kill(dead)
    cluster.advance(3 * SESSION_TIMEOUT_MS)
    for name in "bc":
        for one in range(3):
            assert cluster.leader(name, one) != dead
            assert cluster.produce(name, b"x", number=one) == 0


def test_broker_that_was_away_while_a_topic_was_deleted_does_not_show_it(
    cluster: ZooKeeperCluster,
) -> None:
    other = next(one for one in (1, 2, 3) if one != cluster.controller)
    cluster.client(other).cut()
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    cluster.ask_controller(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
    cluster.client(other).restore()
    cluster.advance(10_000)
    assert cluster.brokers[other].broker.cache.topic("t") is None
    assert not cluster.brokers[other].broker.replica_manager.topics.partitions


def test_preferred_leader_leads_again_on_request() -> None:
    cluster = ZooKeeperCluster(3, auto_leader_rebalance_enable=False)
    cluster.create("t")
    preferred = cluster.leader("t")
    topics = [TopicPartitions(topic="t", partitions=[0])]
    request = ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=10_000)

    def elect() -> int:
        [topic] = cluster.ask_controller(request, 2).replica_election_results
        code: int = topic.partition_result[0].error_code
        return code

    assert elect() == ErrorCode.ELECTION_NOT_NEEDED
    cluster.stop(preferred)
    cluster.until(lambda: cluster.has_controller)
    assert cluster.leader("t") != preferred
    assert elect() == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.start(preferred)
    cluster.advance(10_000)
    assert elect() == 0
    assert cluster.leader("t") == preferred
    cluster.advance(100)
    assert cluster.produce("t", b"a") == 0
