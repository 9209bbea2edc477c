"""Compacted logs for tests: keyed appends, compactions, and what consumers read.

site = LogSite().start()
log = site.create("t-0", COMPACT)
put(site, log, b"key", b"value")
compact(site)
assert latest(log) == {b"key": (0, b"value")}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from plog.client.consumer.aborted_transactions import AbortedTransactions
from plog.records.batch import BatchHeader, iter_batches
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType
from plog.records.reader import read_records
from plog.wire.messages.fetch import AbortedTransaction
from plogd.log.batch_validator import AppendOrigin
from plogd.log.log import Log
from tests.helpers.log.log_data import marker_batch
from tests.helpers.log.log_site import CONFIG, LogSite
from tests.helpers.sim.sim_ports import settled

COMPACT = replace(
    CONFIG,
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=10_000,
    segment_bytes=600,
)
"""Every log with dirty segments is compacted; a tombstone stays for ten seconds."""


class Stored(NamedTuple):
    """A record in a log."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    epoch: int


def put(site: LogSite, log: Log, key: bytes | None, value: bytes | None, **producer: Any) -> int:
    """Append a record as a leader; return its offset."""
    timestamp = site.ports.clock.now_ms() + log.log_end_offset
    record = Record(timestamp=timestamp, key=key, value=value)
    batch = build_batch([record], **producer)
    return _append(site, log, batch, AppendOrigin.CLIENT)


def end_transaction(site: LogSite, log: Log, producer_id: int, *, commit: bool) -> int:
    """Append the marker of a transaction; return its offset."""
    control_type = ControlType.COMMIT if commit else ControlType.ABORT
    marker = marker_batch(0, control_type, producer_id=producer_id, producer_epoch=0)
    return _append(site, log, marker, AppendOrigin.COORDINATOR)


def _append(site: LogSite, log: Log, batch: bytes, origin: AppendOrigin) -> int:
    info = log.append_as_leader(
        memoryview(bytearray(batch)),
        leader_epoch=site.epoch,
        now_ms=site.ports.clock.now_ms(),
        origin=origin,
    )
    if site.leads:
        log.high_watermark = max(log.high_watermark, log.acknowledged_end_offset)
    return info.first_offset


def compact(site: LogSite) -> bool:
    """Compact one log; return whether one had to be compacted."""
    was_needed = settled(site.ports, site.manager.cleaner.run())
    assert isinstance(was_needed, bool)
    return was_needed


def step_compaction(site: LogSite) -> Iterator[None]:
    """Compact one log; yield before each timer and each job that it needs."""
    site.settle()
    later = site.manager.cleaner.run()
    yield
    while not later.done:
        if not site.ports.timers.run_due():
            site.ports.jobs.run_one()
        yield
    settled(site.ports, later)


def checkpointed_offset(site: LogSite, log: Log) -> int | None:
    """Return the end of the compacted part of `log`, as a checkpoint contains it."""
    return site.manager.dirs[log.log_dir].cleaner_offsets.get(log.topic_partition)


def batches(log: Log, *, read_committed: bool = False) -> list[tuple[BatchHeader, bytes]]:
    """Return header and bytes of each batch that a consumer can read."""
    offset, found = log.log_start_offset, []
    end_offset = log.last_stable_offset if read_committed else log.high_watermark
    while offset < end_offset:
        data = log.read(offset, 500, end_offset=end_offset, read_committed=read_committed)
        if data.region is None:
            break  # Compaction has removed the last records.
        payload = data.region.read()
        data.region.close()
        listed = [
            AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
            for one in data.aborted
        ]
        aborted, before = AbortedTransactions(listed), offset
        for position, header in iter_batches(payload):
            offset = header.next_offset
            if not (read_committed and aborted.covers(payload, position, header)):
                found.append((header, bytes(payload[position : position + header.size_bytes])))
        assert offset > before, "a read without any batch"
    return found


def stored(log: Log, *, read_committed: bool = False) -> list[Stored]:
    """Return the records that a consumer can read, without transaction markers."""
    return [
        Stored(one.offset, one.key, one.value, one.timestamp, header.partition_leader_epoch)
        for header, batch in batches(log, read_committed=read_committed)
        if not header.is_control
        for one in read_records(batch, 0, header)
        if one.offset >= log.log_start_offset
    ]


def latest(log: Log, *, read_committed: bool = False) -> dict[bytes | None, Stored]:
    """Return the last record of each key, without deleted keys."""
    found = {one.key: one for one in stored(log, read_committed=read_committed)}
    return {key: one for key, one in found.items() if one.value is not None}


def unfinished_files(site: LogSite, log: Log) -> list[str]:
    """Return the names of files that compaction has not removed or renamed yet."""
    return [
        name
        for name in site.files.listdir(log.directory)
        if name.endswith((".cleaned", ".swap", ".deleted"))
    ]


def at_each_operation(site: LogSite, action: Callable[[], object]) -> None:
    """Call `action` before each file operation of the site, unless it is in progress."""
    is_running = False

    def run(_: object) -> None:
        nonlocal is_running
        if not is_running:
            is_running = True
            try:
                action()
            finally:
                is_running = False

    site.files.on_operation = run
