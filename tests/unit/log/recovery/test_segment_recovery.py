"""Recovery of a segment after any crash or damage."""

from __future__ import annotations

import errno
import random
import struct

import pytest

from plog.records.batch import BatchHeader, Compression, set_base_offset_and_epoch
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType, encode_control_key, encode_end_txn_value
from plogd.log import file_names
from plogd.log.leader_epochs import LeaderEpochs
from plogd.log.producer_snapshot import ProducerSnapshots
from plogd.log.producer_state import ProducerStateManager
from plogd.log.recovery.segment_recovery import (
    RecoveredSegment,
    recover_steps,
    replay_batch,
    replay_segment,
    run_steps,
)
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.sanity_check import sanity_check
from tests.helpers.log.log_data import SMALL, T0, append, client_batch, fill, next_offset
from tests.helpers.sim.sim_files import SimCrash, SimFiles

BASE = 500
LOG = f"/log/{file_names.segment_file_name(BASE, '.log')}"
INDEX = f"/log/{file_names.segment_file_name(BASE, '.index')}"
TIME_INDEX = f"/log/{file_names.segment_file_name(BASE, '.timeindex')}"


def _segment(batches: int = 10, **how: int) -> tuple[SimFiles, LogSegment]:
    files = SimFiles(["/log"])
    segment = LogSegment.create(files, "/log", BASE, SMALL)
    fill(segment, batches, **how)
    segment.on_become_inactive()
    return files, segment


def _open(files: SimFiles) -> LogSegment:
    return LogSegment(files, "/log", BASE, SMALL)


def _recover(
    files: SimFiles, keep_below_offset: int = 0
) -> tuple[LogSegment, RecoveredSegment, list[int]]:
    segment = _open(files)
    seen: list[int] = []

    def note(position: int, header: BatchHeader) -> None:
        seen.append(header.base_offset)

    found = run_steps(recover_steps(segment, keep_below_offset=keep_below_offset, on_batch=note))
    if not any(damaged.end_position == segment.size_bytes for damaged in found.corrupt_ranges):
        sanity_check(segment)
    return segment, found, seen


def test_valid_segment_is_unchanged_and_gets_the_same_indexes() -> None:
    files, segment = _segment(60, records=3)
    before = [files.read_file(path) for path in (LOG, INDEX, TIME_INDEX)]
    files.overwrite(INDEX, b"\x33" * 50)
    files.unlink(TIME_INDEX)
    recovered, found, seen = _recover(files)
    assert [files.read_file(path) for path in (LOG, INDEX, TIME_INDEX)] == before
    assert found == RecoveredSegment(
        next_offset=BASE + 180,
        truncated_bytes=0,
        reason="",
        corrupt_ranges=(),
        has_producers=False,
    )
    assert seen == list(range(BASE, BASE + 180, 3))
    assert recovered.max_timestamp == segment.max_timestamp


def test_empty_segment_is_valid() -> None:
    files, _ = _segment(0)
    _, found, seen = _recover(files)
    assert (found.next_offset, found.truncated_bytes, seen) == (BASE, 0, [])


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_segment_torn_at_any_byte_is_truncated_after_the_last_whole_batch(
    compression: Compression,
) -> None:
    files, segment = _segment(3)
    sound_bytes = segment.size_bytes
    append(segment, client_batch(5, value=b"v" * 50, compression=compression), BASE + 3)
    content = files.read_file(LOG)
    for cut in range(sound_bytes, len(content)):
        files.overwrite(LOG, content[:cut])
        recovered, found, seen = _recover(files)
        assert (found.next_offset, recovered.size_bytes) == (BASE + 3, sound_bytes)
        assert found.truncated_bytes == cut - sound_bytes
        assert bool(found.reason) == (cut > sound_bytes)
        assert len(seen) == 3


TAILS = {
    "zeros": bytes(4096),
    "ones": b"\xff" * 4096,
    "random": random.Random(1).randbytes(4096),
    "length 0": struct.pack(">qiib", BASE + 10, 0, 0, 2) + bytes(100),
    "length negative": struct.pack(">qiib", BASE + 10, -5, 0, 2) + bytes(100),
    "length huge": struct.pack(">qiib", BASE + 10, 2**31 - 1, 0, 2) + bytes(100),
    "magic 1": struct.pack(">qiib", BASE + 10, 60, 0, 1) + bytes(100),
}


@pytest.mark.parametrize("tail", TAILS)
def test_garbage_after_the_last_batch_is_truncated(tail: str) -> None:
    files, _ = _segment()
    content = files.read_file(LOG)
    files.overwrite(LOG, content + TAILS[tail])
    recovered, found, _ = _recover(files)
    assert files.read_file(LOG) == content
    assert found.truncated_bytes == len(TAILS[tail])
    assert append(recovered, client_batch(), found.next_offset) == BASE + 11


