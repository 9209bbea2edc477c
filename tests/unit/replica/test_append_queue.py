"""Queued appends: waiting for room on the disk, for validation jobs and for other requests."""

from __future__ import annotations

import errno
from itertools import pairwise
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.records.batch import Compression, iter_batches
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.types import TopicPartition
from plogd.log.batch_validator import AppendOrigin
from plogd.ports import Later
from plogd.replica import append_queue
from plogd.replica.append_queue import PARKED_MAX_MS, PARKED_MIN_MS, STEPS_PER_TURN
from plogd.replica.delayed_produce import PartitionAppend
from tests.helpers.sim.sim_broker import (
    START_MS,
    SimBroker,
    create_topic,
    produce_request,
    records_of,
)
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import outcome

MIB = 1 << 20
Appended = Later[list[PartitionAppend]] | list[PartitionAppend]


def batch(value: bytes = b"v", *, compressed: bool = True, **fields: Any) -> bytes:
    """Return a batch that a compacted topic must validate in a job if it is compressed."""
    codec = Compression.GZIP if compressed else Compression.NONE
    return build_batch(
        [Record(timestamp=START_MS, key=b"k", value=value)], compression=codec, **fields
    )


def append(
    broker: SimBroker,
    records: bytes,
    *numbers: int,
    acks: int = -1,
    timeout_ms: int = 1000,
    topic: str = "t",
) -> Appended:
    entries = [
        (TopicPartition(topic, number), memoryview(bytearray(records)))
        for number in numbers or (0,)
    ]
    return broker.broker.replica_manager.append_records(
        entries, required_acks=acks, timeout_ms=timeout_ms
    )


def errors(appended: Appended) -> list[int]:
    """Return the error codes of a completed response."""
    appends = outcome(appended) if isinstance(appended, Later) else appended
    return [0 if one.error is None else one.error.code for one in appends]


def offsets(appended: Appended) -> list[int]:
    appends = outcome(appended) if isinstance(appended, Later) else appended
    assert [one.error for one in appends] == [None] * len(appends)
    return [one.info.first_offset for one in appends if one.info is not None]


def is_done(appended: Appended) -> bool:
    return not isinstance(appended, Later) or appended.done


def queues(broker: SimBroker) -> append_queue.AppendQueues:
    return broker.broker.replica_manager.append_queues


def assert_nothing_is_left(broker: SimBroker) -> None:
    found = queues(broker)
    assert found.parked_bytes == 0
    assert not found._queues and not found._ready and not found._bytes_by_topic
    assert len(found._deadlines) == 0
    assert not any(one.has_queue for one in broker.broker.replica_manager.partitions)
    assert broker.bugs == []


