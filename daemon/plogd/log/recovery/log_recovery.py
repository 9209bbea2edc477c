"""From a partition's directory to a log that can be used, whatever the last stop left behind.

After a clean stop little is read: the last segment's end, the newest producer snapshot, the
epochs. After a crash every segment from the recovery point on is read again from the disk itself:
what was not durable may be missing, torn or garbage, so the log is cut at the first batch that is
not whole, the indexes are rebuilt, and the rest is synced before it is used. Nothing found in a
directory keeps a log from being loaded; only the disk's own errors do.

The checkpoints and the producer snapshots prove what was durable, each without the other. Damage
below that is bit rot: it is kept and served around. A segment that recovery rejects is renamed to
``.stray``, never unlinked.

Records that were durable and are missing, because a file was cut short or removed, cannot be
restored; but their offsets are never given to other records. The log continues after them in a new
segment, and an error names what is missing.

One segment's recovery is in segment_recovery.py. Everything here is a job and touches only files
that are not in use yet. Source: Kafka 3.9 LogLoader; docs/architecture.md, rules R12 to R14.
Invariants: nothing below `LoadRequest.durable_end_offset` is cut; no log ends below it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace

from plog.records.batch import BatchHeader
from plogd.log import file_names
from plogd.log.disk.checkpoint_files import CorruptCheckpoint
from plogd.log.io_errors import is_refusal
from plogd.log.leader_epochs import LeaderEpochs
from plogd.log.log_state import LogState
from plogd.log.recovery.damage_report import DamageReport
from plogd.log.recovery.load_request import LoadRequest
from plogd.log.recovery.producer_recovery import load_producers
from plogd.log.recovery.segment_recovery import recover_segment, replay_readable
from plogd.log.recovery.stray_segments import take_out
from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Files, Report


def load_log(files: Files, request: LoadRequest, report: Report) -> LogState:
    """Load the log in an existing directory. Raises OSError only."""
    request = replace(request, durable_end_offset=_durable_end(files, request))
    findings = DamageReport(request.topic_partition, request.directory, report)
    _remove_leftovers(files, request.directory)
    segments = _open_segments(files, request)
    dropped: list[LogSegment] = []
    if request.log_start_offset <= segments[-1].base_offset:
        segments = _drop_below_start(segments, request, dropped)
    epochs = _load_epochs(files, request, segments, report)
    sealed = len(segments) if request.clean else _sealed_count(segments, request.recovery_point)
    ends = _mend_indexes(segments, sealed, request, findings, report)
    is_clean = request.clean and _is_whole(segments[-1], request)
    if request.clean and not is_clean:
        sealed = _sealed_count(segments, request.recovery_point)
    suspects, segments = segments[sealed:], _drop_overtaken(segments[:sealed])
    if suspects:
        segments += _recover(files, suspects, request, epochs, findings, ends)
    segments = _complete(files, request, segments, findings, ends, dropped)
    log_end_offset = _next_offset(segments[-1])
    log_start_offset = max(request.log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(log_start_offset)
    producer_state = load_producers(files, request, dropped, segments, log_end_offset, epochs)
    findings.epochs_too_high(epochs.too_high)
    epochs.highest = None
    for segment in segments:
        segment.release_indexes()
    recovery_point = log_end_offset if is_clean else segments[-1].base_offset
    if len(suspects) > 1 and not _write_epochs(epochs):
        recovery_point = min(recovery_point, suspects[0].base_offset)
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
        recovery_point=recovery_point,
    )


def _durable_end(files: Files, request: LoadRequest) -> int:
    """The offset below which every record is known to have been on the disk once.

    The checkpoints say so, unless they are missing. The name of a producer snapshot says so as
    well: sealing and a clean stop write it when all segments below its offset are synced.
    """
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
    """What a log can go on with: see what is gone, and leave no known offset to be given again."""
    log_end_offset = _next_offset(segments[-1])
    if log_end_offset >= request.log_start_offset:
        segments = _drop_below_start(segments, request, dropped)
    if not request.may_have_gaps:
        known_start = request.log_start_offset if request.knows_log_start else None
        findings.lost_before(segments, log_start_offset=known_start)
        findings.lost_between(segments, ends)
    log_start_offset = max(request.log_start_offset, segments[0].base_offset)
    durable_end_offset = max(log_start_offset, request.durable_end_offset)
    if log_end_offset < durable_end_offset or segments[-1].ends_damaged:
        return _go_on_behind_loss(files, request, segments, log_end_offset, findings)
    return segments


def _remove_leftovers(files: Files, directory: str) -> None:
    """Unlink what was on its way out, and indexes whose records are gone."""
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
        orphan = (
            parsed.base_offset not in with_records and parsed.suffix != file_names.SNAPSHOT_SUFFIX
        )
        if parsed.state in (file_names.DELETED_SUFFIX, file_names.CLEANED_SUFFIX) or orphan:
            files.unlink(posixpath.join(directory, name))


def _open_segments(files: Files, request: LoadRequest) -> list[LogSegment]:
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


def _write_epochs(epochs: LeaderEpochs) -> bool:
    """Write down what recovery learned, or the next one must learn it again; False: no room."""
    try:
        epochs.flush()
    except OSError as error:
        if not is_refusal(error):
            raise
        return False
    return True


def _drop_below_start(
    segments: list[LogSegment], request: LoadRequest, dropped: list[LogSegment]
) -> list[LogSegment]:
    """Part with what a deletion has left that a crash interrupted; the rest.

    The log's start was written before it began. What is parted with goes to `dropped`.
    """
    while len(segments) > 1 and segments[1].base_offset <= request.log_start_offset:
        dropped.append(segments[0])
        segments = segments[1:]
    return segments


def _drop_overtaken(segments: Sequence[LogSegment]) -> list[LogSegment]:
    """Drop empty segments that the one before goes on beyond.

    A roll that fails leaves one if it cannot be removed, or if a power loss undoes the removal; the
    log then goes on where it was.
    """
    kept: list[LogSegment] = []
    for segment in segments:
        if kept and not segment.size_bytes and _next_offset(kept[-1]) > segment.base_offset:
            segment.delete_files()
        else:
            kept.append(segment)
    return kept


def _load_epochs(
    files: Files, request: LoadRequest, segments: Sequence[LogSegment], report: Report
) -> LeaderEpochs:
    """The epochs as checkpointed; where that file is damaged, what all the batches say."""
    try:
        return LeaderEpochs.load(files, request.directory, highest=request.leader_epoch)
    except CorruptCheckpoint as error:
        report("rebuilding the leader epochs: {error}", error=str(error), level="warn")
    epochs = LeaderEpochs(files, request.directory, highest=request.leader_epoch)
    for segment in segments:
        replay_readable(segment, segment.base_offset, lambda _, header: _note_epoch(epochs, header))
    return epochs


def _is_whole(segment: LogSegment, request: LoadRequest) -> bool:
    """Whether a clean stop's last segment still has all that it had then."""
    return _next_offset(segment) >= request.durable_end_offset