@pytest.mark.parametrize("stale_offset", [BASE - 5, BASE, BASE + 9, BASE + 2**31])
def test_stale_batch_after_the_last_one_is_truncated(stale_offset: int) -> None:
    """A valid batch with an impossible offset is old data in a reused block."""
    files, _ = _segment()
    content = files.read_file(LOG)
    stale = client_batch()
    set_base_offset_and_epoch(stale, 0, stale_offset, 0)
    files.overwrite(LOG, content + stale)
    _, found, _ = _recover(files)
    assert files.read_file(LOG) == content
    assert "offsets" in found.reason


def test_gap_left_by_compaction_is_kept() -> None:
    files, segment = _segment()
    append(segment, client_batch(), BASE + 50)
    _, found, _ = _recover(files)
    assert (found.next_offset, found.truncated_bytes) == (BASE + 51, 0)


def test_bit_flip_above_the_high_watermark_truncates_there() -> None:
    files, segment = _segment()
    place = segment.find_offset(BASE + 6)
    assert place is not None
    content = bytearray(files.read_file(LOG))
    content[place.position + 80] ^= 1
    files.overwrite(LOG, bytes(content))
    recovered, found, seen = _recover(files, keep_below_offset=BASE + 6)
    assert (found.next_offset, recovered.size_bytes) == (BASE + 6, place.position)
    assert "checksum" in found.reason
    assert seen == list(range(BASE, BASE + 6))


@pytest.mark.parametrize("byte", [0, 7, 8, 11, 16, 17, 30, 60, 100, 170])
@pytest.mark.parametrize("number", [0, 6])
def test_bit_flip_below_the_high_watermark_damages_only_its_batch(byte: int, number: int) -> None:
    files, segment = _segment()
    places = list(segment.records.places_from())
    content = bytearray(files.read_file(LOG))
    content[places[number].position + byte] ^= 0x40
    files.overwrite(LOG, bytes(content))
    recovered, found, seen = _recover(files, keep_below_offset=BASE + 10)
    assert found.truncated_bytes == 0
    assert found.next_offset == BASE + 10
    assert seen == [BASE + n for n in range(10) if n != number]
    (damaged,) = found.corrupt_ranges
    assert (damaged.base_offset, damaged.end_offset) == (BASE + number, BASE + number + 1)
    for offset in range(BASE + number + 1, BASE + 10):
        region = recovered.read(offset, 1, max_position=recovered.size_bytes, at_least_one=True)
        assert region is not None
        assert region.position == places[offset - BASE].position
        region.close()


def test_batch_inside_a_damaged_payload_is_not_the_next_batch() -> None:
    """A producer may send anything, even bytes that look like a batch."""
    files, segment = _segment(2)
    inner = client_batch(value=b"forged")
    set_base_offset_and_epoch(inner, 0, BASE + 3, 0)
    append(segment, client_batch(value=bytes(inner)), BASE + 2)
    append(segment, client_batch(), BASE + 3)
    place = segment.find_offset(BASE + 2)
    assert place is not None
    content = bytearray(files.read_file(LOG))
    content[place.position + 70] ^= 1
    files.overwrite(LOG, bytes(content))
    _, found, seen = _recover(files, keep_below_offset=BASE + 4)
    assert seen == [BASE, BASE + 1, BASE + 3]
    assert found.corrupt_ranges[0].end_position == place.position + place.size_bytes


def test_damaged_last_batch_below_the_high_watermark_is_kept_if_its_header_is_valid() -> None:
    files, _ = _segment()
    content = bytearray(files.read_file(LOG))
    content[-1] ^= 1
    files.overwrite(LOG, bytes(content))
    _, found, _ = _recover(files, keep_below_offset=BASE + 10)
    assert (found.next_offset, found.truncated_bytes) == (BASE + 10, 0)
    assert found.corrupt_ranges[0].base_offset == BASE + 9


def test_garbage_tail_covers_all_offsets_below_the_high_watermark() -> None:
    """R14. Nothing is appended after it: log_recovery.py begins a new segment."""
    files, segment = _segment()
    place = segment.find_offset(BASE + 8)
    assert place is not None
    files.overwrite(LOG, files.read_file(LOG)[: place.position] + bytes(300))
    _, found, _ = _recover(files, keep_below_offset=BASE + 10)
    assert (found.next_offset, found.truncated_bytes) == (BASE + 10, 0)
    [damaged] = found.corrupt_ranges
    assert (damaged.base_offset, damaged.end_offset) == (BASE + 8, BASE + 10)
    assert damaged.end_position - damaged.position == 300


def test_batches_larger_than_a_chunk_are_checked_whole() -> None:
    files, segment = _segment(2)
    append(segment, client_batch(value=b"v" * (5 << 20)), BASE + 2)
    append(segment, client_batch(), BASE + 3)
    assert _recover(files)[1].next_offset == BASE + 4
    content = bytearray(files.read_file(LOG))
    content[4 << 20] ^= 1
    files.overwrite(LOG, bytes(content))
    assert _recover(files)[1].next_offset == BASE + 2


def test_damage_longer_than_a_chunk_is_skipped() -> None:
    files, segment = _segment(2)
    append(segment, client_batch(value=b"\2" * 100_000 + b"v" * (2 << 20)), BASE + 2)
    append(segment, client_batch(), BASE + 3)
    place = segment.find_offset(BASE + 2)
    assert place is not None
    content = bytearray(files.read_file(LOG))
    content[place.position + 8] ^= 0x7F
    files.overwrite(LOG, bytes(content))
    _, found, seen = _recover(files, keep_below_offset=BASE + 4)
    assert (seen, found.next_offset) == ([BASE, BASE + 1, BASE + 3], BASE + 4)