class TestRoom:
    """R10: an append waits only for the unsynced bytes of its own disk."""

    def make(self, **settings: Any) -> SimBroker:
        """Return a broker with two disks: partitions 0 and 1 on the first, 2, 3 on the second."""
        files = SimFiles(device_by_path={"/a": 1, "/b": 2})
        settings = {"plog_unsynced_max_bytes": 100, **settings}
        self.broker = SimBroker(files=files, log_dirs=("/a", "/b"), **settings).start()
        create_topic(self.broker, "t", 4)
        manager = self.broker.broker.replica_manager
        by_dir = sorted(manager.partitions, key=lambda one: (one.log.log_dir, one.topic_partition))
        self.a, self.a2, self.b, self.b2 = (one.topic_partition.partition for one in by_dir)
        return self.broker

    def settle(self, ms: int = 0) -> None:
        """Advance time by `ms` and run everything except syncs of the first disk, which hangs."""
        ports = self.broker.ports
        until_ms = ports.clock.monotonic_ms() + ms
        while True:
            lanes = [lane for lane in ports.jobs.waiting if not lane.startswith("sync:1")]
            due_ms = ports.timers.next_due_ms
            if lanes:
                ports.jobs.run_one(lanes[0])
            elif due_ms is not None and due_ms <= until_ms:
                ports.timers.run_next()
            else:
                break
        ports.clock.advance_to(max(until_ms, ports.clock.monotonic_ms()))

    def fill(self) -> Appended:
        """Fill the first disk's bound of unsynced bytes while its sync hangs."""
        first = append(self.broker, records_of((b"v" * 100,)), self.a, timeout_ms=60_000)
        self.settle()
        return first

    def test_hung_disk_does_not_delay_appends_to_another(self) -> None:
        broker = self.make()
        self.fill()
        hung = append(broker, records_of((b"x",)), self.a2)
        healthy = append(broker, records_of((b"x",)), self.b)
        self.settle()
        assert errors(healthy) == [0]
        assert not is_done(hung)

    def test_request_for_both_disks_appends_to_the_healthy_one_immediately(self) -> None:
        broker = self.make()
        self.fill()
        both = append(broker, records_of((b"x",)), self.a, self.b)
        assert broker.log("t", self.b).log_end_offset == 1
        self.settle(1100)
        assert errors(both) == [ErrorCode.REQUEST_TIMED_OUT, 0]

    @pytest.mark.parametrize("acks", [-1, 0, 1])
    @pytest.mark.parametrize(
        ("timeout_ms", "waits_ms"),
        [(0, PARKED_MIN_MS), (-5, PARKED_MIN_MS), (500, 500), (2**31 - 1, PARKED_MAX_MS)],
    )
    def test_queued_append_fails_at_its_timeout_and_is_not_made_later(
        self, acks: int, timeout_ms: int, waits_ms: int
    ) -> None:
        broker = self.make()
        self.fill()
        parked = append(broker, records_of((b"x",)), self.a, acks=acks, timeout_ms=timeout_ms)
        self.settle(waits_ms - 1)
        assert not is_done(parked)
        self.settle(12)
        assert errors(parked) == [ErrorCode.REQUEST_TIMED_OUT]
        broker.settle()
        assert broker.log("t", self.a).log_end_offset == 1
        assert_nothing_is_left(broker)

    def test_queued_append_is_made_when_the_disk_recovers(self) -> None:
        broker = self.make()
        first = self.fill()
        parked = [append(broker, records_of((b"%d" % n,)), self.a) for n in range(3)]
        other = append(broker, records_of((b"x",)), self.a2)
        broker.settle()
        assert offsets(first) == [0]
        assert [offsets(one) for one in parked] == [[1], [2], [3]]
        assert offsets(other) == [0]
        assert_nothing_is_left(broker)

    def test_timed_out_idempotent_append_is_not_overtaken_by_the_next(self) -> None:
        """R15: the producer retries the first batch, which is appended first."""
        broker = self.make()
        self.fill()

        def send(sequence: int, timeout_ms: int) -> Appended:
            records = records_of((b"x",), producer_id=7, producer_epoch=0, base_sequence=sequence)
            return append(broker, records, self.a, timeout_ms=timeout_ms)

        first, second = send(0, 200), send(1, 60_000)
        self.settle(300)
        assert errors(first) == [ErrorCode.REQUEST_TIMED_OUT]
        broker.settle()
        assert errors(second) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        again = [send(0, 1000), send(1, 1000)]
        broker.settle()
        assert [offsets(one) for one in again] == [[1], [2]]

    def test_later_batch_that_times_out_first_does_not_block_the_earlier(self) -> None:
        broker = self.make()
        self.fill()

        def send(sequence: int, timeout_ms: int) -> Appended:
            records = records_of((b"x",), producer_id=7, producer_epoch=0, base_sequence=sequence)
            return append(broker, records, self.a, timeout_ms=timeout_ms)

        first, second = send(0, 60_000), send(1, 200)
        self.settle(300)
        assert errors(second) == [ErrorCode.REQUEST_TIMED_OUT]
        broker.settle()
        assert offsets(first) == [1]

    def test_append_keeps_its_position_when_the_client_disconnects(self) -> None:
        """A retry on another connection must be appended after earlier requests."""
        broker = self.make()
        self.fill()
        batch = records_of((b"x",), producer_id=7, producer_epoch=0, base_sequence=0)
        left = append(broker, batch, self.a)
        assert isinstance(left, Later)
        left.cancel()
        again = append(broker, batch, self.a)
        broker.settle()
        assert offsets(again) == [1]
        assert broker.log("t", self.a).log_end_offset == 2
        assert_nothing_is_left(broker)

    def test_queued_append_of_a_disconnected_client_fails_at_its_timeout(self) -> None:
        broker = self.make()
        self.fill()
        left = append(broker, records_of((b"x",)), self.a, timeout_ms=500)
        assert isinstance(left, Later)
        left.cancel()
        assert queues(broker).parked_bytes
        self.settle(520)
        assert queues(broker).parked_bytes == 0

    def test_failed_disk_fails_queued_appends(self) -> None:
        broker = self.make()
        self.fill()
        parked = append(broker, records_of((b"x",)), self.a, timeout_ms=60_000)
        broker.files.fail_when(lambda op: op.name == "sync" and op.path.startswith("/a"), errno.EIO)
        broker.settle()
        assert errors(parked) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert_nothing_is_left(broker)

    def test_timed_out_appends_release_their_memory_while_the_disk_hangs(self) -> None:
        broker = self.make()
        self.fill()
        append(broker, records_of((b"x",)), self.a, timeout_ms=60_000)
        for _ in range(50):
            append(broker, records_of((b"x",)), self.a, timeout_ms=100)
            self.settle(120)
        [queue] = queues(broker)._queues.values()
        assert len(queue.queued) == 1