def _sealed_count(segments: Sequence[LogSegment], recovery_point: int) -> int:
    """How many segments there are before the one that holds the recovery point.

    An empty one does not count as that: a roll that failed may have left it, after which the log
    went on in the segment before.
    """
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
    findings: DamageReport,
    ends: dict[int, int],
) -> list[LogSegment]:
    """Check all of the last segments; cut at the first batch that is not whole. What is left.

    `ends` gets the end offset of each.
    """
    kept: list[LogSegment] = []
    next_offset = suspects[0].base_offset
    for number, segment in enumerate(suspects):
        if segment.base_offset < next_offset and not segment.size_bytes:
            segment.delete_files()  # As in _drop_overtaken.
            continue
        is_torn = not kept or not kept[-1].ends_damaged
        if is_torn and _is_gap(next_offset, segment.base_offset, request.durable_end_offset):
            _take_out(files, suspects[number:], findings)
            break
        segment.records_file.drop_cache()
        following = [one.base_offset for one in suspects[number + 1 :] if one.size_bytes]
        recovered = recover_segment(
            segment,
            keep_below_offset=min([request.durable_end_offset, *following]),
            following_base_offset=min(following, default=None),
            on_batch=lambda _, header: _note_epoch(epochs, header),
        )
        kept.append(segment)
        next_offset = ends[segment.base_offset] = recovered.next_offset
        findings.of_segment(segment, recovered)
    _sync(files, request.directory, kept)
    return kept


