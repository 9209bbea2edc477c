"""A log that tests write and compact: segments of batches, with transactions, but without a broker.

`compact` calls `clean` and puts the new segments in place itself, without the steps that make this
safe (segment_swap.py has its own tests).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from plog.records.batch import Compression, TimestampType, iter_batches, parse_header
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType, encode_control_key, encode_end_txn_value
from plog.records.reader import read_records
from plogd.log.compaction.batch_filter import NO_DATA_OFFSET, LastRecord
from plogd.log.compaction.cleaned_segment import unfinished_paths
from plogd.log.compaction.cleaning import (
    Cleaned,
    CleaningRequest,
    Replacement,
    Report,
    SourceSegment,
    clean,
)
from plogd.log.file_names import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TXN_INDEX_SUFFIX,
    segment_path,
)
from plogd.log.segment.transaction_index import AbortedTransaction, TransactionIndex, encode_entries
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_data import T0
from tests.helpers.sim.sim_files import SimFiles

DIRECTORY = "/log"
RETENTION_MS = 1000
CONFIG = TopicConfig(
    cleanup_policy=("compact",),
    segment_bytes=2000,
    delete_retention_ms=RETENTION_MS,
    index_interval_bytes=200,
)
NO_PRODUCER = -1


class StoredBatch(NamedTuple):
    """A batch in a file: the fields that compaction may change, and those that identify it."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    codec: Compression
    timestamp_type: TimestampType
    max_timestamp: int
    horizon_ms: int | None
    records: tuple[Record, ...]


def parse_batches(data: bytes) -> list[StoredBatch]:
    """Return the batches of a file."""
    return [
        StoredBatch(
            header.base_offset,
            header.last_offset,
            header.partition_leader_epoch,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.is_transactional,
            header.is_control,
            header.compression,
            header.timestamp_type,
            header.max_timestamp,
            header.delete_horizon_ms,
            tuple(read_records(data, position, header)),
        )
        for position, header in iter_batches(data)
    ]


class _Transaction(NamedTuple):
    number: int
    first_offset: int