class TestMemory:
    """Copies of records are counted, in total and by topic."""

    def make(self, **settings: Any) -> SimBroker:
        broker = SimBroker(plog_produce_parked_max_bytes=2 * MIB, **settings).start()
        for topic in ("t", "u"):
            create_topic(broker, topic, 1, cleanup_policy="compact", max_message_bytes=str(4 * MIB))
        return broker

    def test_topic_may_use_half_of_the_memory_bound(self) -> None:
        broker = self.make()
        records = batch(b"v" * 400_000, compressed=False)
        sent = [append(broker, records) for _ in range(4)]
        assert [is_done(one) for one in sent] == [False, False, True, True]
        assert errors(sent[3]) == [ErrorCode.REQUEST_TIMED_OUT]
        other = append(broker, records, topic="u")
        assert queues(broker).refused == 2
        metrics = broker.metrics.expose().decode()
        assert "plog_produce_parked_refused_total 2" in metrics
        assert f"plog_produce_parked_bytes {queues(broker).parked_bytes}" in metrics
        broker.settle()
        assert [offsets(one) for one in (*sent[:2], other)] == [[0], [1], [0]]
        assert_nothing_is_left(broker)

    def test_refused_idempotent_append_is_not_overtaken(self) -> None:
        broker = self.make()
        big = batch(b"v" * 900_000, compressed=False)
        append(broker, big)
        ids = {"producer_id": 7, "producer_epoch": 0}
        refused = append(broker, batch(b"v" * 900_000, base_sequence=0, compressed=False, **ids))
        assert errors(refused) == [ErrorCode.REQUEST_TIMED_OUT]
        broker.settle()
        overtaking = append(broker, batch(base_sequence=1, **ids))
        broker.settle()
        assert errors(overtaking) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]

    def test_refused_append_does_not_block_an_earlier_queued_batch_of_the_producer(self) -> None:
        broker = self.make()
        ids = {"producer_id": 7, "producer_epoch": 0, "compressed": False}
        first = append(broker, batch(b"v" * 900_000, base_sequence=0, **ids))
        refused = append(broker, batch(b"v" * 900_000, base_sequence=1, **ids))
        assert errors(refused) == [ErrorCode.REQUEST_TIMED_OUT]
        broker.settle()
        assert offsets(first) == [0]

    def test_batch_larger_than_the_memory_bound_is_refused_as_too_large(self) -> None:
        broker = self.make()
        sent = append(broker, batch(b"v" * 3 * MIB, compressed=False))
        assert errors(sent) == [ErrorCode.MESSAGE_TOO_LARGE]

    def test_damaged_batch_is_refused_without_blocking_its_producer(self) -> None:
        broker = self.make()
        append(broker, batch(b"v" * 900_000, compressed=False))
        ids = {"producer_id": 7, "producer_epoch": 0}
        damaged = bytearray(batch(b"v" * 900_000, base_sequence=5, compressed=False, **ids))
        damaged[-1] ^= 1
        assert errors(append(broker, bytes(damaged))) == [ErrorCode.REQUEST_TIMED_OUT]
        broker.settle()
        sent = append(broker, batch(base_sequence=0, **ids))
        broker.settle()
        assert offsets(sent) == [1]


