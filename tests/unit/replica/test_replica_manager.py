"""ReplicaManager: limits and errors across partitions, delayed requests and failed directories."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plog.errors import ErrorCode, KafkaError, KafkaStorageError, UnknownTopicOrPartition
from plog.records.batch import iter_batches
from plog.types import TopicPartition
from plog.wire.messages.fetch import FetchPartition
from plogd.ports import Later, spawn
from plogd.replica.delayed_produce import PartitionAppend
from plogd.replica.fetch.delayed_fetch import FetchParams
from plogd.replica.fetch.fetch_context import FetchItem
from plogd.replica.fetch.partition_read import PartitionRead
from plogd.replica.partition import Partition
from plogd.replica.record_deletion import delete_records
from plogd.replica.replica_manager import ReplicaManager
from tests.helpers.sim.sim_broker import SimBroker, create_topic, records_of
from tests.helpers.sim.sim_file import SimFile, open_file
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import outcome


def make(partitions: int = 2, **settings: Any) -> tuple[SimBroker, ReplicaManager]:
    broker = SimBroker(**settings).start()
    create_topic(broker, "t", partitions)
    return broker, broker.broker.replica_manager


def append(
    manager: ReplicaManager, *partitions: int, acks: int = -1, timeout_ms: int = 1000
) -> Later[list[PartitionAppend]] | list[PartitionAppend]:
    entries = [
        (TopicPartition("t", number), memoryview(bytearray(records_of((b"v" * 100,)))))
        for number in partitions
    ]
    return manager.append_records(entries, required_acks=acks, timeout_ms=timeout_ms)


def item(
    partition: int, offset: int = 0, *, topic: str | None = "t", max_bytes: int = 1000
) -> FetchItem:
    request = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    return FetchItem(topic, bytes(16), request)


def params(max_wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20) -> FetchParams:
    return FetchParams(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes)


def sizes(reads: list[PartitionRead]) -> list[int]:
    for read in reads:
        read.close()
    return [read.nbytes for read in reads]


class TestColdFetch:
    """F10: jobs read data that is not in the page cache, including indexes."""

    def _cold(self, partitions: int = 1) -> tuple[SimBroker, ReplicaManager]:
        """Return partitions with many batches, none of them in the page cache."""
        broker, manager = make(partitions, log_index_interval_bytes=100)
        for number in range(partitions):
            for _ in range(30):
                append(manager, number)
        broker.settle()
        broker = broker.restart()
        broker.files.everything_cached = False
        for log in broker.broker.log_manager.logs.values():
            for segment in log.segments:
                segment.release_indexes()
                for file in segment.sync_files():
                    open_file(file)._inode.is_warm = False
                segment.release_indexes()
        return broker, broker.broker.replica_manager

    def test_cold_fetch_reads_in_a_job_and_returns_the_same_data(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker, manager = self._cold()
        read_now: list[str] = []
        pread = SimFile.pread

        def spy(file: SimFile, length: int, position: int) -> bytes:
            read_now.append(file.path)
            return pread(file, length, position)

        monkeypatch.setattr(SimFile, "pread", spy)
        fetched = manager.fetch_records([item(0, 12)], params())
        assert isinstance(fetched, Later)
        assert read_now == []
        broker.settle()
        [read] = outcome(fetched)
        assert read.region is not None
        assert next(iter_batches(read.region.read()))[1].base_offset == 12
        read.close()
        again = manager.fetch_records([item(0, 12)], params())
        assert isinstance(again, list), "it is cached by now"
        sizes(again)

    def test_cold_fetch_reports_a_read_error(self) -> None:
        broker, manager = self._cold()
        fetched = manager.fetch_records([item(0, 12)], params())
        broker.files.fail_when(lambda operation: operation.is_read, errno.EIO)
        broker.settle()
        assert isinstance(fetched, Later)
        [read] = outcome(fetched)
        assert isinstance(read.error, KafkaStorageError)
        assert broker.bugs == []

    def test_cold_fetch_ends_when_pages_are_evicted_repeatedly(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker, manager = self._cold()
        monkeypatch.setattr(SimFile, "pread_nowait", lambda file, length, position: None)
        fetched = manager.fetch_records([item(0, 12)], params())
        broker.settle()
        assert isinstance(fetched, Later)
        assert sizes(outcome(fetched)) == [1000]

    def test_cold_fetch_reads_no_more_than_the_response_may_hold(self) -> None:
        broker, manager = self._cold(3)
        fetched = manager.fetch_records(
            [item(number, 12, max_bytes=400) for number in range(3)], params(max_bytes=600)
        )
        broker.settle()
        assert isinstance(fetched, Later)
        reads = outcome(fetched)
        assert [read.nbytes for read in reads] == [400, 200, 0]
        sizes(reads)
        for number in range(3):
            log = manager.partition("t", number).log
            assert open_file(log.segments.active.records_file)._holders == 1

    def test_cold_fetch_leaves_no_file_open_when_the_client_disconnects(self) -> None:
        broker, manager = self._cold()
        fetched = manager.fetch_records([item(0, 12)], params())
        assert isinstance(fetched, Later)
        fetched.then(lambda reads: pytest.fail("the client has disconnected"), lambda error: None)
        fetched.cancel()
        broker.settle()
        log = manager.partition("t", 0).log
        assert open_file(log.segments.active.records_file)._holders == 1

    def test_cold_fetch_succeeds_when_a_segment_is_deleted_meanwhile(self) -> None:
        broker, manager = self._cold()
        fetched = manager.fetch_records([item(0, 12)], params())
        topic = broker.broker.cache.topic("t")
        assert topic is not None
        stopped = manager.topics.stop_topic(topic)
        broker.settle()
        outcome(stopped)
        assert isinstance(fetched, Later)
        [read] = outcome(fetched)
        assert read.error is not None
        assert broker.bugs == []


class TestAppend:
    """Rules R3 and R7: when a produce request completes."""

    @pytest.mark.parametrize("acks", [1, -1])
    def test_produce_completes_when_all_its_partitions_are_durable(self, acks: int) -> None:
        broker, manager = make()
        appended = append(manager, 0, 1, acks=acks)
        assert isinstance(appended, Later)
        assert not appended.done
        broker.settle()
        assert [one.error for one in outcome(appended)] == [None, None]

    def test_produce_without_acks_completes_immediately(self) -> None:
        _, manager = make()
        appended = append(manager, 0, acks=0)
        assert isinstance(appended, list)
        assert appended[0].info is not None

    def test_produce_completes_immediately_when_flush_is_relaxed(self) -> None:
        _, manager = make(log_flush_interval_messages=1000)
        assert isinstance(append(manager, 0), list)

    def test_partitions_of_a_produce_fail_independently(self) -> None:
        broker, manager = make()
        appended = append(manager, 0, 7)
        broker.settle()
        assert isinstance(appended, Later)
        good, bad = outcome(appended)
        assert good.error is None
        assert isinstance(bad.error, UnknownTopicOrPartition)

    def test_produce_does_not_wait_when_all_partitions_fail(self) -> None:
        _, manager = make()
        assert isinstance(append(manager, 7), list)

    def test_produce_times_out_when_the_disk_is_too_slow(self) -> None:
        broker, manager = make()
        appended = append(manager, 0, timeout_ms=500)
        broker.ports.timers.advance(600)
        assert isinstance(appended, Later)
        [one] = outcome(appended)
        assert one.error is not None
        assert one.error.code == ErrorCode.REQUEST_TIMED_OUT
        broker.settle()
        assert manager.partition("t", 0).high_watermark == 1

    def test_delayed_produce_is_removed_when_the_client_disconnects(self) -> None:
        broker, manager = make()
        appended = append(manager, 0)
        assert isinstance(appended, Later)
        appended.cancel()
        assert manager.waiting_produces == 0
        broker.settle()
        assert manager.partition("t", 0).high_watermark == 1

    def test_duplicate_waits_until_the_original_is_durable(self) -> None:
        broker, manager = make()
        batch = records_of((b"v",), producer_id=5, producer_epoch=0, base_sequence=0)
        answers = [
            manager.append_records(
                [(TopicPartition("t", 0), memoryview(bytearray(batch)))],
                required_acks=-1,
                timeout_ms=1000,
            )
            for _ in range(2)
        ]
        second = answers[1]
        assert isinstance(second, Later)
        assert not second.done
        broker.settle()
        [one] = outcome(second)
        assert one.info is not None
        assert (one.info.first_offset, one.info.duplicate) == (0, True)
        assert manager.partition("t", 0).log.log_end_offset == 1

    def test_acks_all_checks_min_insync_replicas_again_after_the_append(self) -> None:
        broker, manager = make()
        appended = append(manager, 0)
        partition = manager.partition("t", 0)
        partition.isr = ()
        broker.settle()
        assert isinstance(appended, Later)
        [one] = outcome(appended)
        assert one.error is not None
        assert one.error.code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def test_bug_in_one_partition_does_not_fail_the_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker, manager = make()

        def broken(*args: object, **kwargs: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(manager.partition("t", 1).log, "append_as_leader", broken)
        appended = append(manager, 0, 1)
        broker.settle()
        assert isinstance(appended, Later)
        good, bad = outcome(appended)
        assert good.error is None
        assert type(bad.error) is KafkaError
        assert len(broker.bugs) == 1

    def test_records_are_copied_when_they_have_to_wait_for_room(self) -> None:
        broker, manager = make(plog_unsynced_max_bytes=100)
        first = append(manager, 0)
        memory = bytearray(records_of((b"second",)))
        second = manager.append_records(
            [(TopicPartition("t", 0), memoryview(memory))], required_acks=-1, timeout_ms=1000
        )
        assert manager.partition("t", 0).log.log_end_offset == 1
        memory[:] = bytes(len(memory))
        broker.settle()
        assert isinstance(first, Later)
        assert isinstance(second, Later)
        assert outcome(second)[0].error is None
        assert b"second" in broker.fetch("t", 1).records.tobytes()

    def test_appends_keep_their_order_when_two_disks_are_full(self) -> None:
        files = SimFiles(device_by_path={"/a": 2, "/b": 3})
        broker, manager = make(4, files=files, log_dirs=("/a", "/b"), plog_unsynced_max_bytes=100)
        in_a, in_b = (
            next(
                partition.topic_partition.partition
                for partition in manager.partitions
                if partition.log.log_dir == path
            )
            for path in ("/a", "/b")
        )
        append(manager, in_b)
        waiting = [append(manager, in_a)]
        manager.partition("t", in_a).log.request_sync(100)
        waiting.append(append(manager, in_a))
        broker.settle()
        assert [outcome(one)[0].info.first_offset for one in waiting] == [0, 1]


class TestFetch:
    """Byte limits of a fetch, and when it waits."""

    def filled(self, partitions: int = 2) -> tuple[SimBroker, ReplicaManager, int]:
        broker, manager = make(partitions)
        for number in range(partitions):
            for _ in range(3):
                append(manager, number)
        broker.settle()
        return broker, manager, len(records_of((b"v" * 100,)))

    def test_partitions_are_read_in_order_until_max_bytes(self) -> None:
        _, manager, size = self.filled()
        reads = manager.fetch_records([item(0), item(1)], params(max_bytes=4 * size))
        assert isinstance(reads, list)
        assert sizes(reads) == [3 * size, size]

    def test_partition_returns_no_more_than_its_own_limit(self) -> None:
        _, manager, size = self.filled()
        reads = manager.fetch_records([item(0, max_bytes=2 * size), item(1)], params())
        assert isinstance(reads, list)
        assert sizes(reads) == [2 * size, 3 * size]

    def test_first_batch_is_returned_whole_despite_small_limits(self) -> None:
        _, manager, size = self.filled()
        reads = manager.fetch_records([item(0, 3), item(1, max_bytes=1)], params(max_bytes=1))
        assert isinstance(reads, list)
        assert sizes(reads) == [0, size]

    def test_only_the_first_batch_of_a_fetch_may_exceed_the_limits(self) -> None:
        _, manager, size = self.filled()
        reads = manager.fetch_records([item(0, max_bytes=1), item(1, max_bytes=1)], params())
        assert isinstance(reads, list)
        assert sizes(reads)[0] == size
        assert sizes(reads)[1] == 0

    def test_end_of_a_wait_reads_only_what_has_changed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker, manager, size = self.filled(4)
        waiting = manager.fetch_records(
            [item(number, 3) for number in range(4)], params(max_wait_ms=500, min_bytes=2 * size)
        )
        assert isinstance(waiting, Later)
        append(manager, 1, 2)
        read_again: list[int] = []
        read = Partition.read

        def counted(partition: Partition, *args: Any, **how: Any) -> PartitionRead:
            read_again.append(partition.topic_partition.partition)
            return read(partition, *args, **how)

        monkeypatch.setattr(Partition, "read", counted)
        broker.settle()
        assert sizes(outcome(waiting)) == [0, size, size, 0]
        # Each of the changed ones for its size, and again for the response.
        assert sorted(set(read_again)) == [1, 2]

    def test_deleted_records_are_known_at_the_end_of_a_wait(self) -> None:
        broker, manager, _ = self.filled(2)
        waiting = manager.fetch_records([item(0, 3), item(1, 3)], params(max_wait_ms=500))
        assert isinstance(waiting, Later)
        partition = manager.partition("t", 1)
        spawn(delete_records(partition, 2, broker.broker.log_manager))
        broker.settle()
        assert not waiting.done
        broker.ports.advance(1000)
        reads = outcome(waiting)
        assert [read.log_start_offset for read in reads] == [0, 2]

    def test_fetch_waits_until_data_is_durable(self) -> None:
        broker, manager = make()
        reads = manager.fetch_records([item(0)], params(max_wait_ms=500))
        append(manager, 0)
        assert isinstance(reads, Later)
        assert not reads.done
        broker.settle()
        assert sizes(outcome(reads))[0] > 0

    def test_fetch_waits_for_min_bytes(self) -> None:
        broker, manager = make()
        reads = manager.fetch_records([item(0)], params(max_wait_ms=500, min_bytes=300))
        append(manager, 0)
        broker.settle()
        assert isinstance(reads, Later)
        assert not reads.done
        append(manager, 0)
        broker.settle()
        assert sizes(outcome(reads))[0] >= 300

    def test_min_bytes_counts_all_partitions_together(self) -> None:
        broker, manager = make()
        reads = manager.fetch_records([item(0), item(1)], params(max_wait_ms=500, min_bytes=300))
        append(manager, 0)
        append(manager, 1)
        broker.settle()
        assert isinstance(reads, Later)
        assert all(size > 0 for size in sizes(outcome(reads)))

    def test_fetch_returns_available_data_at_its_deadline(self) -> None:
        broker, manager = make()
        reads = manager.fetch_records([item(0)], params(max_wait_ms=500, min_bytes=10_000))
        append(manager, 0)
        broker.ports.advance(520)
        assert isinstance(reads, Later)
        assert sizes(outcome(reads))[0] > 0

    def test_fetch_returns_errors_immediately(self) -> None:
        _, manager = make()
        reads = manager.fetch_records([item(0), item(1, 99)], params(max_wait_ms=500))
        assert isinstance(reads, list)
        assert [read.error_code for read in reads] == [0, ErrorCode.OFFSET_OUT_OF_RANGE]

    def test_unknown_partition_does_not_end_the_wait(self) -> None:
        broker, manager = make()
        reads = manager.fetch_records([item(0), item(9)], params(max_wait_ms=500))
        assert isinstance(reads, Later)
        broker.ports.advance(520)
        codes = [read.error_code for read in outcome(reads)]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    def test_fetch_does_not_wait_when_all_partitions_are_unknown(self) -> None:
        _, manager = make()
        reads = manager.fetch_records([item(9), item(0, topic=None)], params(max_wait_ms=500))
        assert isinstance(reads, list)
        assert [read.error_code for read in reads] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
        ]

    def test_fetch_with_another_topic_id_is_an_error(self) -> None:
        _, manager = make()
        stranger = FetchItem("t", b"x" * 16, FetchPartition(partition_max_bytes=100))
        [read] = manager.fetch_records([stranger], params())  # type: ignore[misc]
        assert read.error_code == ErrorCode.INCONSISTENT_TOPIC_ID

    def test_deleting_the_topic_completes_the_fetch(self) -> None:
        broker, manager = make()
        reads = manager.fetch_records([item(0)], params(max_wait_ms=500))
        topic = broker.broker.cache.topic("t")
        assert topic is not None
        manager.topics.stop_topic(topic)
        broker.settle()
        assert isinstance(reads, Later)
        assert outcome(reads)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_no_file_stays_open_when_the_client_disconnects(self) -> None:
        broker, manager = make()
        reads = manager.fetch_records([item(0)], params(max_wait_ms=500, min_bytes=300))
        append(manager, 0)
        broker.settle()
        assert isinstance(reads, Later)
        reads.cancel()
        append(manager, 0)
        broker.settle()
        assert len(manager.delayed_fetches) == 0

    def test_bug_in_a_read_is_an_error_of_one_partition(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker, manager, _ = self.filled()

        def broken(*args: object, **kwargs: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(manager.partition("t", 0).log, "read", broken)
        reads = manager.fetch_records([item(0), item(1)], params())
        assert isinstance(reads, list)
        assert [read.error_code for read in reads] == [ErrorCode.UNKNOWN_SERVER_ERROR, 0]
        assert len(broker.bugs) == 1
        sizes(reads)


class TestFailedLogDir:
    """R15: delayed requests fail, and nothing is acknowledged any more."""

    def fail_sync(self) -> tuple[SimBroker, ReplicaManager, Any, Any]:
        broker, manager = make()
        reads = manager.fetch_records([item(0)], params(max_wait_ms=60_000))
        broker.files.fail_when(lambda op: op.name == "sync" and "t-0" in op.path, errno.EIO)
        appended = append(manager, 0, timeout_ms=60_000)
        broker.settle()
        return broker, manager, appended, reads

    def test_delayed_requests_fail_with_storage_error(self) -> None:
        _, _, appended, reads = self.fail_sync()
        assert outcome(appended)[0].error.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert outcome(reads)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def test_later_requests_fail_with_storage_error(self) -> None:
        _, manager, _, _ = self.fail_sync()
        [one] = append(manager, 0)  # type: ignore[misc]
        assert isinstance(one.error, KafkaStorageError)
        assert manager.is_offline("t", 0)
        assert manager.offline_count == 2

    def test_records_that_were_not_durable_are_never_visible(self) -> None:
        _, manager, _, _ = self.fail_sync()
        assert manager.partition("t", 0).high_watermark == 0
