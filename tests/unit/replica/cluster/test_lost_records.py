"""What a replica that has lost records may do (rule C2)."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plog.errors import KafkaError, KafkaStorageError, ReplicaNotAvailable, StaleBrokerEpoch
from plog.types import TopicPartition, Uuid
from plogd.log import file_names
from plogd.log.log import Log
from plogd.log.log_loss import LogLoss, write_loss
from plogd.metadata.cache import NO_LEADER, PartitionState
from plogd.ports import spawn
from plogd.replica.cluster.role_changes import NewState
from plogd.replica.partition import Partition
from tests.helpers.sim.sim_broker import LOG_DIR, records_of
from tests.helpers.sim.sim_cluster import SimCluster
from tests.helpers.sim.sim_ports import outcome

KEY = TopicPartition("t", 0)
TOPIC_ID = b"id of t".ljust(16, b"-")
MARK = f"{LOG_DIR}/t-0/{file_names.LOST_RECORDS}"


def state(**fields: Any) -> PartitionState:
    """Return a state in which broker 1 follows broker 2, and is in sync."""
    values: dict[str, Any] = {
        "partition": 0,
        "leader": 2,
        "leader_epoch": 1,
        "replicas": (1, 2),
        "isr": (1, 2),
        "partition_epoch": 1,
    }
    return PartitionState(**(values | fields))


class Site:
    """Broker 1 with three records; no other broker answers it."""

    def __init__(self) -> None:
        self.cluster = SimCluster(1)
        self.cluster.topic_ids["t"] = TOPIC_ID
        self.broker = self.cluster.brokers[1]
        self.roles = self.cluster.replicas[1].roles
        self.apply(state(leader=1, leader_epoch=0, isr=(1,), partition_epoch=0), is_new=True)
        with self.broker.ports.turn:
            for _ in range(3):
                self.partition.append_records_to_leader(
                    memoryview(bytearray(records_of((b"a",)))),
                    required_acks=1,
                    now_ms=self.broker.ports.clock.now_ms(),
                )
        self.cluster.settle()

    def apply(self, new: PartitionState, *, is_new: bool = False) -> KafkaError | None:
        """Apply a state; return its error."""
        applied = spawn(
            self.roles.apply(
                [NewState(topic_partition=KEY, topic_id=TOPIC_ID, state=new, is_new=is_new)]
            )
        )
        self.cluster.settle()
        [error] = outcome(applied)
        return error

    def lose(self, first_offset: int, *, lacks_end: bool) -> None:
        """Let the log lack records, with its mark."""
        loss = LogLoss(first_offset=first_offset, lacks_end=lacks_end)
        write_loss(self.broker.files, self.log.directory, loss)
        self.losses.opened(KEY, loss)

    def run_jobs(self, count: int) -> None:
        """Run up to `count` jobs, and no timers."""
        jobs = self.broker.ports.jobs
        for _ in range(count):
            if jobs.waiting:
                jobs.run_one()

    @property
    def losses(self) -> Any:
        """The losses of the broker's logs."""
        return self.broker.broker.log_manager.losses

    @property
    def partition(self) -> Partition:
        """The replica."""
        return self.cluster.partition(1)

    @property
    def log(self) -> Log:
        """Its log."""
        return self.partition.log

    @property
    def follows(self) -> bool:
        """Whether the replica fetches from a leader."""
        return any(len(one) for one in self.cluster.replicas[1].fetchers.fetchers.values())


@pytest.fixture
def site() -> Site:
    return Site()


def test_replica_that_remains_alone_does_not_assign_lost_offsets_again(site: Site) -> None:
    # A reassignment that added broker 2 has been cancelled.
    site.lose(1, lacks_end=True)
    error = site.apply(state(leader=1, replicas=(1,), isr=(1,)))
    assert isinstance(error, KafkaStorageError)
    assert site.partition.leader == NO_LEADER


