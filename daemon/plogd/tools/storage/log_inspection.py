"""Inspect a partition's log, which a Kafka broker wrote, before an import.

The functions only read, through a Files port. import_plan.py draws the conclusions.

Source: Kafka 3.9 LogLoader, ProducerStateManager; KIP-98 for open transactions.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct

from plog.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, parse_header
from plog.types import TopicPartition, Uuid
from plogd.log import file_names
from plogd.log.disk.checkpoint_files import CorruptCheckpoint, read_leader_epochs
from plogd.log.producer_snapshot import CorruptSnapshot, decode_snapshot
from plogd.log.recovery.log_discovery import topic_id_of
from plogd.ports import File, Files, size_of

_SMALLEST_BATCH = 26
"""Size in bytes of the smallest message (magic 0): 12 for its offset and size, 14 for the rest."""
_HEAD = Struct(">qiib")
"""Base offset, size, leader epoch (or, in old formats, the checksum), magic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBatch:
    """The header of a batch; `header` is None for a message with magic 0 or 1."""

    position: int
    base_offset: int
    size_bytes: int
    magic: int
    header: BatchHeader | None


@dataclass(slots=True, kw_only=True)
class LogFacts:
    """Facts that `inspect_log` found in a partition's directory."""

    topic_partition: TopicPartition
    log_dir: str
    """The source log directory that contains the partition."""
    directory: str
    topic_id: Uuid | None
    sizes: dict[str, int]
    """Sizes in bytes of the files to adopt, by name."""
    legacy_segments: list[int] = field(default_factory=list)
    """Base offsets of the segments that contain messages with magic 0 or 1."""
    leader_epoch: int = -1
    """The latest epoch in the leader epoch checkpoint or in a batch that was read."""
    open_producers: list[int] = field(default_factory=list)
    """Ids of producers with an unfinished transaction."""
    max_producer_id: int = -1

    @property
    def base_offsets(self) -> list[int]:
        """Base offsets of the segments, oldest first."""
        parsed = [file_names.parse_segment_file_name(name) for name in self.sizes]
        return sorted(
            x.base_offset for x in parsed if x and x.suffix == file_names.LOG_SUFFIX and not x.state
        )

    @property
    def size_bytes(self) -> int:
        """Total size of the files to adopt."""
        return sum(self.sizes.values())


def inspect_log(
    files: Files,
    log_dir: str,
    topic_partition: TopicPartition,
    *,
    clean: bool,
    may_hold_old_formats: bool,
) -> LogFacts:
    """Inspect one partition's directory. Raises OSError."""
    directory = posixpath.join(log_dir, file_names.partition_dir_name(topic_partition))
    facts = LogFacts(
        topic_partition=topic_partition,
        log_dir=log_dir,
        directory=directory,
        topic_id=topic_id_of(files, directory),
        sizes={},
    )
    for name in files.listdir(directory):
        parsed = file_names.parse_segment_file_name(name)
        if parsed is None:
            if name in (file_names.LEADER_EPOCH_CHECKPOINT, file_names.PARTITION_METADATA):
                facts.sizes[name] = size_of(files, posixpath.join(directory, name))
        # The first startup completes an interrupted compaction, whose files end in .swap. Files
        # with another state, such as .deleted, are leftovers that Kafka would remove.
        elif parsed.state in ("", file_names.SWAP_SUFFIX):
            facts.sizes[name] = size_of(files, posixpath.join(directory, name))
    _inspect_epochs(files, facts)
    _inspect_batches(files, facts, clean=clean, everything=may_hold_old_formats)
    return facts


def _inspect_epochs(files: Files, facts: LogFacts) -> None:
    try:
        entries = read_leader_epochs(files, facts.directory)
    except CorruptCheckpoint:
        # Recovery rebuilds the checkpoint from the batches, which are also inspected.
        return
    if entries:
        facts.leader_epoch = entries[-1].epoch


