"""Role changes: which states a broker applies, what a change waits for, and stopped replicas."""

from __future__ import annotations

import errno
from itertools import pairwise
from typing import Any

import pytest

from plog.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from plog.types import ZERO_UUID, TopicPartition
from plogd.fair_queue import SLICE, FairQueue
from plogd.metadata.cache import PartitionState
from plogd.ports import Later, spawn
from plogd.replica.cluster.role_changes import EPOCH_DURING_DELETE, NewState, StoppedReplica
from plogd.replica.partition import Partition
from tests.helpers.sim.sim_broker import LOG_DIR, produce_request, records_of
from tests.helpers.sim.sim_cluster import SimCluster
from tests.helpers.sim.sim_ports import outcome

KEY = TopicPartition("t", 0)
TOPIC_ID = b"id of t".ljust(16, b"-")


class Site:
    """Broker 1, whose roles the test changes; no other broker answers it."""

    def __init__(self) -> None:
        self.cluster = SimCluster(1)
        self.cluster.topic_ids["t"] = TOPIC_ID
        self.broker = self.cluster.brokers[1]
        self.replicas = self.cluster.replicas[1]
        self.roles = self.replicas.roles

    def begin(self, *states: NewState) -> Later[list[KafkaError | None]]:
        return spawn(self.roles.apply(states))

    def apply(self, *states: NewState) -> list[KafkaError | None]:
        applied = self.begin(*states)
        self.cluster.settle()
        return outcome(applied)

    def result(self, **fields: Any) -> type[KafkaError] | None:
        """Return the type of the error of one state."""
        [error] = self.apply(new(**fields))
        return None if error is None else type(error)

    def stop(self, *stopped: StoppedReplica) -> list[KafkaError | None]:
        errors = spawn(self.roles.stop(stopped))
        self.cluster.settle()
        return outcome(errors)

    @property
    def partition(self) -> Partition:
        return self.cluster.partition(1)

    @property
    def role(self) -> tuple[int, int, tuple[int, ...]]:
        return self.partition.leader, self.partition.leader_epoch, self.partition.isr

    def append(self, value: bytes = b"a") -> Any:
        with self.broker.ports.turn:
            return self.partition.append_records_to_leader(
                memoryview(bytearray(records_of((value,)))),
                required_acks=1,
                now_ms=self.broker.ports.clock.now_ms(),
            )

    def slow_down(self) -> None:
        """Append so slowly that jobs write from now on."""
        self.broker.files.append_ms = lambda path: 25.0
        self.append()
        self.broker.files.append_ms = lambda path: 0.0
        self.cluster.settle()

    @property
    def directories(self) -> list[str]:
        return [
            name for name in self.broker.files.listdir(LOG_DIR) if name.startswith(("t-", "u-"))
        ]


def new(
    number: int = 0,
    *,
    name: str = "t",
    topic_id: bytes = TOPIC_ID,
    is_new: bool = False,
    **fields: Any,
) -> NewState:
    state: dict[str, Any] = {
        "leader": 1,
        "leader_epoch": 0,
        "replicas": (1, 2),
        "isr": (1, 2),
        "partition_epoch": 0,
    }
    return NewState(
        topic_partition=TopicPartition(name, number),
        topic_id=topic_id,
        state=PartitionState(partition=number, **(state | fields)),
        is_new=is_new,
    )


def stopped(number: int = 0, *, epoch: int = 0, deletes: bool = False) -> StoppedReplica:
    return StoppedReplica(
        topic_partition=TopicPartition("t", number), leader_epoch=epoch, deletes=deletes
    )


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def leader(site: Site) -> Site:
    assert site.result(leader_epoch=5, is_new=True) is None
    return site