class CompactedLog:
    """A log in simulated files. Offsets begin at `base_offset`."""

    def __init__(self, *, config: TopicConfig = CONFIG, base_offset: int = 0) -> None:
        self.files = SimFiles([DIRECTORY])
        self.directory = DIRECTORY
        self.config = config
        self.sealed: list[SourceSegment] = []
        self.end_offset = base_offset
        self.first_dirty_offset = base_offset
        self.leader_epoch = 0
        self.producers: dict[int, LastRecord] = {}
        self.transaction_of: dict[int, int] = {}
        """The number of its transaction, by the base offset of each transactional batch."""
        self.data_offsets: set[int] = set()
        """The base offsets of the batches that are not markers."""
        self.aborted_numbers: set[int] = set()
        self._open: dict[int, _Transaction] = {}
        self._transactions = 0
        self._base_offset = base_offset
        self._active = bytearray()
        self._active_aborted: list[AbortedTransaction] = []

    # -- writing --------------------------------------------------------------------------------

    def append(
        self,
        *records: tuple[bytes | None, bytes | None],
        producer_id: int = NO_PRODUCER,
        is_transactional: bool = False,
        timestamp: int = T0,
        **fields: Any,
    ) -> int:
        """Append a batch with these keys and values; return its base offset."""
        base = self.end_offset
        if is_transactional and producer_id not in self._open:
            self._open[producer_id] = _Transaction(self._transactions, base)
            self._transactions += 1
        epoch = self.producers[producer_id].producer_epoch if producer_id in self.producers else 0
        if producer_id != NO_PRODUCER:
            last = base + len(records) - 1
            self.producers[producer_id] = LastRecord(epoch, last)
            fields = {"producer_epoch": epoch, "base_sequence": base % 1000, **fields}
        self._write(
            [
                Record(base + n, timestamp + base + n, key, value, (("n", b"%d" % (base + n)),))
                for n, (key, value) in enumerate(records)
            ],
            producer_id=producer_id,
            is_transactional=is_transactional,
            **fields,
        )
        return base

    def end_transaction(
        self, producer_id: int, *, is_commit: bool, bumps_epoch: bool = False
    ) -> None:
        """Append a marker; with `bumps_epoch`, it has a new epoch of the producer."""
        transaction = self._open[producer_id]
        epoch, last_offset = self.producers.get(producer_id, LastRecord(0, NO_DATA_OFFSET))
        if bumps_epoch:
            epoch, last_offset = epoch + 1, NO_DATA_OFFSET
        self.producers[producer_id] = LastRecord(epoch, last_offset)
        marker = self.end_offset
        kind = ControlType.COMMIT if is_commit else ControlType.ABORT
        self._write(
            [Record(marker, T0 + marker, encode_control_key(kind), encode_end_txn_value(3))],
            producer_id=producer_id,
            producer_epoch=epoch,
            is_transactional=True,
            is_control=True,
        )
        del self._open[producer_id]
        if not is_commit:
            self.aborted_numbers.add(transaction.number)
            self._active_aborted.append(
                AbortedTransaction(
                    producer_id, transaction.first_offset, marker, self.last_stable_offset
                )
            )

    def end_all(self) -> None:
        """Commit the open transactions."""
        for producer_id in sorted(self._open):
            self.end_transaction(producer_id, is_commit=True)

    def _write(self, records: list[Record], *, producer_id: int, **fields: Any) -> None:
        base = records[0].offset
        if not fields.get("is_control"):
            self.data_offsets.add(base)
        if fields.get("is_transactional"):
            self.transaction_of[base] = self._open[producer_id].number
        fields.setdefault("partition_leader_epoch", self.leader_epoch)
        self._active += build_batch(records, base_offset=base, producer_id=producer_id, **fields)
        self.end_offset = base + len(records)

    def append_bytes(self, batch: bytes) -> None:
        """Append any batch, which has the next offset."""
        header = parse_header(batch)
        assert header.base_offset == self.end_offset
        self._active += batch
        self.end_offset = header.next_offset

    def roll(self) -> None:
        """Write the active segment to its file, and begin another one."""
        if not self._active:
            return
        base = self._base_offset
        self._put(base, LOG_SUFFIX, bytes(self._active))
        if self._active_aborted:
            self._put(base, TXN_INDEX_SUFFIX, encode_entries(self._active_aborted))
        self.sealed.append(SourceSegment(base, self.end_offset, len(self._active)))
        self._base_offset = self.end_offset
        self._active = bytearray()
        self._active_aborted = []

    def _put(self, base_offset: int, suffix: str, content: bytes) -> None:
        file = self.files.open_append(segment_path(self.directory, base_offset, suffix))
        file.append(content)
        file.sync()
        file.close()
        self.files.sync_dir(self.directory)

    # -- reading --------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction, or the end."""
        firsts = [one.first_offset for one in self._open.values()]
        return min(firsts, default=self.end_offset)

    @property
    def cleanable(self) -> list[SourceSegment]:
        """The sealed segments without open transactions."""
        return [one for one in self.sealed if one.end_offset <= self.last_stable_offset]

    def read(self, segment: SourceSegment) -> bytes:
        """Return the content of a segment."""
        return self.files.read_file(segment_path(self.directory, segment.base_offset, LOG_SUFFIX))

    def batches(self) -> list[StoredBatch]:
        """Return the batches of all sealed segments."""
        return [batch for segment in self.sealed for batch in parse_batches(self.read(segment))]

    def records(self) -> list[Record]:
        """Return the data records of all sealed segments."""
        return [one for batch in self.batches() if not batch.is_control for one in batch.records]

    def aborted(self, segments: Sequence[SourceSegment]) -> list[AbortedTransaction]:
        """Return the entries of the segments' transaction indexes."""
        found: list[AbortedTransaction] = []
        for segment in segments:
            path = segment_path(self.directory, segment.base_offset, TXN_INDEX_SUFFIX)
            if self.files.exists(path):
                index = TransactionIndex(self.files, path, segment.base_offset)
                found += [index.entry(slot) for slot in range(index.count)]
                index.close()
        return found

    def contents(self) -> dict[str, bytes]:
        """Return the content of each file."""
        return {
            name: self.files.read_file(f"{self.directory}/{name}")
            for name in self.files.listdir(self.directory)
        }

    # -- compaction -----------------------------------------------------------------------------

    def request(self, *, now_ms: int = T0, **changes: Any) -> CleaningRequest:
        """Return a request to compact all cleanable segments."""
        segments = self.cleanable
        end_offset = segments[-1].end_offset
        request = CleaningRequest(
            directory=self.directory,
            segments=segments,
            first_dirty_offset=self.first_dirty_offset,
            config=self.config,
            producers=dict(self.producers),
            aborted=[
                one
                for one in (*self.aborted(self.sealed), *self._active_aborted)
                if one.last_offset >= segments[0].base_offset and one.first_offset < end_offset
            ],
            now_ms=now_ms,
            max_map_bytes=1 << 20,
            load_factor=0.9,
            max_decompressed_bytes=1 << 24,
        )
        return request._replace(**changes)

    def compact(self, *, now_ms: int = T0, **changes: Any) -> list[Report]:
        """Compact the log, and return the reports. No file is changed before its replacement."""
        before = {
            name: content
            for name, content in self.contents().items()
            if not name.endswith((".cleaned", ".swap"))
        }
        reports = list(clean(self.files, self.request(now_ms=now_ms, **changes)))
        after = self.contents()
        assert {name: after.get(name) for name in before} == before, "a source was changed"
        for report in reports:
            if isinstance(report, Replacement):
                self.replace(report)
            elif isinstance(report, Cleaned):
                self.first_dirty_offset = report.end_offset
        assert not [name for name in self.contents() if name.endswith((".cleaned", ".swap"))]
        return reports

    def replace(self, new: Replacement) -> None:
        """Put a new segment in the place of the old ones."""
        old = [one for one in self.sealed if one.base_offset in new.sources]
        assert [one.base_offset for one in old] == list(new.sources)
        for segment in old:
            for suffix in SEGMENT_SUFFIXES:
                path = segment_path(self.directory, segment.base_offset, suffix)
                if self.files.exists(path):
                    self.files.unlink(path)
        for path in unfinished_paths(self.directory, new.base_offset):
            if self.files.exists(path):
                self.files.rename(path, path.rpartition(".")[0])
        start = self.sealed.index(old[0])
        self.sealed[start : start + len(old)] = [
            SourceSegment(new.base_offset, old[-1].end_offset, new.size_bytes)
        ]
