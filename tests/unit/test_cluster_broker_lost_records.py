"""Brokers return with an empty or damaged disk: the others keep what was acknowledged (C2)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from plogd.log import file_names
from tests.helpers.sim.sim_broker import LOG_DIR, fetch_request
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperCluster

VALUES = [b"%d" % number for number in range(10)]


@pytest.fixture
def cluster() -> ZooKeeperCluster:
    """Three brokers with a topic of three replicas, which has records on all of them."""
    cluster = ZooKeeperCluster(3)
    cluster.create("t")
    for value in VALUES:
        assert cluster.produce("t", value) == 0
    cluster.advance(10_000)
    write_checkpoints(cluster)
    return cluster


def write_checkpoints(cluster: ZooKeeperCluster) -> None:
    """Write the checkpoints of all brokers, as they do every few seconds."""
    for broker in cluster.brokers.values():
        written = broker.broker.log_manager.write_high_watermarks()
        cluster.until(lambda written=written: written.done)  # type: ignore[misc]


def others(cluster: ZooKeeperCluster, one: int) -> list[int]:
    """Return the other live brokers."""
    return [other for other in sorted(cluster.brokers) if other != one]


def assert_complete(cluster: ZooKeeperCluster, *values: bytes) -> None:
    """Check that all replicas are in sync, with all records and without a mark."""
    cluster.until(lambda: cluster.has_controller and len(cluster.state("t").isr) == 3)
    cluster.advance(1_000)
    expected = [*VALUES, *values]
    assert cluster.values("t") == expected
    for one in (1, 2, 3):
        assert cluster.replica(one, "t").log.log_end_offset == len(expected)
        assert records(cluster, one) == records(cluster, 1)
        assert marks(cluster.files[one]) == []


def records(cluster: ZooKeeperCluster, one: int) -> bytes:
    """Return all bytes of a replica."""
    log = cluster.replica(one, "t").log
    region = log.read(0, 1 << 20, end_offset=log.log_end_offset).region
    assert region is not None
    data = region.read()
    region.close()
    return data


def marks(files: SimFiles) -> list[str]:
    """Return the marks of lost records on a disk."""
    return [
        path
        for name in ("t-0", "")
        for mark in (file_names.LOST_RECORDS, file_names.NEW_LOG_DIR)
        if files.exists(path := f"{LOG_DIR}/{name}/{mark}")
    ]


def kill_all(cluster: ZooKeeperCluster) -> None:
    """Kill all brokers, and let their sessions expire before any of them returns."""
    for one in (1, 2, 3):
        session_id = cluster.client(one).session_id
        cluster.kill(one)
        cluster.zookeeper.expire(session_id)


def empty() -> SimFiles:
    """Return a new disk."""
    return SimFiles(["/"])


# -- an empty disk ----------------------------------------------------------------------------


def test_leader_that_returns_with_an_empty_disk_follows(cluster: ZooKeeperCluster) -> None:
    old = cluster.leader("t")
    cluster.kill(old)
    # The broker waits until its former session has expired.
    cluster.start(old, empty())
    cluster.until(lambda: cluster.has_controller and cluster.leader("t") not in (old, -1))
    cluster.advance(100)
    assert cluster.produce("t", b"new") == 0
    assert_complete(cluster, b"new")


def test_empty_disk_is_noticed_if_the_controller_has_not_seen_the_restart(
    cluster: ZooKeeperCluster,
) -> None:
    """The leader is also the controller; the next one finds it registered and in sync."""
    for one in (1, 2, 3):
        cluster.client(one).hold()
    old = cluster.leader("t")
    session_id = cluster.client(old).session_id
    cluster.kill(old)
    cluster.zookeeper.expire(session_id)
    cluster.start(old, empty())
    for one in others(cluster, old):
        cluster.client(one).catch_up()
    cluster.until(lambda: cluster.has_controller and cluster.leader("t") not in (old, -1))
    cluster.advance(100)
    assert cluster.produce("t", b"new") == 0
    assert_complete(cluster, b"new")


def test_all_brokers_restart_and_one_has_an_empty_disk(cluster: ZooKeeperCluster) -> None:
    wiped = cluster.leader("t")
    kill_all(cluster)
    # It is the first that returns, and the only live member of the ISR for a while.
    cluster.start(wiped, empty())
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert cluster.leader("t") == -1
    assert marks(cluster.files[wiped]) == [f"{LOG_DIR}/t-0/{file_names.LOST_RECORDS}"]
    # A consumer that still takes it for the leader must not reset its offset.
    response = cluster.ask(wiped, fetch_request("t", len(VALUES)), 11)
    [partition] = response.responses[0].partitions
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for one in (1, 2, 3):
        if one != wiped:
            cluster.start(one)
    assert_complete(cluster)
    assert cluster.produce("t", b"new") == 0
    assert_complete(cluster, b"new")


def test_log_of_a_topic_that_is_being_deleted_is_not_lost(cluster: ZooKeeperCluster) -> None:
    controller = cluster.controller
    restarted, other = others(cluster, controller)
    # The deletion waits for this broker.
    cluster.cut(controller, other)
    deleting = cluster.brokers[controller].begin(
        DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5
    )
    cluster.until(lambda: not cluster.files[restarted].exists(f"{LOG_DIR}/t-0"))
    cluster.kill(restarted)
    cluster.start(restarted)
    cluster.advance(1_000)
    assert not deleting.is_done
    reports = cluster.brokers[restarted].reports
    assert not [text for text in reports if "cannot find" in text or "lost" in text]
    assert marks(cluster.files[restarted]) == []
    cluster.heal(controller, other)
    cluster.until(lambda: deleting.is_done)


def test_mark_survives_another_restart_of_the_broker(cluster: ZooKeeperCluster) -> None:
    wiped = cluster.leader("t")
    kill_all(cluster)
    cluster.start(wiped, empty())
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    for number in range(2):
        cluster.kill(wiped)
        disk = cluster.files[wiped]
        cluster.start(wiped, disk.crash(random.Random(number)) if number else disk)
        cluster.advance(2 * SESSION_TIMEOUT_MS)
        assert cluster.leader("t") == -1
    for one in (1, 2, 3):
        if one != wiped:
            cluster.start(one)
    assert_complete(cluster)


def test_last_replica_in_sync_with_an_empty_disk_needs_an_operator(
    cluster: ZooKeeperCluster,
) -> None:
    last = cluster.leader("t")
    for one in others(cluster, last):
        cluster.kill(one)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert cluster.state("t").isr == (last,)
    cluster.kill(last)
    cluster.start(last, empty())
    cluster.advance(3 * SESSION_TIMEOUT_MS)
    # Those that are not in sync must not lead either.
    for one in (1, 2, 3):
        if one != last:
            cluster.start(one)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert (cluster.leader("t"), cluster.state("t").isr) == (-1, (last,))
    lines = [text for text in cluster.brokers[last].reports if "have no leader: t-0" in text]
    assert lines
    assert "remove the file lost-records from their directories" in lines[-1]
    # The operator accepts the loss.
    cluster.kill(last)
    cluster.files[last].unlink(f"{LOG_DIR}/t-0/{file_names.LOST_RECORDS}")
    cluster.start(last)
    cluster.until(lambda: cluster.has_controller and cluster.leader("t") == last)
    cluster.advance(100)
    assert cluster.produce("t", b"new") == 0
    assert cluster.values("t") == [b"new"]


def test_new_brokers_create_topics_although_their_directories_are_new() -> None:
    cluster = ZooKeeperCluster(3)
    cluster.create("t")
    assert cluster.produce("t", b"a") == 0
    for files in cluster.files.values():
        assert marks(files) == []


def test_topic_whose_creation_was_interrupted_by_the_death_of_all_brokers_is_usable() -> None:
    """No replica has a log, and none of them can know that there never was one."""
    cluster = ZooKeeperCluster(3)
    cluster.create("t")
    for one in (1, 2, 3):
        cluster.kill(one)
        files = cluster.files[one]
        for name in files.listdir(f"{LOG_DIR}/t-0"):
            files.unlink(f"{LOG_DIR}/t-0/{name}")
        files.rmdir(f"{LOG_DIR}/t-0")
    for one in (1, 2, 3):
        cluster.start(one)
    cluster.until(lambda: cluster.has_controller and cluster.leader("t") != -1)
    cluster.until(lambda: len(cluster.state("t").isr) == 3)
    cluster.advance(1_000)
    assert cluster.produce("t", b"a") == 0


# -- missing and damaged files ----------------------------------------------------------------


def segment(files: SimFiles) -> str:
    """Return the path of the file with the records."""
    return f"{LOG_DIR}/t-0/{file_names.segment_file_name(0, '.log')}"


def lose_tail(files: SimFiles) -> None:
    """Truncate the records."""
    data = files.read_file(segment(files))
    files.overwrite(segment(files), data[: len(data) // 2])


def damage(files: SimFiles) -> None:
    """Flip a bit of a record."""
    data = bytearray(files.read_file(segment(files)))
    data[len(data) // 2] ^= 1
    files.overwrite(segment(files), bytes(data))


def lose_directory(files: SimFiles) -> None:
    """Remove the partition's directory."""
    for name in files.listdir(f"{LOG_DIR}/t-0"):
        files.unlink(f"{LOG_DIR}/t-0/{name}")
    files.rmdir(f"{LOG_DIR}/t-0")


