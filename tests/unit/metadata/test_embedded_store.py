"""The store over its own log: compare-and-set, durability, replay."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plog.errors import KafkaStorageError
from plog.types import uuid_to_text
from plogd.config import BrokerConfig
from plogd.fair_queue import FairQueue
from plogd.log.batch_validator import AppendOrigin
from plogd.log.log import Log
from plogd.log.log_manager import LogManager
from plogd.metadata.embedded_store import METADATA_PARTITION, METADATA_TOPIC_ID, EmbeddedStore
from plogd.metadata.store import (
    ABSENT,
    BrokerRegistration,
    Change,
    Conflict,
    Key,
    PartitionValue,
    ProducerIdsValue,
    TopicValue,
    Written,
)
from plogd.ports import Later
from plogd.topic_config import TopicConfig
from tests.helpers.injection import Faults
from tests.helpers.sim.sim_broker import records_of
from tests.helpers.sim.sim_files import SimCrash, SimFiles
from tests.helpers.sim.sim_ports import SimPorts, outcome, settled
from tests.helpers.sim.sim_time import START_MS

PRODUCERS: Key = ("producer_ids",)


class Disk:
    """A file system that survives several starts."""

    def __init__(self) -> None:
        self.ports = SimPorts()

    @property
    def files(self) -> SimFiles:
        return self.ports.files

    def open(self, files: SimFiles | None = None, *, faults: Faults | None = None) -> EmbeddedStore:
        """Start over the existing files; a SimFiles from a crash replaces the disk."""
        if files is not None:
            self.ports = SimPorts(files=files)
        ports = self.ports.bundle()
        manager = LogManager(
            BrokerConfig(),
            ["/d"],
            faults.ports(ports) if faults else ports,
            fair_queue=FairQueue(ports.timers),
        )
        settled(self.ports, manager.open_directories())
        config = TopicConfig(cleanup_policy=(), flush_messages=1)
        loading = manager.load_metadata_log(METADATA_PARTITION, METADATA_TOPIC_ID, config)
        log = settled(self.ports, loading)
        manager.on_offline = lambda log_dir, logs: store.storage_failed()
        store = self.store(log)
        self.load(store)
        return store

    def store(self, log: Log) -> EmbeddedStore:
        """Return a store over `log` that is not open yet."""
        ports = self.ports
        queue = FairQueue(ports.timers)
        return EmbeddedStore(log, clock=ports.clock, turn=ports.turn, fair_queue=queue)

    def load(self, store: EmbeddedStore) -> None:
        """Open `store`."""
        store.open(self.ports.bundle().files)

    def settle(self, later: Later[Any]) -> Any:
        return settled(self.ports, later)


def producer_ids(next_id: int, expected: int) -> Change:
    value = ProducerIdsValue(broker_id=1, broker_epoch=0, next_producer_id=next_id)
    return Change(key=PRODUCERS, value=value, expected=expected)


def topic_changes(name: str, topic_id: bytes, partitions: int = 1) -> list[Change]:
    topic = TopicValue(topic_id=topic_id, assignments={n: (1,) for n in range(partitions)})
    state = PartitionValue(leader=1, leader_epoch=0, isr=(1,), partition_epoch=0)
    return [
        Change(key=("topic", name), value=topic, expected=ABSENT),
        *(
            Change(key=("partition", name, n), value=state, expected=ABSENT)
            for n in range(partitions)
        ),
    ]


def test_metadata_log_has_kafkas_topic_id() -> None:
    assert uuid_to_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"


class TestWriting:
    """Compare-and-set, one change or several."""

    def test_change_is_made_when_the_version_matches(self) -> None:
        disk = Disk()
        store = disk.open()
        [first] = disk.settle(store.write([producer_ids(1000, ABSENT)]))
        assert isinstance(first, Written)
        [second] = disk.settle(store.write([producer_ids(2000, first.version)]))
        assert isinstance(second, Written)
        assert second.version > first.version
        assert store.load(PRODUCERS)[PRODUCERS][0].next_producer_id == 2000

    def test_stale_version_is_a_conflict_with_the_current_value(self) -> None:
        disk = Disk()
        store = disk.open()
        [written] = disk.settle(store.write([producer_ids(1000, ABSENT)]))
        [conflict] = disk.settle(store.write([producer_ids(5000, ABSENT)]))
        assert isinstance(conflict, Conflict)
        assert (conflict.value.next_producer_id, conflict.version) == (1000, written.version)
        assert store.load(PRODUCERS)[PRODUCERS][0].next_producer_id == 1000

    def test_second_of_two_queued_writes_with_the_same_version_conflicts(self) -> None:
        disk = Disk()
        store = disk.open()
        writes = [store.write([producer_ids(n, ABSENT)]) for n in (1000, 2000)]
        disk.ports.settle()
        assert [type(outcome(write)[0]) for write in writes] == [Written, Conflict]

    def test_changes_of_a_plain_write_are_independent(self) -> None:
        disk = Disk()
        store = disk.open()
        disk.settle(store.write([producer_ids(1000, ABSENT)]))
        config = Change(key=("config", "topic", "t"), value={"a": "b"}, expected=ABSENT)
        outcomes = disk.settle(store.write([producer_ids(2000, ABSENT), config]))
        assert [type(one) for one in outcomes] == [Conflict, Written]

    def test_atomic_write_makes_all_changes_or_none(self) -> None:
        disk = Disk()
        store = disk.open()
        disk.settle(store.write([producer_ids(1000, ABSENT)]))
        config = Change(key=("config", "topic", "t"), value={"a": "b"}, expected=ABSENT)
        outcomes = disk.settle(store.write_atomic([config, producer_ids(2000, ABSENT)]))
        assert [type(one) for one in outcomes] == [Conflict, Conflict]
        assert store.load(("config",)) == {}

    def test_writes_to_different_topics_share_a_sync(self) -> None:
        disk = Disk()
        store = disk.open()
        writes = [store.write_atomic(topic_changes(name, name.encode() * 16)) for name in "abc"]
        syncs: list[str] = []
        disk.files.on_operation = lambda op: syncs.append(op.name) if "sync" in op.name else None
        disk.ports.settle()
        assert all(isinstance(one, Written) for write in writes for one in outcome(write))
        assert len(syncs) == 1

    def test_writes_to_one_topic_are_sequential(self) -> None:
        disk = Disk()
        store = disk.open()
        create = store.write_atomic(topic_changes("a", b"1" * 16))
        delete = store.write([Change(key=("topic", "a"), value=None, expected=1)])
        again = store.write_atomic(topic_changes("a", b"2" * 16))
        disk.ports.settle()
        assert isinstance(outcome(create)[0], Written)
        assert outcome(delete) == [Written(version=ABSENT)]
        assert isinstance(outcome(again)[0], Written)
        assert store.load(("topic",))["topic", "a"][0].topic_id == b"2" * 16

    def test_change_that_changes_nothing_is_written_without_a_record(self) -> None:
        disk = Disk()
        store = disk.open()
        gone = Change(key=("topic", "nobody"), value=None, expected=ABSENT)
        assert disk.settle(store.write([gone])) == [Written(version=ABSENT)]


class TestDurability:
    """A change is not visible before it is on disk."""

    def test_outcome_state_and_watchers_wait_for_the_sync(self) -> None:
        disk = Disk()
        store = disk.open()
        seen: list[tuple[Key, Any]] = []
        store.watch(PRODUCERS, lambda key, value, version: seen.append((key, value)))
        write = store.write([producer_ids(1000, ABSENT)])
        disk.ports.timers.run_due()
        assert (write.done, store.load(PRODUCERS), seen) == (False, {}, [])
        disk.ports.settle()
        assert write.done
        assert [key for key, _ in seen] == [PRODUCERS]

    def test_watcher_is_notified_of_its_prefix_only(self) -> None:
        disk = Disk()
        store = disk.open()
        seen: list[Key] = []
        store.watch(("partition", "a"), lambda key, value, version: seen.append(key))
        disk.settle(store.write_atomic(topic_changes("a", b"a" * 16, 2)))
        disk.settle(store.write_atomic(topic_changes("b", b"b" * 16)))
        assert seen == [("partition", "a", 0), ("partition", "a", 1)]

    def test_completed_write_survives_a_power_loss_at_any_operation(self) -> None:
        for crash_at in range(1, 60):
            disk = Disk()
            store = disk.open()
            disk.files.crash_at(disk.files.operations + crash_at)
            told: list[int] = []
            version = ABSENT
            try:
                for n in range(1, 8):
                    [written] = disk.settle(store.write([producer_ids(n, version)]))
                    version = written.version
                    told.append(n)
            except SimCrash:
                pass  # Expected here; its remains are checked below.
            else:
                break
            survivor = disk.open(disk.files.crash(disk.ports.random))
            value, _ = survivor.load(PRODUCERS).get(PRODUCERS, (None, ABSENT))
            found = 0 if value is None else value.next_producer_id
            assert found in ({told[-1], told[-1] + 1} if told else {0, 1}), crash_at

    def test_failed_disk_fails_pending_and_later_writes(self) -> None:
        disk = Disk()
        store = disk.open()
        disk.files.fail_when(lambda operation: operation.name == "sync", errno.EIO)
        waiting = store.write([producer_ids(1000, ABSENT)])
        disk.ports.settle()
        with pytest.raises(KafkaStorageError):
            outcome(waiting)
        with pytest.raises(KafkaStorageError):
            disk.settle(store.write([producer_ids(1000, ABSENT)]))
        assert store.load(PRODUCERS) == {}

    def test_full_disk_refuses_writes_until_space_returns(self) -> None:
        disk = Disk()
        store = disk.open()
        disk.files.capacity_bytes = 0
        with pytest.raises(KafkaStorageError):
            disk.settle(store.write([producer_ids(1000, ABSENT)]))
        disk.files.capacity_bytes = None
        [written] = disk.settle(store.write([producer_ids(1000, ABSENT)]))
        assert isinstance(written, Written)


class TestBugsOfOthers:
    """A callback of one watcher or writer may raise; the others are not affected."""

    def test_failing_watcher_does_not_affect_the_others(self) -> None:
        disk = Disk()
        store = disk.open()
        changed: list[Key] = []
        store.watch(("producer_ids",), lambda *_: 1 // 0)
        store.watch(("producer_ids",), lambda key, *_: changed.append(key))
        first, second = (store.write([producer_ids(n, ABSENT)]) for n in (1000, 2000))
        with pytest.raises(ZeroDivisionError):
            disk.ports.settle()
        disk.ports.settle()
        assert changed == [PRODUCERS]
        assert [type(one) for later in (first, second) for one in outcome(later)] == [
            Written,
            Conflict,
        ]

    def test_failing_writer_does_not_affect_the_others(self) -> None:
        disk = Disk()
        store = disk.open()
        changes = [topic_changes(name, name.encode() * 16) for name in "abc"]
        laters = [store.write(change) for change in changes]
        laters[0].then(lambda _: 1 // 0, lambda error: None)
        with pytest.raises(ZeroDivisionError):
            disk.ports.settle()
        assert [laters[n].done for n in (1, 2)] == [True, True]
        assert isinstance(disk.settle(store.write([producer_ids(1, ABSENT)]))[0], Written)


class TestStarting:
    """Replay, and the records that a start writes."""

    def registered(self, disk: Disk, store: EmbeddedStore) -> int:
        registration = BrokerRegistration(broker_id=1, incarnation_id=b"i" * 16)
        epoch = disk.settle(store.register_broker(registration))
        assert isinstance(epoch, int)
        return epoch

    def test_state_is_the_same_after_a_replay(self) -> None:
        disk = Disk()
        store = disk.open()
        disk.settle(store.write_atomic(topic_changes("a", b"a" * 16, 3)))
        disk.settle(store.write([producer_ids(1000, ABSENT)]))
        again = disk.open(disk.files.kill())
        for prefix in (("topic",), ("partition",), PRODUCERS):
            assert again.load(prefix) == store.load(prefix)

    def test_every_start_raises_the_leader_epochs_by_one(self) -> None:
        disk = Disk()
        store = disk.open()
        self.registered(disk, store)
        disk.settle(store.write_atomic(topic_changes("a", b"a" * 16)))
        for start in (1, 2):
            store = disk.open(disk.files.kill())
            self.registered(disk, store)
            value, _ = store.load(("partition",))["partition", "a", 0]
            assert value.leader_epoch == start

    def test_broker_epochs_rise(self) -> None:
        disk = Disk()
        store = disk.open()
        first = self.registered(disk, store)
        assert store.load(("broker",))["broker", 1][0].broker_epoch == first
        second = self.registered(disk, disk.open(disk.files.kill()))
        assert second > first

    def test_new_log_begins_with_the_required_metadata_version(self) -> None:
        disk = Disk()
        store = disk.open()
        self.registered(disk, store)
        assert store.load(("feature",)) == {("feature", "metadata.version"): (11, 0)}
        assert list(store.load(("broker",))) == [("broker", 1)]

    @pytest.mark.parametrize(("before", "after"), [(7, 11), (11, 11), (99, 99)])
    def test_level_of_an_older_log_is_raised_and_never_lowered(
        self, monkeypatch: pytest.MonkeyPatch, before: int, after: int
    ) -> None:
        disk = Disk()
        with monkeypatch.context() as patch:
            patch.setattr("plogd.metadata.embedded_store.METADATA_VERSION_LEVEL", before)
            self.registered(disk, disk.open())
        for _ in range(2):
            store = disk.open(disk.files.kill())
            self.registered(disk, store)
            [(level, _)] = store.load(("feature",)).values()
            assert level == after

    def test_logs_own_epoch_rises_with_every_start(self) -> None:
        disk = Disk()
        epochs = []
        store = disk.open()
        for _ in range(3):
            self.registered(disk, store)
            epochs.append(store._log.leader_epochs.latest_epoch)
            store = disk.open(disk.files.kill())
        assert epochs == [0, 1, 2]

    @pytest.mark.parametrize("damage", [slice(70, 75), slice(-5, None)], ids=["inside", "cut"])
    def test_damaged_log_refuses_the_start_and_is_kept(self, damage: slice) -> None:
        disk = Disk()
        store = disk.open()
        disk.settle(store.write([producer_ids(1000, ABSENT)]))
        log = store._log
        path = f"{log.directory}/00000000000000000000.log"
        content = bytearray(disk.files.read_file(path))
        content[damage] = b"#####" if damage.stop else b""
        file = disk.files.open_append(path)
        file.truncate(0)
        file.append(content)
        with pytest.raises(KafkaStorageError, match="__cluster_metadata-0"):
            disk.load(disk.store(log))

    def test_unknown_record_refuses_the_start(self) -> None:
        disk = Disk()
        store = disk.open()
        log = store._log
        batch = memoryview(bytearray(records_of((b"\x01\x7f\x00",))))
        log.append_as_leader(
            batch, leader_epoch=0, now_ms=START_MS, origin=AppendOrigin.RAFT_LEADER
        )
        disk.ports.settle()
        with pytest.raises(KafkaStorageError, match="record at offset 0"):
            disk.load(disk.store(log))

    def test_slow_disk_delays_the_outcome(self) -> None:
        disk = Disk()
        store = disk.open()
        store._log._writes.took(50.0)
        later = store.write([producer_ids(1000, ABSENT)])
        disk.ports.timers.run_due()
        assert not later.done
        assert store.load(PRODUCERS) == {}
        [written] = disk.settle(later)
        assert isinstance(written, Written)
        again = disk.open(disk.files.kill())
        assert again.load(PRODUCERS).keys() == {PRODUCERS}

    def test_write_that_fails_on_a_slow_disk_does_not_block_the_next(self) -> None:
        disk = Disk()
        store = disk.open()
        store._log._writes.took(50.0)
        refused = store.write([producer_ids(1000, ABSENT)])
        disk.ports.timers.run_due()
        waiting = store.write([producer_ids(2000, ABSENT)])
        failed: list[Exception] = []
        refused.then(lambda _: pytest.fail("the disk was full"), failed.append)
        disk.files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)
        disk.ports.jobs.run_all()
        disk.files.fail_no_more()
        [written] = disk.settle(waiting)
        assert isinstance(failed[0], KafkaStorageError)
        assert isinstance(written, Written)
        [(value, _)] = store.load(PRODUCERS).values()
        assert value.next_producer_id == 2000

    def test_only_broker_is_the_controller(self) -> None:
        disk = Disk()
        assert disk.settle(disk.open().campaign()) == 0