class TestStates:
    def test_new_replica_gets_a_log_and_its_role(self, site: Site) -> None:
        assert site.apply(
            new(0, is_new=True), new(1, leader=2, is_new=True), new(2, leader=-1, is_new=True)
        ) == [None, None, None]
        partitions = [site.cluster.partition(1, "t", number) for number in range(3)]
        assert [one.leader for one in partitions] == [1, 2, -1]
        assert [one.log.topic_id for one in partitions] == [TOPIC_ID] * 3
        assert site.directories == ["t-0", "t-1", "t-2"]
        assert site.broker.reports == []

    def test_log_has_the_settings_of_the_topic(self, site: Site) -> None:
        site.cluster.configs["t"] = {"retention.ms": "77"}
        site.apply(new())
        assert site.partition.log.config.retention_ms == 77

    def test_new_log_of_an_old_partition_is_reported(self, site: Site) -> None:
        assert site.result(leader=2, leader_epoch=3) is None
        assert any("an empty log for t-0" in line for line in site.broker.reports)

    def test_partition_without_a_replica_here_is_unknown(self, site: Site) -> None:
        assert site.result(replicas=(2, 3), leader=2) is UnknownTopicOrPartition
        assert site.directories == []

    def test_older_leader_epoch_is_stale(self, leader: Site) -> None:
        assert leader.result(leader_epoch=4, leader=2) is StaleControllerEpoch
        assert leader.role == (1, 5, (1, 2))

    def test_older_partition_epoch_is_ignored(self, leader: Site) -> None:
        assert leader.result(leader_epoch=5, partition_epoch=2, isr=(1,)) is None
        assert leader.result(leader_epoch=5, partition_epoch=1) is None
        assert leader.role == (1, 5, (1,))

    def test_repeated_state_changes_nothing(self, leader: Site) -> None:
        leader.append()
        epoch_start = leader.partition.epoch_start_offset
        assert leader.result(leader_epoch=5) is None
        assert (leader.role, leader.partition.epoch_start_offset) == ((1, 5, (1, 2)), epoch_start)

    def test_newer_partition_epoch_updates_replicas_and_isr(self, leader: Site) -> None:
        leader.append()
        leader.cluster.settle()
        assert leader.partition.high_watermark == 0
        remote = leader.partition.remote
        assert leader.result(leader_epoch=5, partition_epoch=1, isr=(1,), replicas=(1, 3)) is None
        assert leader.partition.replicas == (1, 3)
        assert leader.partition.remote is remote, "what is known about followers is kept"
        assert leader.partition.high_watermark == 1

    def test_other_topic_id_is_inconsistent(self, leader: Site) -> None:
        assert leader.result(leader_epoch=6, topic_id=b"x" * 16) is InconsistentTopicId
        assert leader.role == (1, 5, (1, 2))

    def test_log_without_a_topic_id_is_not_created(self, site: Site) -> None:
        assert site.result(topic_id=ZERO_UUID) is UnknownTopicId
        assert site.directories == []

    def test_failed_directory_is_a_storage_error(self, leader: Site) -> None:
        leader.partition.log.go_offline()
        assert leader.result(leader_epoch=6) is KafkaStorageError

    def test_log_that_cannot_be_created_is_a_storage_error(self, leader: Site) -> None:
        leader.broker.files.fail_when(lambda operation: operation.name == "mkdir", errno.ENOSPC)
        errors = leader.apply(new(1), new(0, leader_epoch=6))
        assert isinstance(errors[0], KafkaStorageError)
        assert errors[1] is None, "the other partition has a log"
        leader.broker.files.fail_no_more()
        assert leader.apply(new(1)) == [None]

    def test_partition_that_is_offline_at_startup_is_a_storage_error(self, site: Site) -> None:
        site.broker.broker.replica_manager.topics.set_without_log([KEY])
        assert site.result() is KafkaStorageError
        assert site.directories == []

    def test_states_of_one_partition_are_applied_in_order(self, site: Site) -> None:
        states = [new(leader_epoch=epoch, leader=1 + epoch % 2) for epoch in range(7)]
        errors = site.apply(*states, new(leader_epoch=3))
        assert [error for error in errors[:-1] if error] == []
        assert isinstance(errors[-1], StaleControllerEpoch)
        assert site.role == (1, 6, (1, 2))

    def test_bug_fails_only_one_partition(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_leader = Partition.make_leader

        def broken(partition: Partition, state: PartitionState) -> None:
            if state.partition == 1:
                raise ZeroDivisionError
            make_leader(partition, state)

        monkeypatch.setattr(Partition, "make_leader", broken)
        errors = site.begin(new(0), new(1), new(2))
        site.broker.settle()
        assert [error and type(error) for error in outcome(errors)] == [None, KafkaError, None]
        [(where, _)] = site.broker.bugs
        assert where == "a role change of t-1"
        site.broker.bugs.clear()


class TestEpochFloor:
    """Rule C1."""

    def restarted(self) -> Site:
        """Return a broker whose log contains a record of leader epoch 5."""
        site = Site()
        site.apply(new(leader_epoch=5))
        site.append()
        site.cluster.settle()
        # As after a restart: the partition has no role.
        site.broker.broker.replica_manager.topics.unhost(KEY)
        return site

    def test_broker_does_not_lead_in_an_epoch_of_its_log(self) -> None:
        site = self.restarted()
        assert site.result(leader_epoch=5) is FencedLeaderEpoch
        assert site.partition.leader == -1
        assert site.result(leader_epoch=6) is None
        assert site.role == (1, 6, (1, 2))

    def test_broker_follows_in_an_epoch_of_its_log(self) -> None:
        site = self.restarted()
        assert site.result(leader_epoch=5, leader=2) is None

    def test_broker_does_not_lead_in_an_epoch_of_its_registration(self, site: Site) -> None:
        site.roles.epoch_floors = {(TOPIC_ID, 0): 7}
        assert site.result(leader_epoch=7) is FencedLeaderEpoch
        assert site.result(leader_epoch=8) is None

    def test_epoch_of_the_registration_does_not_apply_to_a_recreated_topic(
        self, site: Site
    ) -> None:
        site.roles.epoch_floors = {(b"old" * 5 + b"-", 0): 7}
        assert site.result(leader_epoch=0) is None

    def test_leader_that_has_resigned_does_not_lead_again_in_its_epoch(self, leader: Site) -> None:
        leader.append()
        leader.cluster.settle()
        resigned = spawn(leader.roles.resign_all())
        leader.cluster.settle()
        outcome(resigned)
        with pytest.raises(NotLeaderOrFollower):
            leader.append()
        assert leader.result(leader_epoch=5) is FencedLeaderEpoch
        assert leader.result(leader_epoch=6) is None


class TestWaiting:
    """Rule C5: the old role ends before the new one begins."""

    def slow(self) -> Site:
        site = Site()
        site.apply(new(leader_epoch=5, is_new=True), new(1, is_new=True))
        site.slow_down()
        return site

    @pytest.mark.parametrize("next_leader", [1, 2])
    def test_role_change_waits_for_the_writes_of_the_old_epoch(self, next_leader: int) -> None:
        site = self.slow()
        info = site.append(b"b")
        assert info.writing is not None
        applied = site.begin(
            new(leader_epoch=6, leader=next_leader), new(1, leader_epoch=3, leader=2)
        )
        assert not applied.done
        assert site.partition.leader_epoch == 5
        with pytest.raises(NotLeaderOrFollower):  # Otherwise, the wait might never end.
            site.append(b"c")
        assert site.cluster.partition(1, "t", 1).leader == 2, "other partitions do not wait"
        site.cluster.settle()
        assert outcome(applied) == [None, None]
        assert site.partition.log.log_end_offset == 2
        assert site.role[:2] == (next_leader, 6)
        if next_leader == 1:
            assert site.partition.epoch_start_offset == 2

    def test_end_of_the_registration_fails_role_changes_in_progress(self) -> None:
        site = self.slow()
        site.append(b"b")
        applied = site.begin(new(leader_epoch=6), new(leader_epoch=7))
        resigned = spawn(site.roles.resign_all())
        site.cluster.settle()
        outcome(resigned)
        assert [type(error) for error in outcome(applied)] == [StaleBrokerEpoch] * 2
        assert site.partition.leader == -1
        assert site.result(leader_epoch=8) is None

    def test_failed_write_fails_the_role_change(self) -> None:
        site = self.slow()
        site.append(b"b")
        applied = site.begin(new(leader_epoch=6))
        site.broker.files.fail_when(lambda operation: operation.name == "append", errno.EIO)
        site.cluster.settle()
        [error] = outcome(applied)
        assert isinstance(error, KafkaStorageError)

    def test_leader_with_an_unfinished_truncation_is_a_storage_error(self, site: Site) -> None:
        site.apply(new(leader=2))
        site.partition.log.is_truncating = True
        assert site.result(leader_epoch=1) is KafkaStorageError
        assert site.result(leader_epoch=2, leader=2) is None


class TestCallbacks:
    def test_coordinators_learn_which_partitions_are_led(self, site: Site) -> None:
        events: list[tuple[str, int]] = []
        site.roles.on_elected = lambda one: events.append(("elected", one.leader_epoch))
        site.roles.on_resigned = lambda one: events.append(("resigned", one.leader_epoch))
        site.apply(new(leader_epoch=1))
        site.apply(new(leader_epoch=1, partition_epoch=1))
        assert events == [("elected", 1)]
        # A new epoch of the same leader, too: the state of a coordinator belongs to one epoch.
        site.apply(new(leader_epoch=2))
        assert events[1:] == [("resigned", 1), ("elected", 2)]
        site.apply(new(leader_epoch=3, leader=2))
        assert events[3:] == [("resigned", 2)]
        site.apply(new(leader_epoch=4))
        site.stop(stopped(epoch=4, deletes=True))
        assert events[4:] == [("elected", 4), ("resigned", 4)]


class TestStopping:
    @pytest.mark.parametrize("by_registration", [True, False])
    def test_stopped_follower_follows_again_after_the_same_state(
        self, site: Site, by_registration: bool
    ) -> None:
        site.apply(new(leader=2))
        if by_registration:
            ended = spawn(site.roles.resign_all())
            site.cluster.settle()
            outcome(ended)
        else:
            site.stop(stopped())
        assert site.partition.leader == -1
        site.apply(new(leader=2))
        assert site.partition.leader == 2
        assert [len(one) for one in site.replicas.fetchers.fetchers.values()] == [1]

    def test_stopped_leader_leads_until_another_is_elected(self, leader: Site) -> None:
        leader.stop(stopped(epoch=5))
        assert leader.role == (1, 5, (1, 2))

    def test_stopped_replica_keeps_its_log(self, site: Site) -> None:
        site.apply(new(leader=2))
        assert [len(one) for one in site.replicas.fetchers.fetchers.values()] == [1]
        assert site.stop(stopped()) == [None]
        assert [len(one) for one in site.replicas.fetchers.fetchers.values()] == [0]
        assert site.directories == ["t-0"]

    def test_deleted_replica_is_renamed_and_removed_later(self, leader: Site) -> None:
        asked = leader.broker.begin(produce_request("t", b"a"), 9)
        assert leader.stop(stopped(epoch=5, deletes=True)) == [None]
        [name] = leader.directories
        assert name.endswith("-delete")
        assert SimCluster.error_of(asked) == UnknownTopicOrPartition.code
        leader.cluster.advance(60_000)
        assert leader.directories == []

    @pytest.mark.parametrize("epoch", [-1, EPOCH_DURING_DELETE, 5, 6])
    def test_replica_is_stopped_in_its_epoch_or_a_later_one(self, leader: Site, epoch: int) -> None:
        assert leader.stop(stopped(epoch=epoch, deletes=True)) == [None]

    def test_older_epoch_is_fenced(self, leader: Site) -> None:
        [error] = leader.stop(stopped(epoch=4, deletes=True))
        assert isinstance(error, FencedLeaderEpoch)
        assert leader.directories == ["t-0"]

    def test_unknown_and_repeated_replicas_are_stopped(self, leader: Site) -> None:
        twice = stopped(epoch=5, deletes=True)
        assert leader.stop(twice, twice, stopped(9, deletes=True)) == [None] * 3
        assert leader.stop(twice) == [None]

    def test_log_without_a_role_is_deleted(self, leader: Site) -> None:
        leader.broker.broker.replica_manager.topics.unhost(KEY)
        assert leader.stop(stopped(epoch=0, deletes=True)) == [None]
        assert leader.broker.broker.log_manager.get(KEY) is None

    def test_replica_in_a_failed_directory_is_a_storage_error(self, leader: Site) -> None:
        leader.partition.log.go_offline()
        [error] = leader.stop(stopped(epoch=5, deletes=True))
        assert isinstance(error, KafkaStorageError)
        assert leader.partition.log.log_end_offset == 0

    def test_strays_get_stray_names_and_are_kept(self, leader: Site) -> None:
        leader.apply(new(1), new(2))
        leader.append(b"kept")
        leader.cluster.settle()
        removed = spawn(leader.roles.remove_strays({TopicPartition("t", 1)}))
        leader.cluster.advance(120_000)
        outcome(removed)
        names = leader.directories
        assert [name[:4] for name in names] == ["t-0.", "t-1", "t-2."]
        assert all(name.endswith("-stray") for name in names if name != "t-1")
        data = leader.broker.files.read_file(f"{LOG_DIR}/{names[0]}/00000000000000000000.log")
        assert b"kept" in data
        [line] = [line for line in leader.broker.reports if "-stray" in line]
        assert "2 partitions" in line
        assert "__cluster_metadata-0" in leader.broker.files.listdir(LOG_DIR)


def test_many_partitions_are_applied_in_slices(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 2_000
    states = [new(number, leader=1 + number % 2, is_new=True) for number in range(count)]
    calls: list[int] = []
    hosted = site.broker.broker.replica_manager.topics.partitions
    turn = FairQueue.turn

    def counted(queue: FairQueue) -> Later[None]:
        calls.append(len(hosted))
        return turn(queue)

    monkeypatch.setattr(FairQueue, "turn", counted)
    assert site.apply(*states) == [None] * count
    assert len(hosted) == count
    steps = [after - before for before, after in pairwise([*calls, count])]
    assert 0 < max(steps) <= SLICE
    assert [len(one) for one in site.replicas.fetchers.fetchers.values()] == [count // 2]
