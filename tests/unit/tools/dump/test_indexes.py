"""plogd/tools/dump/indexes.py: printing index files and checking them against their segment."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from plog.records.builder import build_batch
from plog.records.codec import Record
from plogd.log.producer_snapshot import SnapshotEntry, encode_snapshot
from plogd.tools.dump.indexes import dump_index, dump_snapshot, dump_time_index, dump_txn_index
from plogd.tools.dump.problem_report import ProblemReport

BASE = 100
STEM = f"{BASE:020d}"
ALL = 1 << 20


class Segment:
    """Three batches of two records each, at offsets 100 to 105, timestamps 10 to 15."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.positions: list[int] = []
        data = b""
        for first in range(0, 6, 2):
            records = [Record(timestamp=10 + first + i, value=b"v") for i in range(2)]
            self.positions.append(len(data))
            data += build_batch(records, base_offset=BASE + first)
        self.write(".log", data)
        self.damage: list[str] = []
        self.findings = ProblemReport(on_damage=self.damage.append)

    def write(self, suffix: str, data: bytes) -> str:
        path = self.folder / f"{STEM}{suffix}"
        path.write_bytes(data)
        return str(path)

    def index(self, *entries: tuple[int, int], tail: bytes = b"") -> str:
        packed = (struct.pack(">ii", offset - BASE, position) for offset, position in entries)
        return self.write(".index", b"".join(packed) + tail)

    def time_index(self, *entries: tuple[int, int], tail: bytes = b"") -> str:
        packed = (struct.pack(">qi", timestamp, offset - BASE) for timestamp, offset in entries)
        return self.write(".timeindex", b"".join(packed) + tail)

    def dump(self, path: str, *, sanity: bool = False, verify: bool = False) -> list[str]:
        lines: Iterator[str]
        if path.endswith(".timeindex"):
            lines = dump_time_index(path, self.findings, sanity, verify)
        else:
            lines = dump_index(path, self.findings, sanity, verify, ALL)
        return list(lines)

    def problems(self) -> list[str]:
        return list(self.findings.lines())


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    """Return a segment without index files."""
    return Segment(tmp_path)


# -- offset index ------------------------------------------------------------------------------


def test_index_entries_are_printed_with_absolute_offsets(segment: Segment) -> None:
    _, second, third = segment.positions
    path = segment.index((103, second), (105, third))
    assert segment.dump(path) == [
        f"offset: 103 position: {second}",
        f"offset: 105 position: {third}",
    ]
    assert segment.dump(path, verify=True) == []
    assert segment.problems() == []


def test_index_entry_with_wrong_offset_is_reported(segment: Segment) -> None:
    _, second, third = segment.positions
    path = segment.index((102, second), (104, third))
    assert segment.dump(path, verify=True) == []
    assert segment.problems() == [
        f"Mismatches in :{path}",
        "  Index offset: 104, log offset: 105",
        "  Index offset: 102, log offset: 103",
    ]


@pytest.mark.parametrize("position", [-4, 7, 1 << 20])
def test_index_entry_without_batch_is_damage(segment: Segment, position: int) -> None:
    segment.dump(segment.index((103, position)))
    assert f"the .log file has no complete batch at byte {position}" in segment.damage[0]


def test_batch_above_maximum_size_is_not_read(segment: Segment) -> None:
    path = segment.index((103, segment.positions[1]))
    list(dump_index(path, segment.findings, False, False, 20))
    assert "no complete batch" in segment.damage[0]


def test_trailing_zeros_are_ignored(segment: Segment) -> None:
    path = segment.index((103, segment.positions[1]), tail=bytes(80))
    assert len(segment.dump(path)) == 1
    path = segment.time_index((13, 103), tail=bytes(120))
    assert len(segment.dump(path)) == 1


def test_empty_index_is_reported_as_empty(segment: Segment) -> None:
    path = segment.index()
    assert segment.dump(path) == [f"{path} is empty."]
    assert segment.dump(segment.time_index()) == []


def test_valid_index_passes_sanity_check(segment: Segment) -> None:
    path = segment.index((103, segment.positions[1]))
    assert segment.dump(path, sanity=True) == [f"{path} passed sanity check."]
    path = segment.time_index((13, 103))
    assert segment.dump(path, sanity=True) == [f"{path} passed sanity check."]
    assert segment.damage == []


