"""Transactions in a log, a naive model of them, and a read_committed consumer without a network."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from plog.client.consumer.aborted_transactions import AbortedTransactions
from plog.errors import KafkaStorageError
from plog.records.batch import iter_batches, set_base_offset_and_epoch
from plog.records.control import ControlType
from plog.records.reader import read_records
from plog.wire.messages.fetch import AbortedTransaction as ListedTransaction
from plogd.log import file_names
from plogd.log.batch_validator import AppendOrigin
from plogd.log.log import Log
from plogd.log.log_results import AppendInfo
from plogd.log.segment.transaction_index import AbortedTransaction, encode_entries
from tests.helpers.log.log_data import client_batch, marker_batch
from tests.helpers.log.log_site import LogSite, base_offsets
from tests.helpers.sim.sim_files import SimFiles

PLAIN, DATA, COMMIT, ABORT = "plain", "data", "commit", "abort"
NO_PRODUCER = -1


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch of the model; a marker has one record and no value."""

    kind: str
    records: int
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = -1
    value: bytes | None = None
    first_offset: int = 0

    @property
    def last_offset(self) -> int:
        """The offset of the batch's last record."""
        return self.first_offset + self.records - 1


@dataclass(slots=True)
class TransactionModel:
    """The batches of a log in order; every question is answered by reading all of them."""

    entries: list[Entry] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        """The log end offset."""
        return self.entries[-1].last_offset + 1 if self.entries else 0

    def add(self, entry: Entry) -> None:
        """Add a batch at the end."""
        self.entries.append(replace(entry, first_offset=self.end_offset))

    def cut(self, end_offset: int) -> None:
        """Remove the batches that end at or above `end_offset`."""
        self.entries = [entry for entry in self.entries if entry.last_offset < end_offset]

    def epoch_of(self, producer_id: int) -> int:
        """Return the producer's newest epoch."""
        epochs = [e.producer_epoch for e in self.entries if e.producer_id == producer_id]
        return epochs[-1] if epochs else 0

    def next_sequence(self, producer_id: int) -> int:
        """Return the sequence number that the producer must use next."""
        sequence = 0
        for entry in self.entries:
            if entry.producer_id == producer_id:
                if entry.producer_epoch != self.epoch_of(producer_id):
                    sequence = 0
                elif entry.kind == DATA:
                    sequence = entry.base_sequence + entry.records
        return sequence

    def ongoing(self, end_offset: int | None = None) -> dict[int, int]:
        """Return the first offset of each open transaction by producer id."""
        first_offsets: dict[int, int] = {}
        for entry in self.entries:
            if end_offset is not None and entry.first_offset >= end_offset:
                break
            if entry.kind == DATA:
                first_offsets.setdefault(entry.producer_id, entry.first_offset)
            elif entry.kind in (COMMIT, ABORT):
                first_offsets.pop(entry.producer_id, None)
        return first_offsets

    def ended(self) -> list[tuple[Entry, AbortedTransaction]]:
        """Return each marker of a transaction with records, and the entry it would have."""
        found = []
        for entry in self.entries:
            if entry.kind in (COMMIT, ABORT):
                others = self.ongoing(entry.first_offset)
                first_offset = others.pop(entry.producer_id, None)
                if first_offset is not None:
                    stable_offset = min(others.values(), default=entry.first_offset + 1)
                    transaction = AbortedTransaction(
                        entry.producer_id, first_offset, entry.first_offset, stable_offset
                    )
                    found.append((entry, transaction))
        return found

    def aborted(self) -> list[AbortedTransaction]:
        """Return the aborted transactions in the order of their markers."""
        return [one for marker, one in self.ended() if marker.kind == ABORT]

    def stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset."""
        undecided = [*self.ongoing().values()]
        undecided += [
            one.first_offset for _, one in self.ended() if one.last_offset >= high_watermark
        ]
        return min([*undecided, high_watermark])

    def committed(self, start: int, end: int) -> dict[int, bytes | None]:
        """Return the records from `start` to `end` that no transaction has aborted."""
        found: dict[int, bytes | None] = {}
        aborted = self.aborted()
        for entry in self.entries:
            if entry.kind in (COMMIT, ABORT) or any(
                one.producer_id == entry.producer_id
                and one.first_offset <= entry.first_offset < one.last_offset
                for one in aborted
            ):
                continue
            for offset in range(entry.first_offset, entry.last_offset + 1):
                if start <= offset < end:
                    found[offset] = entry.value
        return found

    def index_of(self, base_offset: int, end_offset: int) -> bytes:
        """Return the ``.txnindex`` of a segment with these offsets."""
        return encode_entries(
            one for one in self.aborted() if base_offset <= one.last_offset < end_offset
        )


class TransactionLog:
    """Appends transactions to a log of a site, as a leader or as a follower, and models them."""

    def __init__(self, site: LogSite, name: str = "t-0", *, follows: bool = False) -> None:
        self.site = site
        self.name = name
        self.follows = follows
        self.model = TransactionModel()
        self.value_bytes = 40
        self._count = 0

    @property
    def log(self) -> Log:
        """The log in the site's current life."""
        return self.site.log(self.name)

    # -- appends ------------------------------------------------------------------------------

    def plain(self, records: int = 1) -> AppendInfo:
        """Append a batch that is in no transaction."""
        value = self._next_value()
        return self._append(client_batch(records, value=value), Entry(PLAIN, records, value=value))

    def data(self, producer_id: int, records: int = 1) -> AppendInfo:
        """Append a batch of a producer's open transaction, or begin one."""
        value = self._next_value()
        epoch = self.model.epoch_of(producer_id)
        sequence = self.model.next_sequence(producer_id)
        batch = client_batch(
            records,
            value=value,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        return self._append(batch, Entry(DATA, records, producer_id, epoch, sequence, value))

    def commit(self, producer_id: int, *, bump: bool = False) -> AppendInfo:
        """Append a commit marker, in the producer's next epoch if `bump` is set."""
        return self._end(producer_id, COMMIT, bump)

    def abort(self, producer_id: int, *, bump: bool = False) -> AppendInfo:
        """Append an abort marker, in the producer's next epoch if `bump` is set."""
        return self._end(producer_id, ABORT, bump)

    def _end(self, producer_id: int, kind: str, bump: bool) -> AppendInfo:
        epoch = self.model.epoch_of(producer_id) + bump
        marker = marker_of(producer_id, epoch, commits=kind == COMMIT)
        return self._append(marker, Entry(kind, 1, producer_id, epoch), AppendOrigin.COORDINATOR)

    def _next_value(self) -> bytes:
        self._count += 1
        return str(self._count).encode().ljust(self.value_bytes, b".")

    def _append(
        self, batch: memoryview, entry: Entry, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        # Added first, because a crash during the append may leave the batch in the log.
        offset = self.model.end_offset
        self.model.add(entry)
        try:
            info = self._write(batch, offset, origin)
        except Exception:
            self.model.cut(offset)
            raise
        assert info is not None
        assert (info.first_offset, info.last_offset) == (offset, self.model.end_offset - 1)
        return info

    def _write(self, batch: memoryview, offset: int, origin: AppendOrigin) -> AppendInfo | None:
        if not self.follows:
            return self.site.append_batch(self.log, batch, origin)
        set_base_offset_and_epoch(batch, 0, offset, self.site.epoch)
        try:
            return self.log.append_as_follower(
                batch, leader_epoch=self.site.epoch, now_ms=self.site.ports.clock.now_ms()
            )
        finally:
            self.site.advance(self.log)

    def step(self, kind: str, producer_id: int, records: int = 1, *, bump: bool = False) -> None:
        """Append one batch of the given kind."""
        if kind == PLAIN:
            self.plain(records)
        elif kind == DATA:
            self.data(producer_id, records)
        else:
            self._end(producer_id, kind, bump)

    def try_step(self, kind: str, producer_id: int, records: int = 1) -> bool:
        """Append one batch; return False if the disk is full."""
        try:
            self.step(kind, producer_id, records)
        except KafkaStorageError:
            return False
        return True

    # -- other lives --------------------------------------------------------------------------

    def continue_on(self, site: LogSite) -> None:
        """Use the next life, and forget the batches that the crash has removed."""
        self.site = site
        self.model.cut(self.log.log_end_offset)

    # -- checks -------------------------------------------------------------------------------

    def index_files(self) -> dict[int, bytes]:
        """Return the content of each ``.txnindex`` on disk that has an entry, by base offset."""
        return index_files(self.site.files, self.log.directory)

    def expected_index_files(self) -> dict[int, bytes]:
        """Return what `index_files` must return once all entries are written."""
        bases = base_offsets(self.log)
        ends = [*bases[1:], self.log.log_end_offset]
        contents = {b: self.model.index_of(b, e) for b, e in zip(bases, ends, strict=True)}
        return {base: content for base, content in contents.items() if content}

    def check(self, *, max_bytes: int = 500) -> None:
        """Compare the last stable offset, and the records for consumers, with the model."""
        log, model = self.log, self.model
        assert log.log_end_offset == model.end_offset
        start = log.log_start_offset
        stable_offset = max(model.stable_offset(log.high_watermark), start)
        assert log.last_stable_offset == stable_offset
        known = model.aborted()
        assert read_committed(log, max_bytes=max_bytes, known=known) == model.committed(
            start, stable_offset
        )

    def check_reads_from_every_offset(self, *, max_bytes: int = 500) -> None:
        """Check a single read from each readable offset, whatever transaction it is in."""
        log, model = self.log, self.model
        known = model.aborted()
        for offset in range(log.log_start_offset, log.last_stable_offset):
            found, end = read_once(log, offset, max_bytes=max_bytes, known=known)
            assert found == model.committed(offset, end)


def marker_of(producer_id: int, producer_epoch: int, *, commits: bool) -> memoryview:
    """Return a marker as a transaction coordinator sends it."""
    control_type = ControlType.COMMIT if commits else ControlType.ABORT
    return memoryview(
        bytearray(
            marker_batch(0, control_type, producer_id=producer_id, producer_epoch=producer_epoch)
        )
    )


def index_files(files: SimFiles, directory: str) -> dict[int, bytes]:
    """Return the content of each ``.txnindex`` that has an entry, by base offset."""
    found = {}
    for name in files.listdir(directory):
        parsed = file_names.parse_segment_file_name(name)
        if parsed and parsed[1:] == (file_names.TXN_INDEX_SUFFIX, ""):
            found[parsed.base_offset] = files.read_file(f"{directory}/{name}")
    return {base_offset: content for base_offset, content in found.items() if content}


def read_committed(
    log: Log,
    *,
    max_bytes: int = 500,
    known: Collection[AbortedTransaction] | None = None,
) -> dict[int, bytes | None]:
    """Return the records that a read_committed consumer returns to its application."""
    offset, found = log.log_start_offset, {}
    while offset < log.last_stable_offset:
        some, offset = read_once(log, offset, max_bytes=max_bytes, known=known)
        found.update(some)
    return found


def read_once(
    log: Log,
    offset: int,
    *,
    max_bytes: int = 500,
    known: Collection[AbortedTransaction] | None = None,
) -> tuple[dict[int, bytes | None], int]:
    """Return the committed records of one read, and the offset at which the next read begins.

    Checks that the read lists only `known` aborted transactions.
    """
    end_offset = log.last_stable_offset
    data = log.read(offset, max_bytes, end_offset=end_offset, read_committed=True)
    assert data.region is not None
    payload = data.region.read()
    data.region.close()
    if known is not None:
        assert [one for one in data.aborted if one not in known] == []
    listed = [
        ListedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in data.aborted
    ]
    aborted, next_offset, found = AbortedTransactions(listed), offset, {}
    for position, header in iter_batches(payload):
        is_aborted = aborted.covers(payload, position, header)
        next_offset = header.next_offset
        if not header.is_control and not is_aborted:
            records = read_records(payload, position, header)
            found.update({r.offset: r.value for r in records if r.offset >= offset})
    assert offset < next_offset <= end_offset
    return found, next_offset
