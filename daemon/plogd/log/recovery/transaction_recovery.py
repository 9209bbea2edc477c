"""Rebuild transaction indexes from the batches of their segments.

After a crash, the ``.txnindex`` files of all segments that recovery reads are replaced: an entry
may be missing, or belong to a marker that was lost. The file of another segment is replaced if it
is damaged, or if the segment's other indexes are. log_recovery.py calls this module in its job.

An abort marker names only its producer, so a rebuild must know the transactions that were open
where the segment begins. The newest producer snapshot at or below that offset contains them.

Source: Kafka 3.9 LogSegment.recover, UnifiedLog.rebuildProducerState. Invariant: until the new file
is durable, the old one remains, or the next startup recovers the segment again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from plog.records.batch import BatchHeader
from plogd.log import file_names
from plogd.log.disk.checkpoint_files import write_atomic
from plogd.log.file_names import TXN_INDEX_SUFFIX, segment_path
from plogd.log.producer_snapshot import ProducerSnapshots
from plogd.log.producer_state import ProducerStateManager
from plogd.log.recovery.load_progress import LoadWork
from plogd.log.recovery.load_request import LoadRequest
from plogd.log.recovery.segment_recovery import (
    SegmentScan,
    replay_producers,
    replay_readable,
)
from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.transaction_index import AbortedTransaction, encode_entries
from plogd.ports import Files, Report


class TransactionRecovery:
    """Finds the aborted transactions in consecutive segments; `earlier` are those before them."""

    def __init__(self, files: Files, request: LoadRequest, earlier: Sequence[LogSegment]) -> None:
        self._files = files
        self._request = request
        self._earlier = earlier
        self._state: ProducerStateManager | None = None
        """The producers before the next batch; None as long as no batch is transactional."""
        self._aborted: list[AbortedTransaction] = []

    def note(self, segment: LogSegment, position: int, header: BatchHeader) -> None:
        """Include the next batch of `segment`."""
        if not header.is_transactional:
            return
        if self._state is None:
            self._state = self._load_state(segment.base_offset)
        replay_producers(segment, position, header, self._state, self._aborted.append)

    def replace_index(self, segment: LogSegment) -> None:
        """Durably replace the index of `segment`, whose batches have all been noted.

        Raises OSError, in particular if the disk is full: the log must not be used without the
        index.
        """
        aborted, self._aborted = self._aborted, []
        segment.transactions.close()  # It is open if this is the second recovery.
        path = segment_path(self._request.directory, segment.base_offset, TXN_INDEX_SUFFIX)
        if aborted:
            entries = encode_entries(aborted)
            # A full disk has no room for another file, but usually the old one is complete.
            if not self._files.exists(path) or self._files.read_file(path) != entries:
                write_atomic(self._files, path, entries)
            segment.transactions.open()
        elif self._files.exists(path):
            self._files.unlink(path)
            self._files.sync_dir(self._request.directory)

    def _load_state(self, base_offset: int) -> ProducerStateManager:
        """Return the producers of the records below `base_offset`."""
        request = self._request
        snapshots = ProducerSnapshots(self._files, request.directory)
        state = ProducerStateManager(snapshots, expiration_ms=request.producer_id_expiration_ms)
        start = state.load_newest(base_offset) or 0
        ends = [*(segment.base_offset for segment in self._earlier[1:]), base_offset]
        for segment, end_offset in zip(self._earlier, ends, strict=False):
            if end_offset > start:
                replay_readable(segment, start, _bind_replay(segment, state, request.work))
        return state


def open_transaction_indexes(
    files: Files, request: LoadRequest, segments: Sequence[LogSegment], report: Report
) -> None:
    """Open all indexes, and replace the damaged ones. Raises OSError."""
    # One call for all segments, of which few have an index.
    names = set(files.listdir(request.directory))
    for number, segment in enumerate(segments):
        name = file_names.segment_file_name(segment.base_offset, TXN_INDEX_SUFFIX)
        if name not in names or segment.transactions.index is not None:
            continue
        try:
            segment.transactions.open()
        except CorruptIndex as error:
            report(
                "rebuilding an index: {error}",
                error=str(error),
                topic_partition=request.topic_partition,
                level="warn",
            )
            recovery = TransactionRecovery(files, request, segments[:number])
            for found in _scan(segment, segments[number + 1 :], request):
                request.work.step()
                if found is not None:
                    recovery.note(segment, *found)
            recovery.replace_index(segment)


def _scan(
    segment: LogSegment, later: Sequence[LogSegment], request: LoadRequest
) -> Iterator[tuple[int, BatchHeader] | None]:
    """Scan a segment, including the batches after damage, which a later read reports."""
    following = later[0].base_offset if later else None
    return SegmentScan(
        segment.records,
        segment.base_offset,
        keep_below_offset=request.durable_end_offset if following is None else following,
        following_base_offset=following,
        may_have_gaps=request.may_have_gaps,
    ).steps()


def _bind_replay(
    segment: LogSegment, state: ProducerStateManager, work: LoadWork
) -> Callable[[int, BatchHeader], None]:
    def replay(position: int, header: BatchHeader) -> None:
        work.step()
        replay_producers(segment, position, header, state)

    return replay