def test_lowered_index_size_leaves_the_rest_without_entries() -> None:
    files, _ = _segment(60)
    small = LogSegment(
        files, "/log", BASE, type(SMALL)(index_interval_bytes=300, segment_index_bytes=60)
    )
    run_steps(recover_steps(small, keep_below_offset=0, on_batch=lambda position, header: None))
    assert (small.offset_index.count, small.time_index.count) == (4, 5)
    assert next_offset(small) == BASE + 60


# -- power loss -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_power_loss_keeps_a_prefix_with_all_synced_batches(seed: int) -> None:
    chance = random.Random(seed)
    files, segment = _segment(0)
    files.sync_dir("/log")
    durable, offset = BASE, BASE
    files.crash_at(files.operations + 5 + chance.randrange(60))
    written: dict[int, bytes] = {}
    try:
        while True:
            batch = client_batch(1 + chance.randrange(3), value=chance.randbytes(40))
            set_base_offset_and_epoch(batch, 0, offset, 0)
            written[offset] = bytes(batch)
            offset = append(segment, batch, offset)
            if chance.randrange(4) == 0:
                segment.records_file.sync()
                durable = offset
    except SimCrash:
        pass
    recovered, found, seen = _recover(files.crash(chance))
    assert found.next_offset >= durable
    assert seen == [base for base in written if base < found.next_offset]
    assert recovered.records.read(0, 1 << 30) == b"".join(written[base] for base in seen)


# -- replay -----------------------------------------------------------------------------------


def test_replay_begins_at_the_batch_that_holds_the_offset() -> None:
    _, segment = _segment(10, records=3)
    seen: list[int] = []
    replay_segment(segment, BASE + 16, lambda _, header: seen.append(header.base_offset))
    assert seen == [BASE + 15, BASE + 18, BASE + 21, BASE + 24, BASE + 27]
    replay_segment(segment, BASE + 30, lambda _, header: seen.append(-1))
    assert -1 not in seen


def _replay(files: SimFiles, segment: LogSegment) -> tuple[ProducerStateManager, LeaderEpochs]:
    producers = ProducerStateManager(ProducerSnapshots(files, "/log"), expiration_ms=1)
    epochs = LeaderEpochs(files, "/log")
    replay_segment(
        segment, BASE, lambda at, header: replay_batch(segment, at, header, producers, epochs)
    )
    return producers, epochs


def test_replay_restores_producers_and_epochs() -> None:
    files, segment = _segment(0)
    offset = append(segment, client_batch(3), BASE, leader_epoch=2)
    for sequence in (0, 2):
        batch = client_batch(2, producer_id=7, producer_epoch=1, base_sequence=sequence)
        offset = append(segment, batch, offset, leader_epoch=5)
    producers, epochs = _replay(files, segment)
    assert epochs.entries == ((2, BASE), (5, BASE + 3))
    (state,) = producers.producers.values()
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (7, 1, 3)
    assert [batch.first_offset for batch in state.batches] == [BASE + 3, BASE + 5]


def _marker(kind: ControlType, coordinator_epoch: int = 9) -> memoryview:
    record = Record(
        timestamp=T0, key=encode_control_key(kind), value=encode_end_txn_value(coordinator_epoch)
    )
    return memoryview(
        bytearray(
            build_batch(
                [record], producer_id=7, producer_epoch=1, is_transactional=True, is_control=True
            )
        )
    )


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_replay_of_a_marker_completes_the_transaction(kind: ControlType) -> None:
    files, segment = _segment(0)
    batch = client_batch(2, producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True)
    append(segment, batch, BASE)
    producers, _ = _replay(files, segment)
    assert producers.producers[7].current_txn_first_offset == BASE
    append(segment, _marker(kind), BASE + 2)
    producers, _ = _replay(files, segment)
    state = producers.producers[7]
    assert state.current_txn_first_offset is None
    assert (state.coordinator_epoch, state.last_sequence) == (9, 1)


def test_replay_of_other_control_records_completes_no_transaction() -> None:
    files, segment = _segment(0)
    append(segment, _marker(ControlType.LEADER_CHANGE), BASE)
    producers, _ = _replay(files, segment)
    assert producers.producers == {}


def test_segment_is_recovered_on_a_full_disk() -> None:
    """Indexes are hints; offsets without an entry are found by walking the log."""
    files, _ = _segment()
    files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)
    segment = _open(files)
    found = run_steps(
        recover_steps(segment, keep_below_offset=0, on_batch=lambda position, header: None)
    )
    assert (found.next_offset, found.truncated_bytes) == (BASE + 10, 0)
    segment.release_indexes()  # Otherwise, the entries would still be in memory.
    assert segment.offset_index.count == 0
    assert segment.max_timestamp == T0 + 90
    assert segment.find_offset(BASE + 7) is not None
