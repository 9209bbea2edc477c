"""Loading of shards: slices, records of other protocols, damage and abandoned loads."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from plog.errors import CoordinatorLoadInProgress, NotCoordinator
from plog.records.batch import ATTRIBUTES_POSITION, CRC_POSITION
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType, encode_control_key, encode_end_txn_value
from plog.records.crc32c import crc32c
from plog.wire.internal.group_records import encode_key, encode_value
from plog.wire.messages.join_group import JoinGroupRequestProtocol
from plogd.coordinator.group.group_coordinator import OFFSETS_TOPIC
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord, Result
from plogd.coordinator.runtime.shard_loader import SLICE_MS, LoadGate
from plogd.coordinator.runtime.shard_runtime import LOAD_RETRY_MS, ShardState
from plogd.log.batch_validator import AppendOrigin
from plogd.ports import Later, Timer, spawn
from tests.helpers.coordinator_site import TOPIC, CoordinatorSite, record
from tests.helpers.group.group_frames import join, sync_request
from tests.helpers.sim.sim_broker import SimBroker
from tests.helpers.sim.sim_disk import Inode
from tests.helpers.sim.sim_files import SimFile
from tests.helpers.sim.sim_ports import outcome
from tests.helpers.sim.sim_time import SimClock


def written(count: int = 3, **settings: int) -> CoordinatorSite:
    """Return a site that has written `count` records, one batch each."""
    site = CoordinatorSite(**settings).start()
    for number in range(count):
        site.set(f"n{number}", number)
    site.broker.settle()
    return site


def append(site: CoordinatorSite, *records: Record, **batch: int | bool) -> None:
    """Write a batch as another coordinator would."""
    data = bytearray(build_batch(records, **batch))  # type: ignore[arg-type]  # checked by it
    now_ms = site.broker.ports.clock.now_ms()
    log = site.broker.log(TOPIC)
    log.append_as_leader(
        memoryview(data), leader_epoch=0, now_ms=now_ms, origin=AppendOrigin.COORDINATOR
    )
    site.broker.settle()


def raw(name: str, number: int) -> Record:
    one = record(name, number)
    return Record(key=encode_key(one.key), value=encode_value(one.value))


def metric(broker: SimBroker, name: str) -> float:
    [line] = [x for x in broker.metrics.expose().decode().splitlines() if x.startswith(name)]
    return float(line.split()[-1])


class TickingClock(SimClock):
    """A clock that advances a little at each call."""

    def monotonic_ms(self) -> float:
        self.advance_to(super().monotonic_ms() + 1)
        return super().monotonic_ms()


def test_log_is_replayed_in_slices_that_yield_to_other_work() -> None:
    site = CoordinatorSite().start()
    many = [record(f"n{number}", number) for number in range(3000)]
    site.begin(lambda _: Result(records=many, response=None))
    site.broker.settle()
    again = CoordinatorSite(site.broker.restart(), clock=TickingClock()).lead()
    again.broker.ports.jobs.run_all()
    seen = []
    while again.runtime_of_shard.state is ShardState.LOADING:
        seen.append(len(again.shard.numbers))
        with pytest.raises(CoordinatorLoadInProgress):  # Never an empty result.
            outcome(again.numbers())
        again.broker.ports.timers.run_next()
    assert len(seen) > 3000 / 64 / SLICE_MS / 2
    assert max(after - before for before, after in pairwise(seen)) <= 256
    assert len(outcome(again.numbers())) == 3000


def test_log_longer_than_the_buffer_is_read_in_chunks() -> None:
    site = written(50, offsets_load_buffer_size=100)
    again = CoordinatorSite(site.broker.restart()).start()
    assert len(outcome(again.numbers())) == 50


def test_load_continues_across_segments() -> None:
    site = CoordinatorSite().start()
    for number in range(30):
        site.set(f"n{number}", number)
        site.broker.settle()
        if number % 10 == 9:
            site.broker.log(TOPIC).roll()
    again = CoordinatorSite(site.broker.restart()).start()
    assert outcome(again.numbers()) == {f"n{number}": number for number in range(30)}


class _Broken:
    """Timers that cannot be set."""

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        raise MemoryError("injected")


async def _broken_run(loader: object) -> None:
    raise MemoryError("injected")


def test_load_reads_the_disk_in_jobs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    site = written(40, offsets_load_buffer_size=1000)
    site.broker.log(TOPIC).roll()
    site.set("last", 1)
    site.broker.settle()
    again = CoordinatorSite(site.broker.restart())
    broker = again.broker
    broker.files.everything_cached = False
    submit, pread = broker.ports.jobs.submit, SimFile.pread
    is_in_job = False
    reads: list[bool] = []

    def submitted(lane: str, function: Callable[[], Any]) -> Later[Any]:
        def run() -> Any:
            nonlocal is_in_job
            is_in_job = True
            try:
                return function()
            finally:
                is_in_job = False

        return submit(lane, run)

    def cold_pread(file: SimFile, length: int, position: int) -> bytes:
        reads.append(is_in_job or file._inode.is_warm)
        return pread(file, length, position)

    monkeypatch.setattr(broker.ports.jobs, "submit", submitted)
    monkeypatch.setattr(SimFile, "pread", cold_pread)
    for node in broker.files._disk.nodes():
        if isinstance(node, Inode):
            node.is_warm = False
    again.lead()
    again.broker.settle()
    assert len(outcome(again.numbers())) == 41
    assert reads
    assert all(reads), "a read on the reactor that waits for the disk"


def test_load_ends_when_pages_are_evicted_after_each_read(monkeypatch: pytest.MonkeyPatch) -> None:
    again = CoordinatorSite(written(5).broker.restart())
    monkeypatch.setattr(SimFile, "pread_nowait", lambda *_: None)
    again.start()
    assert len(outcome(again.numbers())) == 5
    assert not [line for line in again.broker.reports if "cannot load" in line]


def test_records_of_other_protocols_are_skipped_and_reported_once() -> None:
    site = written(1)
    consumer_group = b"\x00\x03\x00\x01g"
    append(site, *[Record(key=consumer_group, value=b"\x00\x00whatever")] * 2, raw("last", 9))
    again = CoordinatorSite(site.broker.restart()).start()
    assert outcome(again.numbers()) == {"n0": 0, "last": 9}
    assert sum("skipped 2 records in state-0" in line for line in again.broker.reports) == 1


def test_load_replays_transaction_markers_and_producer_ids() -> None:
    site = written(1)
    marker = Record(key=encode_control_key(ControlType.COMMIT), value=encode_end_txn_value(0))
    append(site, raw("x", 1), producer_id=7, producer_epoch=0, base_sequence=0)
    append(site, marker, producer_id=7, producer_epoch=0, is_control=True, is_transactional=True)
    again = CoordinatorSite(site.broker.restart()).start()
    assert again.shard.notifications == [("marker", 7, True), "loaded"]


@pytest.mark.parametrize(
    "bad",
    [
        Record(key=b"\x00\x01\x00", value=None),
        Record(key=encode_key(record("a", 1).key), value=b"\x00\x63"),
        Record(key=encode_key(record("a", 1).key), value=b""),
        Record(key=None, value=b"x"),
    ],
)
def test_load_skips_undecodable_record_and_reports_it(bad: Record) -> None:
    site = written(2)
    append(site, bad, raw("behind", 7), bad)
    again = CoordinatorSite(site.broker.restart()).start()
    assert outcome(again.numbers()) == {"n0": 0, "n1": 1, "behind": 7}
    [line] = [line for line in again.broker.reports if "cannot be replayed" in line]
    assert "skipped 2 records in state-0" in line
    assert "the first at offset 2:" in line
    assert again.context.skipped_records.value == 2


def test_load_skips_record_whose_replay_fails() -> None:
    site = written(3)
    again = CoordinatorSite(site.broker.restart()).lead()
    replay = again.shard.replay

    def failing(record: CoordinatorRecord, *, offset: int, producer_id: int) -> None:
        assert offset != 1, "a record that contradicts another"
        replay(record, offset=offset, producer_id=producer_id)

    again.shard.replay = failing  # type: ignore[method-assign]
    again.broker.settle()
    assert outcome(again.numbers()) == {"n0": 0, "n2": 2}
    assert again.context.skipped_records.value == 1


@pytest.mark.parametrize("count", [1, 2])
def test_load_skips_batch_whose_records_are_inconsistent(count: int) -> None:
    site = written(2)
    batch = bytearray(build_batch([raw("lost", 1)] * count))
    batch[-1] ^= 0xFF  # The header count of the last record.
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))
    site.broker.log(TOPIC).append_as_leader(
        memoryview(batch), leader_epoch=0, now_ms=0, origin=AppendOrigin.COORDINATOR
    )
    append(site, raw("behind", 7))
    again = CoordinatorSite(site.broker.restart()).start()
    assert outcome(again.numbers()) == {"n0": 0, "n1": 1, "behind": 7}
    assert again.context.skipped_records.value == count


def test_load_fails_on_damaged_batch() -> None:
    site = written(3)
    path = f"/data/{TOPIC}-0/{0:020}.log"
    site.broker.stop()
    content = bytearray(site.broker.files.read_file(path))
    content[-10] ^= 1
    site.broker.files.overwrite(path, bytes(content))
    again = CoordinatorSite(site.broker.restart()).start()
    with pytest.raises(NotCoordinator):
        outcome(again.numbers())
    assert any("is damaged" in line for line in again.broker.reports)


def test_failed_load_unloads_replayed_state() -> None:
    site = written(3, offsets_load_buffer_size=100)
    append(site, raw("x", 1))
    site.broker.stop()
    path = f"/data/{TOPIC}-0/{0:020}.log"
    content = bytearray(site.broker.files.read_file(path))
    content[-10] ^= 1
    site.broker.files.overwrite(path, bytes(content))
    again = CoordinatorSite(site.broker.restart()).start()
    assert again.runtime_of_shard.state is ShardState.FAILED
    assert len(again.shard.numbers) == 3, "some of the log was replayed"
    assert [type(one) for one in again.shard.notifications] == [NotCoordinator]


def test_groups_of_failed_loads_use_no_memory() -> None:
    broker = SimBroker(offsets_topic_num_partitions=1, offsets_load_buffer_size=100).start()
    metadata = [JoinGroupRequestProtocol(name="range", metadata=bytes(10_000))]
    for number in range(3):
        group_id = f"g{number}"
        joined = join(broker, group_id=group_id, protocols=metadata)
        broker.ask(sync_request(joined, {joined.member_id: b"x"}, group_id=group_id), 5)
    used = "plog_groups_bytes "
    assert metric(broker, used) > 30_000
    path = f"/data/{OFFSETS_TOPIC}-0/{0:020}.log"
    broker.stop()
    content = bytearray(broker.files.read_file(path))
    content[-10] ^= 1
    broker.files.overwrite(path, bytes(content))
    again = broker.restart()
    for _ in range(5):
        again.settle()
        again.ports.advance(LOAD_RETRY_MS)
    assert metric(again, used) == 0
    assert again.bugs == []


def test_load_checks_a_segment_whose_index_is_wrong_and_reads_it() -> None:
    site = written(30, log_index_interval_bytes=100, offsets_load_buffer_size=100)
    site.broker.log(TOPIC).roll()
    site.set("last", 30)
    site.broker.settle()
    site.broker.stop()
    path = f"/data/{TOPIC}-0/{0:020}.index"
    index = bytearray(site.broker.files.read_file(path))
    for position in range(7, len(index) - 8, 8):  # The last entry is checked at startup.
        index[position] ^= 1
    site.broker.files.overwrite(path, bytes(index))
    again = CoordinatorSite(site.broker.restart()).start()
    assert len(outcome(again.numbers())) == 31
    assert sum("rebuilt the indexes of" in line for line in again.broker.reports) == 1


def test_load_is_retried_after_a_read_error() -> None:
    site = written(3)
    again = CoordinatorSite(site.broker.restart()).lead()
    again.broker.files.fail_when(
        lambda op: op.is_read and TOPIC in op.path and op.path.endswith(".log"), errno.EIO
    )
    again.broker.settle()
    with pytest.raises(NotCoordinator):
        outcome(again.numbers())
    again.broker.files.fail_no_more()
    again.broker.ports.advance(LOAD_RETRY_MS)
    assert len(outcome(again.numbers())) == 3


def test_abandoned_load_ends_silently() -> None:
    site = written(3)
    again = CoordinatorSite(site.broker.restart()).lead()
    shard = again.runtime_of_shard
    again.runtime.shutdown()
    again.broker.settle()
    again.broker.ports.advance(60_000)
    assert shard.state is ShardState.CLOSED
    # Its replayed state is discarded.
    assert [str(error) for error in again.shard.notifications] == ["the broker is stopping"]
    assert again.broker.bugs == []


def test_shutdown_waits_for_loads_that_read_the_log() -> None:
    site = written(3)
    again = CoordinatorSite(site.broker.restart()).lead()
    stopping = again.runtime.shutdown()
    assert not stopping.done
    again.broker.settle()
    outcome(stopping)


def test_failure_of_an_abandoned_load_does_not_affect_the_next() -> None:
    site = written(3)
    again = CoordinatorSite(site.broker.restart()).lead()
    reading = again.runtime_of_shard
    reading._fail(NotCoordinator("as if a replay had failed"))
    again.broker.ports.timers.advance(LOAD_RETRY_MS)  # A second load, after the first.
    [lane] = [lane for lane in again.broker.ports.jobs.waiting if lane.startswith("load:")]
    failures = [errno.EIO]  # Only one: the second load reads as soon as the first has ended.
    again.broker.files.fail_when(
        lambda op: op.is_read and TOPIC in op.path and bool(failures and failures.pop()), errno.EIO
    )
    again.broker.ports.jobs.run_one(lane)
    again.broker.files.fail_no_more()
    again.broker.settle()
    assert len(outcome(again.numbers())) == 3


def test_shard_reloads_when_on_loaded_fails() -> None:
    site = CoordinatorSite()
    make = site._make_shard

    def failing_once(timers: object) -> object:
        shard = make(timers)  # type: ignore[arg-type]  # passed through
        if len(site.made) == 1:
            shard.on_loaded = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
        return shard

    site.runtime._kind = type(site.runtime._kind)(  # type: ignore[assignment]
        topic=TOPIC, codec=site.runtime._kind.codec, make_shard=failing_once
    )
    site.start()
    assert site.runtime_of_shard.state is ShardState.FAILED
    site.broker.ports.advance(LOAD_RETRY_MS)
    assert outcome(site.numbers()) == {}


def test_one_load_at_a_time_runs_in_a_log_directory() -> None:
    gate = LoadGate()
    told: list[str] = []

    async def load(name: str, log_dir: str) -> None:
        await gate.enter(log_dir)
        told.append(name)

    for name, log_dir in (("a", "/1"), ("b", "/1"), ("c", "/1"), ("d", "/2")):
        spawn(load(name, log_dir)).then(lambda _: None, pytest.fail)
    assert told == ["a", "d"]
    for _ in "abc":
        gate.leave("/1")
    assert told == ["a", "d", "b", "c"]
    spawn(load("e", "/1")).then(lambda _: None, pytest.fail)
    assert told[-1] == "e"


def test_failed_load_lets_the_next_one_enter() -> None:
    site = written()
    again = CoordinatorSite(site.broker.restart()).lead()
    again.broker.files.fail_when(
        lambda op: op.is_read and TOPIC in op.path and op.path.endswith(".log"), errno.EIO
    )
    again.broker.settle()
    again.broker.files.fail_no_more()
    assert again.runtime_of_shard.state is ShardState.FAILED
    again.broker.ports.advance(LOAD_RETRY_MS)
    assert len(outcome(again.numbers())) == 3
