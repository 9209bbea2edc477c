"""Fetches of data that is not in the page cache: jobs perform every read."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from plog.errors import KafkaStorageError
from plog.records.batch import iter_batches
from plog.types import TopicPartition
from plog.wire.messages.fetch import FetchPartition
from plogd.fair_queue import SLICE
from plogd.log.log import Log
from plogd.log.segment.uncached_lookup import UncachedLookup
from plogd.ports import Later
from plogd.replica.fetch.delayed_fetch import FetchParams
from plogd.replica.fetch.fetch_context import FetchItem
from plogd.replica.fetch.partition_read import PartitionRead
from plogd.replica.replica_manager import ReplicaManager
from tests.helpers.sim.sim_broker import SimBroker, create_topic, records_of
from tests.helpers.sim.sim_file import SimFile, open_file
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import SimJobs, outcome

T = TypeVar("T")

BATCH_BYTES = len(records_of((b"v" * 100,)))
ALL_BYTES = 30 * BATCH_BYTES


def make_cold(partitions: int = 1) -> tuple[SimBroker, ReplicaManager]:
    """Return partitions with 30 batches each, of which only the last is in memory."""
    broker = SimBroker(log_index_interval_bytes=100).start()
    create_topic(broker, "t", partitions)
    for _ in range(29):
        append(broker.broker.replica_manager, *range(partitions))
    broker.settle()
    broker = broker.restart()
    # The first append to a segment reads its first batch, to decide when to roll.
    append(broker.broker.replica_manager, *range(partitions))
    broker.settle()
    broker.files.everything_cached = False
    cool(broker)
    return broker, broker.broker.replica_manager


def cool(broker: SimBroker) -> None:
    """Evict all logs from the page cache and close their indexes."""
    for log in broker.broker.log_manager.logs.values():
        for segment in log.segments:
            segment.indexes.flush()
            segment.release_indexes()
            for file in segment.sync_files():
                open_file(file)._inode.is_warm = False
            segment.release_indexes()


def append(manager: ReplicaManager, *partitions: int) -> None:
    entries = [
        (TopicPartition("t", number), memoryview(bytearray(records_of((b"v" * 100,)))))
        for number in partitions
    ]
    manager.append_records(entries, required_acks=1, timeout_ms=1000)


def item(partition: int, offset: int, max_bytes: int = 1 << 20) -> FetchItem:
    request = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    return FetchItem("t", bytes(16), request)


def params(min_bytes: int, max_wait_ms: int = 500) -> FetchParams:
    return FetchParams(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=1 << 20)


@pytest.fixture
def blocking_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects paths read outside of jobs, uncached or with an error."""
    paths: list[str] = []
    reading, pread, submit = SimFiles.reading, SimFile.pread, SimJobs.submit
    jobs_running = 0

    def watched_reading(files: SimFiles, name: str, path: str) -> None:
        try:
            reading(files, name, path)
        except OSError:  # The reactor would have blocked until this error.
            if not jobs_running:
                paths.append(path)
            raise

    def watched_pread(file: SimFile, length: int, position: int) -> bytes:
        if not file._inode.is_warm and not jobs_running:
            paths.append(file.path)
        return pread(file, length, position)

    def watched_submit(jobs: SimJobs, lane: str, function: Callable[[], T]) -> Later[T]:
        def run() -> T:
            nonlocal jobs_running
            jobs_running += 1
            try:
                return function()
            finally:
                jobs_running -= 1

        return submit(jobs, lane, run)

    monkeypatch.setattr(SimFiles, "reading", watched_reading)
    monkeypatch.setattr(SimFile, "pread", watched_pread)
    monkeypatch.setattr(SimJobs, "submit", watched_submit)
    return paths


def begin(
    broker: SimBroker, items: Sequence[FetchItem], wanted: FetchParams
) -> Later[list[PartitionRead]]:
    """Return a delayed fetch whose data was evicted from the page cache."""
    fetched = broker.broker.replica_manager.fetch_records(items, wanted)
    assert isinstance(fetched, Later)
    broker.settle()
    assert not fetched.done
    cool(broker)
    return fetched


def reads_in_progress(broker: SimBroker) -> list[str]:
    """Return the lane of each waiting read job."""
    lanes = broker.ports.jobs._lanes.items()
    return [lane for lane, jobs in lanes if lane.startswith("read:") for _ in jobs]


def settle_but_reads(broker: SimBroker) -> None:
    """Run everything that is due except read jobs."""
    jobs = broker.ports.jobs
    while broker.ports.timers.run_due() or set(jobs.waiting) - set(reads_in_progress(broker)):
        for lane in set(jobs.waiting) - set(reads_in_progress(broker)):
            jobs.run_one(lane)