@pytest.mark.parametrize("lacks_end", [True, False])
@pytest.mark.parametrize("leader", [1, 2, NO_LEADER])
def test_replica_does_nothing_while_it_is_in_the_isr(
    site: Site, leader: int, lacks_end: bool
) -> None:
    site.lose(1, lacks_end=lacks_end)
    error = site.apply(state(leader=leader))
    assert isinstance(error, KafkaStorageError if lacks_end else ReplicaNotAvailable)
    assert "t-0: this replica has lost records, from offset 1 on" in error.message
    assert (site.partition.leader, site.partition.leader_epoch) == (NO_LEADER, 1)
    assert not site.follows
    # Nothing is removed while this replica may still be needed.
    assert site.log.log_end_offset == 3
    assert site.broker.files.exists(MARK)


def test_replica_that_has_left_the_isr_truncates_its_log_and_follows(site: Site) -> None:
    site.lose(1, lacks_end=False)
    assert site.apply(state()) is not None
    assert site.apply(state(isr=(2,), partition_epoch=2)) is None
    assert (site.partition.leader, site.log.log_end_offset, site.follows) == (2, 1, True)
    assert not site.broker.files.exists(MARK)
    assert site.losses.get(KEY) is None
    assert "removing the records of t-0 from offset 1 on" in "".join(site.broker.reports)
    # From now on, it is a replica like others.
    assert site.apply(state(isr=(2, 1), partition_epoch=3)) is None
    assert site.apply(state(leader=1, isr=(2, 1), leader_epoch=2, partition_epoch=4)) is None
    assert site.partition.leader == 1


@pytest.mark.parametrize("jobs", range(4))
def test_mark_stays_if_the_registration_ends_before_the_log_is_truncated(
    site: Site, jobs: int
) -> None:
    """The state may be obsolete: another one follows the next registration."""
    site.lose(1, lacks_end=True)
    new = NewState(topic_partition=KEY, topic_id=TOPIC_ID, state=state(isr=(2,)))
    applied = spawn(site.roles.apply([new]))
    site.run_jobs(jobs)
    resigned = spawn(site.roles.resign_all())
    site.cluster.settle()
    outcome(resigned)
    [error] = outcome(applied)
    assert isinstance(error, StaleBrokerEpoch)
    assert site.broker.files.exists(MARK)
    assert site.losses.get(KEY) is not None
    # The next registration's state decides.
    assert isinstance(site.apply(state(leader=1, leader_epoch=2, isr=(1,))), KafkaStorageError)
    assert site.apply(state(leader_epoch=3, isr=(2,))) is None
    assert (site.log.log_end_offset, site.broker.files.exists(MARK)) == (1, False)


def test_replica_without_a_leader_keeps_its_mark(site: Site) -> None:
    site.lose(1, lacks_end=False)
    assert site.apply(state(leader=NO_LEADER, isr=(2,))) is None
    assert (site.log.log_end_offset, site.broker.files.exists(MARK)) == (3, True)


def test_last_member_of_the_isr_leads_around_damage(site: Site) -> None:
    site.lose(1, lacks_end=False)
    assert site.apply(state(leader=1, isr=(1,))) is None
    assert site.partition.leader == 1
    assert site.broker.files.exists(MARK)


def test_last_member_of_the_isr_does_not_lead_without_the_end_of_its_log(site: Site) -> None:
    site.lose(3, lacks_end=True)
    assert isinstance(site.apply(state(leader=1, isr=(1,))), KafkaStorageError)
    assert site.partition.leader == NO_LEADER
    [line] = [text for text in site.broker.reports if "have no leader" in text]
    assert line.startswith("1 partitions have no leader: t-0; this broker has lost the end")


def test_leader_whose_replica_is_found_to_be_damaged_resigns(site: Site) -> None:
    site.lose(1, lacks_end=False)
    assert site.apply(state(leader=1, leader_epoch=1)) is not None
    assert isinstance(site.partition.problem(), KafkaError)
    [line] = [text for text in site.broker.reports if "that it should lead" in text]
    assert "other in-sync replicas lead them" in line


