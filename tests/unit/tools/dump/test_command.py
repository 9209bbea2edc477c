"""plogd/tools/dump/command.py: the options, the files of one command, and its error messages.

The integration test compares the output with that of Kafka's own tool.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.cli.main import run_tool
from plog.cli.parser import tool_parser
from plog.records.builder import build_batch
from plog.records.codec import Record
from plogd.tools.dump.command import configure, record_options
from plogd.tools.dump.decoders import STRING_DECODER
from plogd.tools.dump.log_file import NO_LIMIT, RecordOptions

SEGMENT = "00000000000000000000"


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A segment of three records in two batches."""
    path = tmp_path / f"{SEGMENT}.log"
    first = [Record(timestamp=10, key=b"k", value=b"v"), Record(timestamp=11, value=b"w")]
    path.write_bytes(
        build_batch(first, partition_leader_epoch=3)
        + build_batch([Record(timestamp=12, key=b"", headers=[("h", b"x")])], base_offset=2)
    )
    return path


def _dump(*arguments: object) -> int:
    return run_tool("dump-log", configure, [*map(str, arguments)])


def _options(*arguments: str) -> RecordOptions:
    parser = tool_parser("dump-log", configure)
    return record_options(parser.parse_args(["--files", "x", *arguments]))


def test_dump_prints_one_line_per_batch(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _dump("--files", segment) == 0
    captured = capsys.readouterr()
    head, start, first, second = captured.out.splitlines()
    assert head == f"Dumping {segment}"
    assert start == "Log starting offset: 0"
    assert first.startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 "
        "producerEpoch: -1 partitionLeaderEpoch: 3 isTransactional: false isControl: false "
        "deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 11 size: "
    )
    assert " magic: 2 compresscodec: none crc: " in first
    assert first.endswith(" isvalid: true")
    assert second.startswith("baseOffset: 2 lastOffset: 2 count: 1 ")
    assert captured.err == ""


def test_print_data_log_prints_keys_and_values(
    segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _dump("--print-data-log", "--files", segment) == 0
    records = [x for x in capsys.readouterr().out.splitlines() if x.startswith("| ")]
    assert records == [
        "| offset: 0 CreateTime: 10 keySize: 1 valueSize: 1 sequence: -1 headerKeys: [] "
        "key: k payload: v",
        "| offset: 1 CreateTime: 11 keySize: -1 valueSize: 1 sequence: -1 headerKeys: [] "
        "payload: w",
        "| offset: 2 CreateTime: 12 keySize: 0 valueSize: -1 sequence: -1 headerKeys: [h] key: ",
    ]


def test_files_are_dumped_in_given_order(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = segment.with_suffix(".index")
    index.write_bytes(b"")
    other = segment.with_name("partition.metadata")
    assert _dump("--files", f"{segment},{index},{other}") == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-3:] == [
        f"Dumping {index}",
        f"{index} is empty.",
        f"Dumping {other}",
    ]
    assert captured.err == f"Ignoring unknown file {other}\n"


def test_missing_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _dump("--files", tmp_path / f"{SEGMENT}.log") == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "not found" in line
    assert SEGMENT in line


@pytest.mark.parametrize(
    "line",
    [
        ["--print-data-log"],
        ["--offsets-decoder"],
        ["--transaction-log-decoder"],
        ["--cluster-metadata-decoder"],
        ["--key-decoder-class", "kafka.serializer.StringDecoder"],
        ["--value-decoder-class"],
    ],
)
def test_decoder_option_implies_contents(line: list[str]) -> None:
    options = _options(*line)
    assert options.print_contents
    assert options.deep


def test_default_options_equal_kafkas() -> None:
    options = _options()
    assert (options.print_contents, options.deep, options.skip_metadata) == (False, False, False)
    assert options.max_bytes == NO_LIMIT
    assert options.decode(Record(key=b"\xff", value=None)) == ("\ufffd", None)
    assert _options("--deep-iteration").deep
    assert STRING_DECODER.endswith(".StringDecoder")


def test_unknown_decoder_class_is_rejected(
    segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _dump("--files", segment, "--value-decoder-class", "com.example.Mine") == 1
    assert "unknown decoder class com.example.Mine" in capsys.readouterr().err