LOSSES = pytest.mark.parametrize("lose", [lose_tail, damage, lose_directory])


@LOSSES
def test_first_broker_to_return_has_lost_records(
    cluster: ZooKeeperCluster, lose: Callable[[SimFiles], None]
) -> None:
    """All brokers were killed; its disk has also lost records that were durable."""
    first = cluster.leader("t")
    kill_all(cluster)
    lose(cluster.files[first])
    for one in (first, *(other for other in (1, 2, 3) if other != first)):
        cluster.start(one)
    assert_complete(cluster)
    assert cluster.produce("t", b"new") == 0
    assert_complete(cluster, b"new")


@LOSSES
def test_follower_that_has_lost_records_copies_them(
    cluster: ZooKeeperCluster, lose: Callable[[SimFiles], None]
) -> None:
    follower = others(cluster, cluster.leader("t"))[0]
    cluster.kill(follower)
    lose(cluster.files[follower])
    cluster.start(follower)
    cluster.until(lambda: cluster.has_controller)
    cluster.advance(100)
    assert cluster.produce("t", b"new") == 0
    assert_complete(cluster, b"new")


def test_last_replica_in_sync_serves_the_records_around_damage(cluster: ZooKeeperCluster) -> None:
    """Rule R14."""
    last = cluster.leader("t")
    for one in others(cluster, last):
        cluster.kill(one)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    cluster.kill(last)
    damage(cluster.files[last])
    cluster.start(last)
    cluster.until(lambda: cluster.has_controller and cluster.leader("t") == last)
    cluster.advance(100)
    assert cluster.produce("t", b"new") == 0
    assert cluster.replica(last, "t").log.log_end_offset == len(VALUES) + 1