def sizes(reads: list[PartitionRead]) -> list[int]:
    for read in reads:
        read.close()
    return [read.nbytes for read in reads]


def holders(manager: ReplicaManager) -> int:
    """Return the number of references to the open log file."""
    return open_file(manager.partition("t", 0).log.segments.active.records_file)._holders


@pytest.mark.parametrize("missing", [0, SLICE], ids=["few", "in slices"])
def test_fetch_that_times_out_reads_cold_data_in_a_job(
    missing: int, blocking_reads: list[str]
) -> None:
    broker, manager = make_cold()
    holders_before = holders(manager)
    items = [item(0, 12), *(item(1 + number, 0) for number in range(missing))]
    fetched = begin(broker, items, params(min_bytes=1 << 20))
    broker.ports.advance(600)
    reads = outcome(fetched)
    assert reads[0].region is not None
    assert next(iter_batches(reads[0].region.read()))[1].base_offset == 12
    assert sizes(reads)[0] == ALL_BYTES - 12 * BATCH_BYTES
    assert blocking_reads == []
    assert holders(manager) == holders_before


def test_append_completes_a_delayed_fetch_through_jobs_when_data_is_cold(
    blocking_reads: list[str],
) -> None:
    broker, manager = make_cold()
    holders_before = holders(manager)
    fetched = begin(broker, [item(0, 0)], params(min_bytes=ALL_BYTES + 1))
    append(manager, 0)
    broker.settle()
    assert sizes(outcome(fetched)) == [ALL_BYTES + BATCH_BYTES]
    assert blocking_reads == []
    assert (holders(manager), len(manager.delayed_fetches)) == (holders_before, 0)


def test_appends_during_a_cold_check_start_no_second_check(
    blocking_reads: list[str],
) -> None:
    broker, manager = make_cold()
    fetched = begin(broker, [item(0, 0)], params(min_bytes=ALL_BYTES + 3 * BATCH_BYTES))
    for _ in range(3):
        append(manager, 0)
        settle_but_reads(broker)
    assert manager.partition("t", 0).high_watermark == 33
    assert not fetched.done
    assert len(reads_in_progress(broker)) == 1
    broker.settle()
    assert sizes(outcome(fetched)) == [ALL_BYTES + 3 * BATCH_BYTES]
    assert blocking_reads == []


def test_fetch_keeps_waiting_when_a_cold_check_finds_too_little() -> None:
    broker, manager = make_cold()
    fetched = begin(broker, [item(0, 0)], params(min_bytes=ALL_BYTES + 2 * BATCH_BYTES))
    append(manager, 0)
    broker.settle()
    assert not fetched.done
    append(manager, 0)
    broker.settle()
    assert sizes(outcome(fetched)) == [ALL_BYTES + 2 * BATCH_BYTES]


@pytest.mark.parametrize("min_bytes", [ALL_BYTES + 1, 1 << 20], ids=["look", "time-out"])
def test_no_file_stays_open_when_the_client_disconnects_during_the_last_read(
    min_bytes: int,
) -> None:
    broker, manager = make_cold()
    holders_before = holders(manager)
    fetched = begin(broker, [item(0, 0)], params(min_bytes=min_bytes))
    append(manager, 0)
    settle_but_reads(broker)
    broker.ports.timers.advance(600 if min_bytes == 1 << 20 else 0)
    assert reads_in_progress(broker)
    fetched.then(lambda reads: pytest.fail("the client has disconnected"), lambda error: None)
    fetched.cancel()
    broker.settle()
    assert (holders(manager), len(manager.delayed_fetches)) == (holders_before, 0)
    assert broker.bugs == []


def test_failed_cold_read_is_not_repeated_on_the_reactor(
    blocking_reads: list[str],
) -> None:
    broker, _ = make_cold()
    fetched = begin(broker, [item(0, 0)], params(min_bytes=1 << 20))
    broker.files.fail_when(lambda operation: operation.is_read, errno.EIO)
    broker.ports.advance(600)
    [read] = outcome(fetched)
    assert isinstance(read.error, KafkaStorageError)
    assert blocking_reads == []
    assert broker.bugs == []


def test_all_cold_reads_are_cancelled_when_the_client_disconnects() -> None:
    _, manager = make_cold(3)
    jobs: list[Later[None]] = []
    begin_read = manager._fetch_reader._begin_read

    def noted(log: Log, cold: UncachedLookup) -> Later[None]:
        jobs.append(begin_read(log, cold))
        return jobs[-1]

    manager._fetch_reader._begin_read = noted
    fetched = manager.fetch_records([item(number, 0, 100) for number in range(3)], params(1))
    assert isinstance(fetched, Later)
    fetched.cancel()
    assert [job.done for job in jobs] == [True] * 3
