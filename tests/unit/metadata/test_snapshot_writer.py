"""The bytes of a snapshot, and that they can be read in pieces."""

from __future__ import annotations

import pytest

from plog.records.batch import Compression, iter_batches
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType, decode_control_key, encode_control_key
from plog.records.reader import read_records
from plog.wire.internal.metadata_records import (
    PartitionRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from plog.wire.internal.raft_records import (
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    decode_raft_record,
)
from plogd.fair_queue import SLICE, FairQueue
from plogd.metadata import snapshot_reader
from plogd.metadata.image import MetadataImage
from plogd.metadata.image_records import image_records
from plogd.metadata.snapshot_name import SnapshotName
from plogd.metadata.snapshot_reader import CorruptSnapshot, read_snapshot
from plogd.metadata.snapshot_writer import SnapshotWriter, WrittenSnapshot
from plogd.ports import Cancelled, spawn
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import SimPorts, settled
from tests.helpers.sim.sim_time import START_MS

NAME = SnapshotName(end_offset=50, epoch=3)
PATH = f"/m/{NAME.file_name}"
ID = b"t" * 16


def image_with(partitions: int) -> MetadataImage:
    image = MetadataImage()
    image.replay(TopicRecord(name="t", topic_id=ID), 0)
    for number in range(partitions):
        partition = PartitionRecord(
            partition_id=number, topic_id=ID, replicas=[1], isr=[1], leader=1, leader_epoch=9
        )
        image.replay(partition, 1 + number)
    return image


def write(
    image: MetadataImage, ports: SimPorts | None = None, *, is_allowed: bool = True
) -> WrittenSnapshot:
    ports = ports or SimPorts(files=SimFiles(["/m"]))
    writer = SnapshotWriter(
        "/m",
        NAME,
        last_timestamp_ms=START_MS,
        files=ports.bundle().files,
        jobs=ports.jobs,
        lane="snapshot",
        fair_queue=FairQueue(ports.timers),
        may_continue=lambda: is_allowed,
    )
    written = settled(ports, spawn(writer.write(image)))
    assert isinstance(written, WrittenSnapshot)
    return written


def test_snapshot_has_a_header_the_records_and_a_footer() -> None:
    ports = SimPorts(files=SimFiles(["/m"]))
    image = image_with(SLICE)
    written = write(image, ports)
    data = ports.files.read_file(PATH)
    assert written == WrittenSnapshot(records=SLICE + 3, size_bytes=len(data))
    first, *batches, last = list(iter_batches(data))
    for (position, header), kind, record in (
        (first, 3, SnapshotHeaderRecord(version=0, last_contained_log_timestamp=START_MS)),
        (last, 4, SnapshotFooterRecord(version=0)),
    ):
        [control] = read_records(data, position, header)
        assert header.is_control
        assert decode_control_key(control.key) == kind
        assert decode_raft_record(kind, control.value) == (record, 0)
    found = [
        decode_metadata_record(record.value or b"")
        for position, header in batches
        for record in read_records(data, position, header)
    ]
    assert found == list(image_records(image))
    headers = [header for _, header in (first, *batches, last)]
    assert [header.partition_leader_epoch for header in headers] == [3] * len(headers)
    assert [header.base_offset for header in headers] == [0, 1, 1 + SLICE, 2 + SLICE]


@pytest.mark.parametrize("partitions", [0, 1, 40 * SLICE])
def test_written_image_is_read_back(partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Smaller than most batches, so that they do not fit.
    monkeypatch.setattr(snapshot_reader, "_READ_BYTES", 1000)
    ports = SimPorts(files=SimFiles(["/m"]))
    image = image_with(partitions)
    write(image, ports)
    found = read_snapshot(ports.bundle().files, "/m", NAME)
    assert list(image_records(found)) == list(image_records(image))
    assert {version for _, version in found.load(("topic",)).values()} == {49}


def test_file_has_its_name_only_when_it_is_durable() -> None:
    ports = SimPorts(files=SimFiles(["/m"]))
    operations: list[tuple[str, str]] = []
    ports.files.on_operation = lambda operation: operations.append((operation.name, operation.path))
    write(image_with(1), ports)
    part = f"{PATH}.part"
    assert [one for one in operations if one[0] != "open"] == [
        ("create", part),
        ("append", part),
        ("sync", part),
        ("rename", part),
        ("sync_dir", "/m"),
    ]


def test_leftover_of_an_earlier_attempt_is_replaced() -> None:
    ports = SimPorts(files=SimFiles(["/m"]))
    ports.files.open_append(f"{PATH}.part").append(b"left over")
    write(image_with(1), ports)
    assert read_snapshot(ports.bundle().files, "/m", NAME).get(("topic", "t"))[0] is not None
    assert ports.files.listdir("/m") == [NAME.file_name]


def test_writer_that_may_not_continue_does_nothing() -> None:
    ports = SimPorts(files=SimFiles(["/m"]))
    with pytest.raises(Cancelled):
        write(image_with(1), ports, is_allowed=False)
    assert ports.files.listdir("/m") == []


def control(kind: ControlType, offset: int) -> bytes:
    records = [Record(timestamp=0, key=encode_control_key(kind), value=b"\0\0\0")]
    return build_batch(records, is_control=True, base_offset=offset)


def values(offset: int, *encoded: bytes, codec: Compression = Compression.NONE) -> bytes:
    records = [Record(timestamp=0, value=value) for value in encoded]
    return build_batch(records, base_offset=offset, compression=codec)


HEADER = control(ControlType.SNAPSHOT_HEADER, 0)
TOPIC = encode_metadata_record(TopicRecord(name="t", topic_id=ID), 0)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (HEADER, "the footer is missing after 1 records"),
        (HEADER + values(2, TOPIC) + control(ControlType.SNAPSHOT_FOOTER, 3), "has offset 2"),
        (
            HEADER + control(ControlType.SNAPSHOT_FOOTER, 1) + values(2, TOPIC),
            "or follows the end",
        ),
        (HEADER + values(1, b"\x01\x7f\x00"), "invalid record 1: "),
        (HEADER + values(1, b""), "invalid record 1: "),
        (
            HEADER + values(1, encode_metadata_record(PartitionRecord(topic_id=ID), 0)),
            "unknown topic id",
        ),
        (HEADER + values(1, TOPIC)[:-1], "is incomplete"),
    ],
)
def test_invalid_snapshot_is_rejected(content: bytes, problem: str) -> None:
    files = SimFiles(["/m"])
    files.open_append(PATH).append(content)
    with pytest.raises(CorruptSnapshot, match=problem):
        read_snapshot(SimPorts(files=files).bundle().files, "/m", NAME)


def test_compressed_batches_are_read() -> None:
    files = SimFiles(["/m"])
    batch = values(1, TOPIC, codec=Compression.ZSTD)
    files.open_append(PATH).append(HEADER + batch + control(ControlType.SNAPSHOT_FOOTER, 2))
    image = read_snapshot(SimPorts(files=files).bundle().files, "/m", NAME)
    assert image.get(("topic", "t"))[0].topic_id == ID