def elect_uncleanly(cluster: ZooKeeperCluster) -> int:
    """Request an unclean election; return the error code."""
    topics = [TopicPartitions(topic="t", partitions=[0])]
    request = ElectLeadersRequest(election_type=1, topic_partitions=topics, timeout_ms=10_000)
    [topic] = cluster.ask_controller(request, 2).replica_election_results
    code: int = topic.partition_result[0].error_code
    return code


def test_replica_that_has_lost_its_tail_is_not_elected_uncleanly(
    cluster: ZooKeeperCluster,
) -> None:
    """It would not lead, and the replica in sync would not be in the ISR any more."""
    last = cluster.leader("t")
    for one in others(cluster, last):
        cluster.kill(one)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    cluster.kill(last)
    lost, other = (one for one in (1, 2, 3) if one != last)
    cluster.start(other)
    cluster.until(lambda: cluster.has_controller and cluster.leader("t") == -1)
    cluster.kill(other)
    lose_tail(cluster.files[lost])
    cluster.start(lost)
    cluster.advance(3 * SESSION_TIMEOUT_MS)
    assert elect_uncleanly(cluster) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    for one in (1, 2, 3):
        if one != lost:
            cluster.start(one)
    assert_complete(cluster)


def test_damaged_replica_leads_on_request_if_the_other_replicas_in_sync_are_gone(
    cluster: ZooKeeperCluster,
) -> None:
    damaged = cluster.leader("t")
    kill_all(cluster)
    damage(cluster.files[damaged])
    cluster.start(damaged)
    cluster.advance(3 * SESSION_TIMEOUT_MS)
    assert (cluster.leader("t"), len(cluster.state("t").isr)) == (-1, 3)
    assert elect_uncleanly(cluster) == 0
    cluster.until(lambda: cluster.leader("t") == damaged)
    cluster.advance(100)
    assert cluster.produce("t", b"new") == 0
    assert cluster.replica(damaged, "t").log.log_end_offset == len(VALUES) + 1