def test_mark_stays_if_the_log_cannot_be_truncated(site: Site) -> None:
    site.lose(1, lacks_end=False)
    site.broker.files.fail_when(
        lambda operation: "checkpoint" in operation.path and operation.name == "append",
        errno.ENOSPC,
    )
    assert isinstance(site.apply(state(isr=(2,))), KafkaStorageError)
    assert site.broker.files.exists(MARK)
    assert not site.follows
    site.broker.files.fail_no_more()
    assert site.apply(state(isr=(2,), partition_epoch=2)) is None
    assert (site.log.log_end_offset, site.broker.files.exists(MARK)) == (1, False)


def test_partition_without_other_replicas_is_led_around_damage(site: Site) -> None:
    site.lose(1, lacks_end=False)
    assert site.apply(state(leader=1, replicas=(1,), isr=(1,))) is None
    assert site.partition.leader == 1


class TestMissingLogs:
    """The broker was in the ISR of partitions that have no log on its disk."""

    @pytest.mark.parametrize("is_new_dir", [True, False])
    def test_expected_log_is_marked(self, site: Site, is_new_dir: bool) -> None:
        self.set_new(site, is_new_dir)
        self.register(site, {(TOPIC_ID, 1)})
        loss = site.roles.lost.loss_of_missing(TOPIC_ID, state(partition=1))
        assert loss == LogLoss(first_offset=0, lacks_end=is_new_dir)

    @pytest.mark.parametrize(
        "changed", [{"isr": (2,)}, {"replicas": (1,), "isr": (1,)}], ids=["not in sync", "alone"]
    )
    def test_other_replicas_are_not_marked(self, site: Site, changed: dict[str, Any]) -> None:
        self.set_new(site, True)
        self.register(site, {(TOPIC_ID, 0)})
        assert site.roles.lost.loss_of_missing(TOPIC_ID, state(**changed)) is None

    def test_partition_that_was_created_after_the_registration_is_not_marked(
        self, site: Site
    ) -> None:
        self.set_new(site, True)
        assert site.roles.lost.loss_of_missing(TOPIC_ID, state()) is None

    def test_directory_is_new_until_all_expected_logs_exist(self, site: Site) -> None:
        self.set_new(site, True)
        mark = f"{LOG_DIR}/{file_names.NEW_LOG_DIR}"
        site.broker.files.open_append(mark).close()
        self.register(site, {(TOPIC_ID, 0), (TOPIC_ID, 1)})
        self.receive_all(site)
        assert site.broker.files.exists(mark)
        self.register(site, {(TOPIC_ID, 0)})
        self.receive_all(site)
        assert not site.broker.files.exists(mark)
        assert site.roles.lost.loss_of_missing(TOPIC_ID, state()) == LogLoss(
            first_offset=0, lacks_end=False
        )

    def test_directory_is_not_new_if_nothing_was_expected_when_the_broker_registered(
        self, site: Site
    ) -> None:
        """All brokers may be killed after that, and before they create the logs of a topic."""
        self.set_new(site, True)
        mark = f"{LOG_DIR}/{file_names.NEW_LOG_DIR}"
        site.broker.files.open_append(mark).close()
        self.register(site, set())
        assert not site.broker.files.exists(mark)
        self.register(site, {(TOPIC_ID, 1)})
        loss = site.roles.lost.loss_of_missing(TOPIC_ID, state(partition=1))
        assert loss == LogLoss(first_offset=0, lacks_end=False)

    @staticmethod
    def register(site: Site, expected: set[tuple[Uuid, int]]) -> None:
        """Let the broker register while it is in the ISR of these partitions."""
        registered = spawn(site.roles.lost.registered(expected))
        site.cluster.settle()
        outcome(registered)

    @staticmethod
    def set_new(site: Site, is_new: bool) -> None:
        """Let the log directory be new, or not."""
        [log_dir] = site.broker.broker.log_manager.dirs
        log_dir.may_lack_logs = is_new

    @staticmethod
    def receive_all(site: Site) -> None:
        """Let the controller have sent all partitions."""
        received = spawn(site.roles.lost.all_received())
        site.cluster.settle()
        outcome(received)