@pytest.mark.parametrize(
    ("suffix", "data", "problem"),
    [
        (".index", "00000003 00000009 31", "9 bytes are not a multiple of 8"),
        (".index", "00000003 00000009 ffffffff 0000000a", "last offset 99 is below the base"),
        (".timeindex", "000000000000000d 00000003 31", "13 bytes are not a multiple of 12"),
        (
            ".timeindex",
            "000000000000000d 00000003 000000000000000c 00000004",
            "last timestamp 12 is below the first, 13",
        ),
        (
            ".timeindex",
            "000000000000000d 00000003 000000000000000e ffffffff",
            "last offset 99 is below the base offset 100",
        ),
    ],
)
def test_invalid_index_fails_sanity_check(
    segment: Segment, suffix: str, data: str, problem: str
) -> None:
    assert segment.dump(segment.write(suffix, bytes.fromhex(data)), sanity=True) == []
    assert problem in segment.damage[0]


def test_index_dump_fails_when_log_file_is_missing(segment: Segment) -> None:
    path = segment.index((103, 9))
    (segment.folder / f"{STEM}.log").unlink()
    with pytest.raises(FileNotFoundError, match=STEM):
        segment.dump(path)


# -- time index --------------------------------------------------------------------------------


def test_matching_time_index_has_no_problems(segment: Segment) -> None:
    segment.index((103, segment.positions[1]))
    path = segment.time_index((11, 101), (13, 103), (15, 105))
    assert segment.dump(path) == [
        "timestamp: 11 offset: 101",
        "timestamp: 13 offset: 103",
        "timestamp: 15 offset: 105",
    ]
    assert segment.problems() == []


def test_time_index_is_dumped_without_offset_index(segment: Segment) -> None:
    assert len(segment.dump(segment.time_index((15, 105)))) == 1
    assert segment.problems() == []
    assert not (segment.folder / f"{STEM}.index").exists()


def test_wrong_timestamps_are_reported(segment: Segment) -> None:
    path = segment.time_index((12, 101), (9, 103), (15, 104), (16, 109))
    assert segment.dump(path, verify=True) == []
    assert segment.problems() == [
        f"Found timestamp mismatch in :{path}",
        "  Index timestamp: 12, log timestamp: 11",
        "  Index timestamp: 9, log timestamp: 13",
        f"Found out of order timestamp in :{path}",
        "  Index timestamp: 9, Previously indexed timestamp: 12",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 104, found log offset: 105",
        "Indexed offset: 109, found log offset: -1",
    ]


def test_unreadable_log_file_is_damage(segment: Segment) -> None:
    segment.write(".log", bytes(100))
    assert len(segment.dump(segment.time_index((15, 105)))) == 1
    assert "cannot read offset 105 of the .log file: byte 0: found zeros" in segment.damage[0]


# -- producers and transactions ----------------------------------------------------------------


def test_producer_snapshot_prints_one_line_per_producer(segment: Segment) -> None:
    entries = [
        SnapshotEntry(7, 1, 4, 20, 2, 99, -1, -1),
        SnapshotEntry(8, 0, 0, 21, 1, 100, 3, 15),
        SnapshotEntry(9, 2, -1, -1, 0, 101, 4, -1),
    ]
    path = segment.write(".snapshot", encode_snapshot(entries))
    assert list(dump_snapshot(path, segment.findings)) == [
        "producerId: 7 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: "
        "OptionalLong.empty lastTimestamp: 99 firstSequence: 2 lastSequence: 4 lastOffset: 20 "
        "offsetDelta: 2 timestamp: 99",
        "producerId: 8 producerEpoch: 0 coordinatorEpoch: 3 currentTxnFirstOffset: "
        "OptionalLong[15] lastTimestamp: 100 firstSequence: 2147483647 lastSequence: 0 "
        "lastOffset: 21 offsetDelta: 1 timestamp: 100",
        "producerId: 9 producerEpoch: 2 coordinatorEpoch: 4 currentTxnFirstOffset: "
        "OptionalLong.empty lastTimestamp: 101",
    ]


def test_corrupt_producer_snapshot_is_damage(segment: Segment) -> None:
    data = bytearray(encode_snapshot([SnapshotEntry(7, 1, 4, 20, 2, 99, -1, -1)]))
    data[-1] ^= 1
    assert list(dump_snapshot(segment.write(".snapshot", bytes(data)), segment.findings)) == []
    assert "checksum" in segment.damage[0]


def test_transaction_index_prints_one_line_per_transaction(segment: Segment) -> None:
    entry = struct.pack(">hqqqq", 0, 7, 100, 104, 105)
    path = segment.write(".txnindex", entry)
    line = "version: 0 producerId: 7 firstOffset: 100 lastOffset: 104 lastStableOffset: 105"
    assert list(dump_txn_index(path, segment.findings)) == [line]
    assert segment.damage == []
    path = segment.write(".txnindex", entry + entry[:5])
    assert list(dump_txn_index(path, segment.findings)) == [line]
    assert "5 bytes follow the last complete entry" in segment.damage.pop()
    path = segment.write(".txnindex", b"\x00\x01" + entry[2:])
    assert list(dump_txn_index(path, segment.findings)) == []
    assert "an entry has version 1" in segment.damage.pop()
