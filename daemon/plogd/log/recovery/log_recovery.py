"""Load a log from its directory, and recover the log after a crash.

After a clean stop, loading reads only the batches after the last index entry of the log, the ends
of the indexes, the newest producer snapshot and the leader epochs (unchanged_files.py has the
exception). After a crash, it reads all segments from the recovery point on; what may not be durable
is read from the disk and not from the page cache. This data may be missing, torn or garbage:
recovery truncates the log at the first incomplete batch, rebuilds the indexes, and syncs the files
before the log is used. Only disk errors prevent loading, regardless of what the files contain.

The checkpoints and the producer snapshots prove up to which offset records were durable. Damage
below this offset is bit rot: the damaged bytes are kept, and the other records are served. A
segment that recovery rejects is renamed to ``.stray``, never unlinked.

If a file was truncated or removed, durable records are missing. They cannot be restored, but their
offsets are never assigned to other records: the log continues after these offsets in a new segment,
and an error with the missing offsets is logged. If other brokers have replicas, every loss is
marked (log_loss.py), and the log ends where its end is missing, so that it can be copied again.

segment_recovery.py recovers one segment. All functions run in jobs, and access only files that are
not in use yet. Source: Kafka 3.9 LogLoader; docs/architecture.md, rules R12 to R14. Invariants:
nothing below `LoadRequest.durable_end_offset` is truncated; no log ends below this offset.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from plog.records.batch import BatchHeader
from plogd.log import file_names
from plogd.log.disk.checkpoint_files import sync_topic_id
from plogd.log.io_errors import is_refusal
from plogd.log.leader_epochs import LeaderEpochs
from plogd.log.log_loss import LossMark
from plogd.log.log_state import LogState
from plogd.log.recovery.damage_report import DamageReport
from plogd.log.recovery.epoch_recovery import load_epochs, note_epoch
from plogd.log.recovery.load_request import LoadRequest
from plogd.log.recovery.producer_recovery import load_producers
from plogd.log.recovery.segment_recovery import recover_steps, replay_readable, run_steps
from plogd.log.recovery.stray_segments import mark_stray
from plogd.log.recovery.swap_recovery import complete_swaps
from plogd.log.recovery.transaction_recovery import (
    TransactionRecovery,
    open_transaction_indexes,
)
from plogd.log.recovery.unchanged_files import UnchangedFiles
from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.sanity_check import check_indexes, sanity_check
from plogd.ports import Files, Report


def load_log(files: Files, request: LoadRequest, report: Report) -> LogState:
    """Load the log in an existing directory. Raises OSError or LoadingStopped."""
    return run_steps(load_steps(files, request, report))


def load_steps(
    files: Files, request: LoadRequest, report: Report
) -> Generator[None, None, LogState]:
    """Load a log as `load_log` does, and yield after each step of recovery."""
    # A clean log is loaded even if the broker is stopping: loading is fast, and the log stays
    # clean.
    if not request.clean:
        request.work.check()
    request = replace(request, durable_end_offset=_durable_end(files, request))
    mark = LossMark(files, request.directory, is_kept=request.has_other_replicas)
    findings = DamageReport(request.topic_partition, request.directory, report, mark.note)
    unchanged = UnchangedFiles(files, request)
    segments = _open_segments(files, request)
    dropped: list[LogSegment] = []
    # If the log start offset is higher, the log may end below it, which `_complete` detects.
    if request.log_start_offset <= segments[-1].base_offset:
        segments = _drop_below_start(segments, request, dropped, {})
    epochs = load_epochs(files, request, segments, report)
    sealed = len(segments) if request.clean else _sealed_count(segments, request.recovery_point)
    ends = yield from _repair_indexes(files, segments, sealed, request, unchanged, findings, report)
    # Even after a clean stop, a file may have been truncated while no broker was running.
    is_clean = request.clean and _next_offset(segments[-1], ends) >= request.durable_end_offset
    if request.clean and not is_clean:
        sealed = _sealed_count(segments, request.recovery_point)
    skip: set[int] = set()
    suspects, segments = segments[sealed:], _drop_overtaken(segments[:sealed], ends)
    transactions = TransactionRecovery(files, request, [*dropped, *segments])
    if suspects:
        segments += yield from _recover(
            files, suspects, request, epochs, transactions, findings, ends, skip
        )
    segments = _complete(files, request, segments, findings, ends, dropped)
    log_end_offset = _next_offset(segments[-1], ends)
    log_start_offset = max(request.log_start_offset, segments[0].base_offset)
    # Before load_producers, whose replay only adds epochs above the newest entry.
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(log_start_offset)
    open_transaction_indexes(files, request, segments, report)
    producer_state = load_producers(files, request, dropped, segments, log_end_offset, epochs, skip)
    findings.epochs_too_high(epochs.too_high)
    epochs.highest = None  # The limit is for recovered batches; later epochs will be higher.
    _release_indexes(segments)
    # After recovery, all segments are durable, but there is no snapshot at the active one's end.
    recovery_point = log_end_offset if is_clean else segments[-1].base_offset
    return LogState(
        topic_partition=request.topic_partition,
        topic_id=request.topic_id,
        directory=request.directory,
        log_dir=request.log_dir,
        config=request.config,
        segments=segments,
        leader_epochs=epochs,
        producer_state=producer_state,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        high_watermark=min(max(request.high_watermark, log_start_offset), log_end_offset),
        recovery_point=_with_epochs(recovery_point, suspects, epochs),
        loss=mark.loss,
    )


def _release_indexes(segments: Sequence[LogSegment]) -> None:
    # A log may have thousands of segments; the next lookup opens a segment's indexes again.
    for segment in segments:
        segment.release_indexes()


def _durable_end(files: Files, request: LoadRequest) -> int:
    """Return the offset below which every record is known to have been on disk."""
    # The checkpoints may be missing. A snapshot also proves that the records below it are durable,
    # because seals and a clean stop sync all segments below the offset before they write it.
    snapshots = (
        parsed.base_offset
        for name in files.listdir(request.directory)
        if (parsed := file_names.parse_segment_file_name(name)) is not None
        and parsed.suffix == file_names.SNAPSHOT_SUFFIX
        and not parsed.state
    )
    return max(request.high_watermark, request.recovery_point, *snapshots, 0)


def _complete(
    files: Files,
    request: LoadRequest,
    segments: list[LogSegment],
    findings: DamageReport,
    ends: Mapping[int, int],
    dropped: list[LogSegment],
) -> list[LogSegment]:
    """Report missing records; return segments that do not end below any known offset."""
    log_end_offset = _next_offset(segments[-1], ends)
    if log_end_offset >= request.log_start_offset:
        segments = _drop_below_start(segments, request, dropped, ends)
    if not request.may_have_gaps:
        # A truncation of all records may have begun to lower the start of the log.
        is_known = request.knows_log_start and request.log_start_offset < request.durable_end_offset
        known_start = request.log_start_offset if is_known else None
        findings.lost_before(segments, log_start_offset=known_start)
        findings.lost_between(segments, ends)
    log_start_offset = max(request.log_start_offset, segments[0].base_offset)
    durable_end_offset = max(log_start_offset, request.durable_end_offset)
    if log_end_offset < durable_end_offset or segments[-1].ends_damaged:
        return _continue_after_loss(files, request, segments, log_end_offset, findings)
    return segments


def _remove_leftovers(files: Files, directory: str) -> None:
    """Unlink files that are marked for deletion, and index files without a records file."""
    found = [
        (name, parsed)
        for name in files.listdir(directory)
        if (parsed := file_names.parse_segment_file_name(name)) is not None
    ]
    with_records = {
        parsed.base_offset
        for _, parsed in found
        if parsed.suffix == file_names.LOG_SUFFIX and not parsed.state
    }
    for name, parsed in found:
        # Snapshots can outlive their segments; producer_recovery.py removes stray snapshots.
        orphan = (
            parsed.base_offset not in with_records and parsed.suffix != file_names.SNAPSHOT_SUFFIX
        )
        if parsed.state in (file_names.DELETED_SUFFIX, file_names.CLEANED_SUFFIX) or orphan:
            files.unlink(posixpath.join(directory, name))


def _open_segments(files: Files, request: LoadRequest) -> list[LogSegment]:
    """Complete what a crash has interrupted, and open all segments; there is at least one."""
    complete_swaps(files, request)
    _remove_leftovers(files, request.directory)
    base_offsets = sorted(
        parsed.base_offset
        for name in files.listdir(request.directory)
        if (parsed := file_names.parse_segment_file_name(name)) is not None
        and parsed.suffix == file_names.LOG_SUFFIX
        and not parsed.state
    )
    if not base_offsets:
        return [
            LogSegment.create(files, request.directory, request.log_start_offset, request.config)
        ]
    return [
        LogSegment(files, request.directory, base_offset, request.config)
        for base_offset in base_offsets
    ]


def _with_epochs(recovery_point: int, suspects: Sequence[LogSegment], epochs: LeaderEpochs) -> int:
    """Write the epochs found in `suspects`; return the recovery point, lowered if that fails."""
    # If they could not be written, the next startup must find them in the batches again.
    if len(suspects) > 1 and not _write_epochs(epochs):
        return min(recovery_point, suspects[0].base_offset)
    return recovery_point


def _write_epochs(epochs: LeaderEpochs) -> bool:
    """Write the epochs that recovery found; return False if the disk is full."""
    try:
        epochs.flush()
    except OSError as error:
        if not is_refusal(error):
            raise
        return False
    return True


def _drop_below_start(
    segments: list[LogSegment],
    request: LoadRequest,
    dropped: list[LogSegment],
    ends: Mapping[int, int],
) -> list[LogSegment]:
    """Move segments that an interrupted deletion has left to `dropped`; return the others.

    `ends` contains known end offsets by base offset.
    """
    while len(segments) > 1 and _is_below_start(segments[0], segments[1], request, ends):
        dropped.append(segments[0])
        segments = segments[1:]
    return segments


def _is_below_start(
    segment: LogSegment, following: LogSegment, request: LoadRequest, ends: Mapping[int, int]
) -> bool:
    # A deletion writes the log start offset before it renames the first file.
    if following.base_offset <= request.log_start_offset:
        return True
    # On a full disk, an earlier startup may have kept this segment for its producers
    # (producer_recovery.py), and retention may since have deleted the segments after it. If the
    # segment is damaged, its real end is not known, so it is kept.
    end_offset = ends.get(segment.base_offset, following.base_offset)
    is_whole = not segment.corrupt_ranges and not segment.ends_damaged
    return is_whole and segment.base_offset < end_offset <= request.log_start_offset


def _drop_overtaken(segments: Sequence[LogSegment], ends: Mapping[int, int]) -> list[LogSegment]:
    """Delete empty segments that begin at an offset in the preceding segment."""
    kept: list[LogSegment] = []
    for segment in segments:
        # Left by a failed roll, after which appends continued in the old segment: the files could
        # not be removed, or a power loss has undone their removal.
        if kept and not segment.size_bytes and _next_offset(kept[-1], ends) > segment.base_offset:
            segment.delete_files()
        else:
            kept.append(segment)
    return kept


def _sealed_count(segments: Sequence[LogSegment], recovery_point: int) -> int:
    """Return the number of segments before the segment that contains the recovery point."""
    # Empty segments are ignored: a failed roll may have left an empty segment, after which appends
    # continued in the preceding segment.
    return max(
        (
            number
            for number, segment in enumerate(segments)
            if segment.size_bytes and segment.base_offset <= recovery_point
        ),
        default=0,
    )


def _recover(
    files: Files,
    suspects: Sequence[LogSegment],
    request: LoadRequest,
    epochs: LeaderEpochs,
    transactions: TransactionRecovery,
    findings: DamageReport,
    ends: dict[int, int],
    without_producers: set[int],
) -> Generator[None, None, list[LogSegment]]:
    """Recover the segments that may not be durable, and return the segments to keep.

    Truncates the log at the first incomplete batch. Adds the end offset of each segment to `ends`,
    and the base offset of each segment without idempotent producers to `without_producers`.
    """
    # Index rebuilds may have scanned bytes that were not included in the estimate.
    request.work.expected_bytes = request.work.scanned_bytes + sum(s.size_bytes for s in suspects)
    kept: list[LogSegment] = []
    next_offset = suspects[0].base_offset
    for number, segment in enumerate(suspects):
        if segment.base_offset < next_offset and not segment.size_bytes:
            segment.delete_files()  # As in _drop_overtaken.
            continue
        is_torn = not kept or not kept[-1].ends_damaged
        if is_torn and _is_gap(next_offset, segment.base_offset, request.durable_end_offset):
            _reject(files, suspects[number:], findings)
            break
        # This segment contains no offsets at or above the base offset of the next segment.
        following = [one.base_offset for one in suspects[number + 1 :] if one.size_bytes]
        recovered = yield from recover_steps(
            segment,
            keep_below_offset=min([request.durable_end_offset, *following]),
            following_base_offset=min(following, default=None),
            may_have_gaps=request.may_have_gaps,
            # Above this offset, the page cache may contain pages that were never written (R13).
            uncached_from_offset=request.durable_end_offset,
            on_batch=_bind_note(segment, epochs, transactions),
            is_epoch_known=lambda header: header.partition_leader_epoch == epochs.latest_epoch,
            work=request.work,
        )
        transactions.replace_index(segment)
        kept.append(segment)
        next_offset = ends[segment.base_offset] = recovered.next_offset
        findings.of_segment(segment, recovered)
        if not recovered.has_producers:
            without_producers.add(segment.base_offset)
    _sync(files, request, kept)
    return kept


def _is_gap(next_offset: int, following_base_offset: int, durable_end_offset: int) -> bool:
    """Return whether records are missing between two segments, above all acknowledged records."""
    # Compaction also leaves gaps, but only in sealed segments. A gap below the durable end is
    # damage; reads continue after it, because later records may have been acknowledged.
    return durable_end_offset <= next_offset < following_base_offset


def _reject(files: Files, segments: Sequence[LogSegment], findings: DamageReport) -> None:
    for segment in reversed(segments):  # Newest first, so that a crash cannot leave a gap.
        mark_stray(files, segment)
    findings.rejected(segments, "records before these segments were never durable and are lost")


def _sync(files: Files, request: LoadRequest, segments: Sequence[LogSegment]) -> None:
    """Sync the recovered segments, because parts may be only in the page cache (rule R13)."""
    for segment in segments:
        for file in segment.sync_files():
            request.work.step()
            file.sync()
    # The log's creation may have been interrupted before its topic id was durable. A log with
    # records has a durable topic id (creation.py).
    if not any(segment.size_bytes for segment in segments):
        sync_topic_id(files, request.directory)
    files.sync_dir(request.directory)


def _repair_indexes(
    files: Files,
    segments: Sequence[LogSegment],
    count: int,
    request: LoadRequest,
    unchanged: UnchangedFiles,
    findings: DamageReport,
    report: Report,
) -> Generator[None, None, dict[int, int]]:
    """Rebuild the indexes of the first `count` segments where they fail the sanity check.

    Returns the end offsets of these segments, by base offset, as far as they are known: after a
    clean stop, only the last segment is read, unless files have changed.
    """
    ends: dict[int, int] = {}
    for number, segment in enumerate(segments[:count]):
        try:
            is_unchanged = unchanged.includes(segment)
            if is_unchanged and segment is not segments[-1]:
                check_indexes(segment)
            else:
                ends[segment.base_offset] = sanity_check(segment, only_end=is_unchanged)
        except (CorruptIndex, FileNotFoundError) as error:
            report(
                "rebuilding an index: {error}",
                error=str(error),
                topic_partition=request.topic_partition,
                level="warn",
            )
            # A sealed segment is durable up to its end, the last one only to durable_end_offset.
            following = [one.base_offset for one in segments[number + 1 : number + 2]]
            # The transaction index may be missing, too, and must be replaced first: the next
            # startup would not notice that it is missing once the other indexes exist.
            transactions = TransactionRecovery(files, request, segments[:number])
            recovered = yield from recover_steps(
                segment,
                keep_below_offset=following[0] if following else request.durable_end_offset,
                following_base_offset=following[0] if following else None,
                may_have_gaps=request.may_have_gaps,
                on_batch=_bind_note(segment, None, transactions),
                on_scanned=partial(transactions.replace_index, segment),
                work=request.work,
            )
            ends[segment.base_offset] = recovered.next_offset
            findings.of_segment(segment, recovered)
            for file in segment.sync_files():
                file.sync()
    return ends


def _bind_note(
    segment: LogSegment, epochs: LeaderEpochs | None, transactions: TransactionRecovery
) -> Callable[[int, BatchHeader], None]:
    def note(position: int, header: BatchHeader) -> None:
        if epochs is not None:
            note_epoch(epochs, header)
        transactions.note(segment, position, header)

    return note


def _next_offset(segment: LogSegment, ends: Mapping[int, int]) -> int:
    """Return the offset after the segment's last batch, or the base offset if it is empty.

    `ends` contains the offsets that are already known, by base offset.
    """
    if segment.base_offset in ends:
        return ends[segment.base_offset]
    # Damage at the end of the segment includes offsets that are in no valid batch.
    next_offset = max([segment.base_offset, *(kept.end_offset for kept in segment.corrupt_ranges)])

    def note(position: int, header: BatchHeader) -> None:
        nonlocal next_offset
        next_offset = max(next_offset, header.next_offset)

    replay_readable(segment, segment.indexes.last_offset_entry.offset, note)
    return next_offset


def _continue_after_loss(
    files: Files,
    request: LoadRequest,
    segments: Sequence[LogSegment],
    log_end_offset: int,
    findings: DamageReport,
) -> list[LogSegment]:
    """Add a new segment to a log that ends below its durable end, or in damage."""
    # Consumers may have read all offsets below the durable end, so new records must not reuse them.
    log_start_offset = request.log_start_offset
    lost_from = max(log_end_offset, log_start_offset)
    next_offset = max(lost_from, request.durable_end_offset)
    kept = list(segments)
    if log_end_offset < log_start_offset:
        findings.start_beyond_end(log_start_offset, log_end_offset, file_names.STRAY_SUFFIX)
        for segment in kept:
            mark_stray(files, segment)
        kept = []
    if lost_from < next_offset:
        continues = not request.has_other_replicas
        findings.lost_at_end(lost_from, next_offset, continues=continues)
        if not continues:
            # Otherwise, as the leader, this replica would make the others remove what it lacks.
            if kept and not kept[-1].ends_damaged:
                return kept
            next_offset = lost_from
    # An empty segment could have the same base offset as the new segment.
    while kept and not kept[-1].size_bytes:
        kept.pop().delete_files()
    if log_end_offset == log_start_offset and kept:
        for segment in reversed(kept):
            mark_stray(files, segment)
        findings.rejected(kept, f"the records below offset {log_start_offset} were deleted")
        kept = []
    kept.append(LogSegment.create(files, request.directory, next_offset, request.config))
    files.sync_dir(request.directory)
    return kept