def _is_gap(next_offset: int, following_base_offset: int, durable_end_offset: int) -> bool:
    """Whether records are missing between two segments and none of what follows is acknowledged.

    Compaction leaves gaps, but only in segments that were sealed. A gap below what is known to have
    been durable is damage to serve around: what follows may have been acknowledged.
    """
    return durable_end_offset <= next_offset < following_base_offset


def _take_out(files: Files, segments: Sequence[LogSegment], findings: DamageReport) -> None:
    for segment in reversed(segments):  # What a crash leaves must not have a hole in it.
        take_out(files, segment)
    findings.taken_out(segments, "records before them were never made durable and are lost")


def _sync(files: Files, directory: str, segments: Sequence[LogSegment]) -> None:
    """Make durable what recovery kept: it may have been in the page cache only (rule R13)."""
    for segment in segments:
        for file in segment.sync_files():
            file.sync()
    files.sync_dir(directory)


def _mend_indexes(
    segments: Sequence[LogSegment],
    count: int,
    request: LoadRequest,
    findings: DamageReport,
    report: Report,
) -> dict[int, int]:
    """Rebuild the indexes of the first `count` segments that plainly are not those of their own.

    Returns the end offset of each of them, by its base offset.
    """
    ends: dict[int, int] = {}
    for number, segment in enumerate(segments[:count]):
        try:
            ends[segment.base_offset] = segment.sanity_check()
        except (CorruptIndex, FileNotFoundError) as error:
            report("rebuilding an index: {error}", error=str(error), level="warn")
            # What precedes another segment was durable when that one was begun, or sealed.
            following = [one.base_offset for one in segments[number + 1 : number + 2]]
            recovered = recover_segment(
                segment,
                keep_below_offset=following[0] if following else request.durable_end_offset,
                following_base_offset=following[0] if following else None,
                on_batch=_nothing,
            )
            ends[segment.base_offset] = recovered.next_offset
            findings.of_segment(segment, recovered)
            for file in segment.sync_files():
                file.sync()
    return ends


def _nothing(position: int, header: BatchHeader) -> None:
    """Only the indexes are wanted."""


def _next_offset(segment: LogSegment) -> int:
    """The offset behind the segment's last batch; its base offset if it is empty."""
    next_offset = max([segment.base_offset, *(kept.end_offset for kept in segment.corrupt_ranges)])

    def note(position: int, header: BatchHeader) -> None:
        nonlocal next_offset
        next_offset = max(next_offset, header.next_offset)

    replay_readable(segment, segment.offset_index.last_entry.offset, note)
    return next_offset


def _go_on_behind_loss(
    files: Files,
    request: LoadRequest,
    segments: Sequence[LogSegment],
    log_end_offset: int,
    findings: DamageReport,
) -> list[LogSegment]:
    """Continue in a new segment a log that ends before what was durable, or in damage.

    Offsets below that end may have been shown to consumers, and must never show another record.
    """
    log_start_offset = request.log_start_offset
    lost_from = max(log_end_offset, log_start_offset)
    next_offset = max(lost_from, request.durable_end_offset)
    kept = list(segments)
    if log_end_offset < log_start_offset:
        findings.start_beyond_end(log_start_offset, log_end_offset, file_names.STRAY_SUFFIX)
        for segment in kept:
            take_out(files, segment)
        kept = []
    if lost_from < next_offset:
        findings.lost_at_end(lost_from, next_offset)
    while kept and not kept[-1].size_bytes:
        kept.pop().delete_files()
    if log_end_offset == log_start_offset and kept:
        for segment in reversed(kept):
            take_out(files, segment)
        findings.taken_out(kept, f"its records below offset {log_start_offset} were deleted")
        kept = []
    kept.append(LogSegment.create(files, request.directory, next_offset, request.config))
    files.sync_dir(request.directory)
    return kept


def _note_epoch(epochs: LeaderEpochs, header: BatchHeader) -> None:
    if header.partition_leader_epoch >= 0:
        epochs.assign(header.partition_leader_epoch, header.base_offset)
