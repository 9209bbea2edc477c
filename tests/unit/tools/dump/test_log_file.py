"""plogd/tools/dump/log_file.py: lines in Kafka's format, and reports of damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.errors import PlogError
from plog.records.batch import (
    ATTRIBUTES_POSITION,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    Compression,
    TimestampType,
)
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType, encode_control_key, encode_end_txn_value
from plogd.tools.dump.log_file import NO_LIMIT, RecordOptions, dump_log
from plogd.tools.dump.problem_report import ProblemReport
from tests.unit.records.test_legacy import message, wrapper

RECORD = Record(timestamp=5, key=b"k", value=b"v")


class Dumped:
    """The dump of a segment with the given bytes."""

    def __init__(self, folder: Path, data: bytes, name: str = "", **options: object) -> None:
        path = folder / (name or "00000000000000000000.log")
        path.write_bytes(data)
        self.damage: list[str] = []
        self.findings = ProblemReport(on_damage=self.damage.append)
        settings: dict[str, object] = {
            "print_contents": True,
            "deep": True,
            "skip_metadata": False,
            "max_bytes": NO_LIMIT,
            "decode": lambda record: (_text(record.key), _text(record.value)),
        }
        recipe = RecordOptions(**{**settings, **options})  # type: ignore[arg-type]  # a table
        self.lines = list(dump_log(str(path), recipe, self.findings))
        if not name:
            del self.lines[0]

    @property
    def records(self) -> list[str]:
        return [line for line in self.lines if line.startswith("|")]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


@pytest.mark.parametrize("compression", list(Compression))
def test_compressed_batch_is_decoded(tmp_path: Path, compression: Compression) -> None:
    dumped = Dumped(tmp_path, build_batch([RECORD] * 3, compression=compression))
    assert f" compresscodec: {compression.name.lower()} " in dumped.lines[0]
    assert len(dumped.records) == 3


def test_sequences_wrap_within_batch(tmp_path: Path) -> None:
    batch = build_batch([RECORD, RECORD], producer_id=9, producer_epoch=2, base_sequence=0x7FFFFFFF)
    dumped = Dumped(tmp_path, batch)
    assert (
        " baseSequence: 2147483647 lastSequence: 0 producerId: 9 producerEpoch: 2 "
        in (dumped.lines[0])
    )
    assert [line.partition(" sequence: ")[2].split()[0] for line in dumped.records] == [
        "2147483647",
        "0",
    ]


def test_log_append_time_is_printed(tmp_path: Path) -> None:
    batch = build_batch([RECORD], timestamp_type=TimestampType.LOG_APPEND_TIME)
    dumped = Dumped(tmp_path, batch)
    assert " LogAppendTime: 5 size: " in dumped.lines[0]
    assert dumped.records[0].startswith("| offset: 0 LogAppendTime: 5 ")


def test_delete_horizon_is_printed(tmp_path: Path) -> None:
    batch = bytearray(build_batch([RECORD]))
    batch[ATTRIBUTES_POSITION + 1] |= DELETE_HORIZON_BIT
    assert " deleteHorizonMs: OptionalLong[5] " in Dumped(tmp_path, bytes(batch)).lines[0]


def test_transaction_marker_prints_coordinator_epoch(tmp_path: Path) -> None:
    marker = Record(
        timestamp=5, key=encode_control_key(ControlType.COMMIT), value=encode_end_txn_value(7)
    )
    batch = build_batch([marker], is_control=True, is_transactional=True, producer_id=1)
    dumped = Dumped(tmp_path, batch)
    assert " isTransactional: true isControl: true " in dumped.lines[0]
    assert dumped.records == [
        "| offset: 0 CreateTime: 5 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] "
        "endTxnMarker: COMMIT coordinatorEpoch: 7"
    ]


def test_raft_control_record_is_printed_as_json(tmp_path: Path) -> None:
    value = bytes.fromhex("0000 00000007 02 00000007 00 01 00")
    marker = Record(timestamp=5, key=encode_control_key(ControlType.LEADER_CHANGE), value=value)
    [line] = Dumped(tmp_path, build_batch([marker], is_control=True)).records
    assert line.endswith(
        ' LeaderChange: {"version":0,"leaderId":7,"voters":[{"voterId":7}],"grantingVoters":[]}'
    )


def test_unknown_control_record_is_printed_with_its_number(tmp_path: Path) -> None:
    marker = Record(timestamp=5, key=bytes.fromhex("00000063"))
    [line] = Dumped(tmp_path, build_batch([marker], is_control=True)).records
    assert line.endswith(" controlType: UNKNOWN(99)")


def test_skip_metadata_prints_only_contents(tmp_path: Path) -> None:
    data = build_batch([RECORD, Record(timestamp=5, value=b"only")])
    assert Dumped(tmp_path, data, skip_metadata=True).lines[1:] == [
        "| key: k payload: v",
        "| payload: only",
    ]
    shallow = Dumped(tmp_path, data, deep=False, print_contents=False)
    assert len(shallow.lines) == 1


def test_dump_stops_at_max_bytes(tmp_path: Path) -> None:
    batch = build_batch([RECORD])
    assert len(Dumped(tmp_path, batch * 3, max_bytes=2 * len(batch) + 1).records) == 2


def test_offset_gap_is_reported(tmp_path: Path) -> None:
    data = build_batch([RECORD]) + build_batch([RECORD], base_offset=4)
    assert list(Dumped(tmp_path, data).findings.lines()) == [
        f"Non-consecutive offsets in {tmp_path}/00000000000000000000.log",
        "  0 is followed by 4",
    ]


def test_header_key_that_is_not_utf8_is_printed(tmp_path: Path) -> None:
    record = RECORD._replace(headers=[("a", b""), ("\udcff", None)])
    assert " headerKeys: [a,\ufffd]" in Dumped(tmp_path, build_batch([record])).records[0]


# -- snapshots of the metadata -----------------------------------------------------------------


def test_snapshot_head_line_comes_from_file_name(tmp_path: Path) -> None:
    name = "00000000000000000042-0000000003.checkpoint"
    dumped = Dumped(tmp_path, build_batch([RECORD]), name)
    assert dumped.lines[0] == "Snapshot end offset: 42, epoch: 3"
    assert Dumped(tmp_path, b"", "bootstrap.checkpoint").lines == ["KRaft bootstrap snapshot"]
    with pytest.raises(PlogError, match="not the name of a snapshot"):
        Dumped(tmp_path, b"", "mine.checkpoint")
    with pytest.raises(PlogError, match="does not start with a base offset"):
        Dumped(tmp_path, b"", "mine.log")


# -- damage ------------------------------------------------------------------------------------


def test_batch_with_wrong_checksum_is_marked_and_its_records_printed(tmp_path: Path) -> None:
    batch = bytearray(build_batch([RECORD]))
    batch[-2] ^= 1
    dumped = Dumped(tmp_path, bytes(batch))
    assert dumped.lines[0].endswith("isvalid: false")
    assert len(dumped.records) == 1


def test_dump_continues_after_unreadable_records(tmp_path: Path) -> None:
    broken = bytearray(build_batch([RECORD]))
    broken[HEADER_SIZE] = 0x7F
    dumped = Dumped(tmp_path, bytes(broken) + build_batch([RECORD], base_offset=1))
    assert len(dumped.records) == 1
    assert "cannot read the batch at byte 0: " in dumped.damage[0]
    assert dumped.findings.is_damaged


def test_truncated_last_batch_is_counted_as_invalid_bytes(tmp_path: Path) -> None:
    batch = build_batch([RECORD])
    dumped = Dumped(tmp_path, batch + batch[:-1])
    assert dumped.lines[-1] == (
        f"Found {len(batch) - 1} invalid bytes at the end of 00000000000000000000.log"
    )
    assert dumped.damage == []


@pytest.mark.parametrize(
    ("tail", "problem"),
    [
        (bytes(100), "byte {position}: found zeros instead of a batch"),
        (b"\x00" * 8 + b"\x00\x00\x00\x40" + b"\x00" * 4 + b"\x09" + bytes(80), "magic 9"),
        (b"\x00" * 8 + b"\x00\x00\x00\x10" + b"\x00" * 4 + b"\x02" + bytes(80), "28 bytes"),
        (b"\xff" * 100, "a batch size of 11 bytes"),
    ],
)
def test_dump_ends_at_bytes_that_are_not_a_batch(tmp_path: Path, tail: bytes, problem: str) -> None:
    batch = build_batch([RECORD])
    dumped = Dumped(tmp_path, batch + tail)
    assert problem.format(position=len(batch)) in dumped.damage[0]
    assert dumped.lines[-1].startswith(f"Found {len(tail)} invalid bytes")
    assert len(dumped.records) == 1


def test_unknown_compression_type_is_damage(tmp_path: Path) -> None:
    batch = bytearray(build_batch([RECORD]))
    batch[ATTRIBUTES_POSITION + 1] |= 7
    assert "compression type 7" in Dumped(tmp_path, bytes(batch)).damage[0]


# -- old formats -------------------------------------------------------------------------------


def test_magic_1_message_prints_batch_and_record_lines(tmp_path: Path) -> None:
    data = message(1, 0, timestamp=7, key=b"k", value=b"v")
    batch, record = Dumped(tmp_path, data).lines
    crc = int.from_bytes(data[12:16], "big")
    assert batch == (
        f"offset: 0 position: 0 CreateTime: 7 size: {len(data)} magic: 1 compresscodec: none "
        f"crc: {crc} isvalid: true"
    )
    assert record == (
        f"| offset: 0 CreateTime: 7 keySize: 1 valueSize: 1 isValid: true crc: {crc} "
        "key: k payload: v"
    )


def test_compressed_wrapper_prints_its_records(tmp_path: Path) -> None:
    inner = message(0, 0, value=b"a") + message(0, 1, value=b"b")
    dumped = Dumped(tmp_path, wrapper(0, 1, inner))
    assert dumped.lines[0].startswith("offset: 1 position: 0 NoTimestampType: -1 ")
    assert " compresscodec: gzip " in dumped.lines[0]
    assert [line.split()[2] for line in dumped.records] == ["0", "1"]


def test_legacy_message_with_wrong_checksum_is_marked_and_damage(tmp_path: Path) -> None:
    data = bytearray(message(0, 0, value=b"a"))
    data[-1] ^= 1
    dumped = Dumped(tmp_path, bytes(data))
    assert dumped.lines[0].endswith(" isvalid: false")
    assert "fails its checksum" in dumped.damage[0]