class TestValidation:
    """Batches whose records have to be read are validated by jobs, in order."""

    def make(self, **config: str) -> SimBroker:
        broker = SimBroker().start()
        create_topic(broker, "t", 2, **(config or {"cleanup_policy": "compact"}))
        return broker

    def test_compressed_batch_is_validated_by_a_job(self) -> None:
        broker = self.make()
        sent = append(broker, batch())
        assert broker.log("t").log_end_offset == 0
        broker.ports.timers.run_due()
        assert broker.ports.jobs.waiting == ["validate:small"]
        broker.settle()
        assert offsets(sent) == [0]
        assert_nothing_is_left(broker)

    def test_small_uncompressed_batch_is_appended_immediately(self) -> None:
        broker = self.make()
        append(broker, batch(compressed=False))
        assert broker.log("t").log_end_offset == 1

    def test_many_small_batches_of_one_request_are_not_all_read_in_one_turn(self) -> None:
        broker = self.make()
        sent = append(broker, batch(b"v" * 500, compressed=False), *[0] * 20)
        assert 0 < broker.log("t").log_end_offset < 5
        broker.settle()
        assert offsets(sent) == list(range(20))

    def test_converted_batch_is_stored_in_the_topics_codec(self) -> None:
        broker = self.make(compression_type="zstd")
        sent = append(broker, batch(b"v" * 5000))
        broker.settle()
        assert offsets(sent) == [0]
        [(_, header)] = iter_batches(broker.fetch("t").records.tobytes())
        assert header.compression is Compression.ZSTD

    def test_append_waits_for_an_earlier_batch_being_validated_by_a_job(self) -> None:
        """Order within the partition; another partition does not wait."""
        broker = self.make()
        slow = append(broker, batch(b"1"))
        fast = append(broker, batch(b"2", compressed=False))
        other = append(broker, batch(b"3", compressed=False), 1)
        assert (broker.log("t").log_end_offset, broker.log("t", 1).log_end_offset) == (0, 1)
        broker.settle()
        assert (offsets(slow), offsets(fast), offsets(other)) == ([0], [1], [0])

    def test_duplicate_waits_for_its_original_and_gets_its_offset(self) -> None:
        broker = self.make()
        ids = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        sent = [append(broker, batch(**ids)) for _ in range(2)]
        broker.settle()
        assert [offsets(one) for one in sent] == [[0], [0]]
        assert broker.log("t").log_end_offset == 1

    def test_invalid_batch_is_refused_and_the_next_appended(self) -> None:
        broker = self.make()
        keyless = build_batch(
            [Record(timestamp=START_MS, value=b"v")], compression=Compression.GZIP
        )
        sent = [append(broker, keyless), append(broker, batch())]
        broker.settle()
        assert [errors(one) for one in sent] == [[ErrorCode.INVALID_RECORD], [0]]
        assert_nothing_is_left(broker)

    def test_validation_bug_fails_only_that_append(self, monkeypatch: pytest.MonkeyPatch) -> None:
        broker = self.make()

        def broken(*args: object, **kwargs: object) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr("plogd.replica.validation_lanes.validate_batch", broken)
            sent = append(broker, batch())
            broker.settle()
        assert errors(sent) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert len(broker.bugs) == 1
        broker.bugs.clear()
        again = append(broker, batch())
        broker.settle()
        assert offsets(again) == [0]
        assert_nothing_is_left(broker)

    def test_append_that_times_out_during_validation_is_not_made(self) -> None:
        broker = self.make()
        sent = append(broker, batch(), timeout_ms=200)
        behind = append(broker, batch(b"2"), timeout_ms=60_000)
        broker.ports.timers.advance(220)
        assert errors(sent) == [ErrorCode.REQUEST_TIMED_OUT]
        assert queues(broker).parked_bytes, "a job may still read the copy"
        broker.settle()
        assert offsets(behind) == [0]
        assert_nothing_is_left(broker)

    def test_stopping_broker_does_not_wait_for_the_jobs(self) -> None:
        broker = self.make()
        sent = [append(broker, batch(), timeout_ms=60_000) for _ in range(2)]
        broker.ports.timers.run_due()
        assert broker.ports.jobs.waiting == ["validate:small"]
        stopped = broker.broker.stop()
        assert queues(broker).parked_bytes == len(batch()) + 4096, "only the one of the job"
        broker.settle()
        outcome(stopped)
        assert [errors(one) for one in sent] == [[ErrorCode.REQUEST_TIMED_OUT]] * 2
        assert queues(broker).parked_bytes == 0

    def test_deleting_the_topic_fails_queued_appends(self) -> None:
        broker = self.make()
        sent = append(broker, batch())
        topic = broker.broker.cache.topic("t")
        assert topic is not None
        broker.broker.replica_manager.topics.stop_topic(topic)
        broker.settle()
        assert errors(sent) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert queues(broker).parked_bytes == 0

    def test_append_uses_the_settings_of_its_validation(self) -> None:
        broker = self.make(compression_type="zstd")
        sent = append(broker, batch(b"v" * 5000))
        broker.ports.timers.run_due()  # Its validation starts.
        broker.broker.replica_manager.topics.update_topic_config("t", {"compression.type": "lz4"})
        later = append(broker, batch(b"v" * 5000))
        broker.settle()
        assert (offsets(sent), offsets(later)) == ([0], [1])
        codecs = [one.compression for _, one in iter_batches(broker.fetch("t").records.tobytes())]
        assert codecs == [Compression.ZSTD, Compression.LZ4]

    def test_coordinator_appends_are_not_queued_or_converted(self) -> None:
        broker = self.make(compression_type="zstd")
        append(broker, batch())
        partition = broker.broker.replica_manager.partition("t", 0)
        info = partition.append_records_to_leader(
            memoryview(bytearray(batch(b"v" * 5000, compressed=False))),
            required_acks=-1,
            now_ms=START_MS,
            origin=AppendOrigin.COORDINATOR,
        )
        assert info.first_offset == 0
        broker.settle()
        codecs = [one.compression for _, one in iter_batches(broker.fetch("t").records.tobytes())]
        assert codecs == [Compression.NONE, Compression.ZSTD]

    def test_single_and_general_requests_get_equal_responses(self) -> None:
        broker = self.make()
        request = produce_request("t", records=batch())
        single = broker.begin(request, 9)
        general = broker.begin(produce_request("t", records=batch(), acks=0), 9)
        assert not single.is_done and not general.is_done
        broker.settle()
        [answer] = single.response().responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert broker.log("t").log_end_offset == 2


def test_request_with_very_many_partitions_yields_to_other_requests() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    sent = append(broker, records_of((b"x",)), *[0] * 1000)
    log, timers = broker.log("t"), broker.ports.timers
    ends = [log.log_end_offset]
    while log.log_end_offset < 1000:
        timers.run_next()
        ends.append(log.log_end_offset)
    broker.settle()
    assert offsets(sent) == list(range(1000))
    assert ends[0] == 128
    assert max(after - before for before, after in pairwise(ends)) == STEPS_PER_TURN
    assert_nothing_is_left(broker)