def _inspect_batches(files: Files, facts: LogFacts, *, clean: bool, everything: bool) -> None:
    snapshot_offset, open_producers = _newest_snapshot(files, facts)
    if clean and snapshot_offset < 0 and facts.base_offsets:
        # A clean shutdown writes a snapshot. Without one, read all batches.
        clean = False
    base_offsets = facts.base_offsets
    for number, base_offset in enumerate(base_offsets):
        following = base_offsets[number + 1 : number + 2]
        is_tail = not clean and not (following and following[0] <= snapshot_offset)
        magics = set()
        for batch in walk_segment(files, facts.directory, base_offset):
            magics.add(batch.magic)
            if batch.header is not None:
                _note(facts, batch.header)
                # The snapshot contains the transactions of earlier batches.
                if batch.header.last_offset >= snapshot_offset:
                    _follow_transaction(batch.header, open_producers)
            # After a clean shutdown, and without old formats, the first header is enough: later
            # batches do not add any facts that the snapshot and the checkpoints lack.
            if not (everything or is_tail):
                break
        if magics & {0, 1}:
            facts.legacy_segments.append(base_offset)
    facts.open_producers = sorted(open_producers)


def _note(facts: LogFacts, header: BatchHeader) -> None:
    facts.leader_epoch = max(facts.leader_epoch, header.partition_leader_epoch)
    facts.max_producer_id = max(facts.max_producer_id, header.producer_id)


def _follow_transaction(header: BatchHeader, open_producers: set[int]) -> None:
    if not header.is_transactional:
        return
    if header.is_control:
        # A marker ends the transaction, whether it commits or aborts.
        open_producers.discard(header.producer_id)
    else:
        open_producers.add(header.producer_id)


def _newest_snapshot(files: Files, facts: LogFacts) -> tuple[int, set[int]]:
    """Return the offset of the newest readable snapshot, or -1, and its open transactions.

    Transactions are identified by their producer ids.
    """
    parsed = [(file_names.parse_segment_file_name(name), name) for name in facts.sizes]
    snapshots = sorted(
        (x.base_offset, name) for x, name in parsed if x and x.suffix == file_names.SNAPSHOT_SUFFIX
    )
    while snapshots:
        offset, name = snapshots.pop()
        try:
            entries = decode_snapshot(files.read_file(posixpath.join(facts.directory, name)))
        # Kafka also falls back to the next older snapshot.
        except CorruptSnapshot:
            continue
        for entry in entries:
            # Retention may have deleted all its batches, but the id must not be assigned again.
            facts.max_producer_id = max(facts.max_producer_id, entry.producer_id)
        return offset, {x.producer_id for x in entries if x.current_txn_first_offset >= 0}
    return -1, set()


def walk_segment(files: Files, directory: str, base_offset: int) -> Iterator[FoundBatch]:
    """Yield the batches of a segment, up to the first bytes that are not a batch."""
    file = files.open_read(file_names.segment_path(directory, base_offset, file_names.LOG_SUFFIX))
    try:
        yield from walk_file(file)
    finally:
        file.close()


def walk_file(file: File) -> Iterator[FoundBatch]:
    """Yield the batches of an open segment file, with any magic; see `walk_segment`."""
    position, end = 0, file.size()
    while end - position >= _SMALLEST_BATCH:
        data = file.pread(HEADER_SIZE, position)
        base_offset, length, _, magic = _HEAD.unpack_from(data)
        size = length + LOG_OVERHEAD
        # A size below this could lead the walk into the middle of a batch.
        smallest = HEADER_SIZE if magic == 2 else _SMALLEST_BATCH
        # A crash can leave any bytes at the end, including zeros.
        if magic not in (0, 1, 2) or size < smallest or position + size > end:
            return
        yield FoundBatch(
            position=position,
            base_offset=base_offset,
            size_bytes=size,
            magic=magic,
            header=parse_header(data) if magic == 2 else None,
        )
        position += size