def test_last_replica_in_sync_that_has_lost_its_tail_does_not_lead(
    cluster: ZooKeeperCluster,
) -> None:
    last = cluster.leader("t")
    for one in others(cluster, last):
        cluster.kill(one)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    cluster.kill(last)
    lose_tail(cluster.files[last])
    cluster.start(last)
    cluster.advance(3 * SESSION_TIMEOUT_MS)
    assert cluster.leader("t") == -1
    assert cluster.produce("t", b"new", to=last) == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- an older copy of the disk ----------------------------------------------------------------


def copy_of(files: SimFiles) -> SimFiles:
    """Return a disk with the same content."""
    copy = SimFiles(["/"])

    def add(path: str) -> None:
        copy.mkdir(path)
        for name in files.listdir(path):
            inner = f"{path}/{name}"
            if files.is_dir(inner):
                add(inner)
            else:
                file = copy.open_append(inner)
                file.append(files.read_file(inner))
                file.sync()
                file.close()
        copy.sync_dir(path)

    add(LOG_DIR)
    return copy


def test_follower_with_an_older_disk_leaves_the_isr_with_its_first_fetch(
    cluster: ZooKeeperCluster,
) -> None:
    """Nothing on the disk contradicts itself, and no controller has seen the restart."""
    assert cluster.controller != cluster.leader("t")
    leader, controller = cluster.leader("t"), cluster.controller
    [follower] = [one for one in (1, 2, 3) if one not in (leader, controller)]
    older = copy_of(cluster.files[follower])
    assert cluster.produce("t", b"newer") == 0
    for one in (follower, controller):
        session_id = cluster.client(one).session_id
        cluster.kill(one)
        if one == follower:
            cluster.client(leader).hold()
            cluster.zookeeper.expire(session_id)
    cluster.start(follower, older)
    cluster.client(leader).catch_up()
    began_ms = cluster.timers.clock.monotonic_ms()
    cluster.until(lambda: cluster.has_controller and follower not in cluster.state("t").isr)
    # Long before it would have been removed because it lags.
    assert cluster.timers.clock.monotonic_ms() - began_ms < 2 * SESSION_TIMEOUT_MS
    cluster.start(controller)
    assert_complete(cluster, b"newer")


def test_topic_that_was_being_created_when_all_new_brokers_died_gets_a_leader() -> None:
    # The first requests of the controller have not arrived when the brokers are killed.
    cluster = ZooKeeperCluster(3, delay_ms=3_000)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    cluster.brokers[cluster.controller].begin(CreateTopicsRequest(topics=[topic]), 7)
    cluster.until(lambda: cluster.zookeeper.stat("/brokers/topics/t/partitions/0/state"))
    kill_all(cluster)
    assert not any(files.exists(f"{LOG_DIR}/t-0") for files in cluster.files.values())
    for one in (1, 2, 3):
        cluster.start(one)
    cluster.advance(30_000)
    cluster.until(lambda: cluster.leader("t") != -1 and len(cluster.state("t").isr) == 3)
    assert cluster.produce("t", b"new") == 0
