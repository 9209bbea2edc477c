"""The small files: Kafka's formats, detection of damage, atomic replacement."""

from __future__ import annotations

import errno
import itertools
import random

import pytest

from plog.types import TopicPartition, uuid_from_text
from plogd.log.disk.checkpoint_files import (
    CorruptCheckpoint,
    MetaProperties,
    read_leader_epochs,
    read_meta_properties,
    read_offsets,
    read_topic_id,
    write_atomic,
    write_leader_epochs,
    write_meta_properties,
    write_offsets,
    write_topic_id,
)
from tests.helpers.sim.sim_files import SimCrash, SimFiles

TOPIC_ID_TEXT = "XbVUMjBzQEyOtNTvjQ2NAg"
TOPIC_ID = uuid_from_text(TOPIC_ID_TEXT)
OFFSETS = {TopicPartition("page-views", 3): 42, TopicPartition("a.b_c", 0): 2**62}


def _file(path: str, content: bytes) -> SimFiles:
    files = SimFiles(["/d"])
    files.open_append(path).append(content)
    return files


# -- atomic -----------------------------------------------------------------------------------


def test_crash_at_any_step_leaves_the_old_or_the_new_content() -> None:
    for step in range(1, 20):
        for seed in range(8):
            files = SimFiles(["/d"])
            write_atomic(files, "/d/file", b"old content")
            files.crash_at(files.operations + step)
            try:
                write_atomic(files, "/d/file", b"new content, a bit longer")
                finished = True
            except SimCrash:
                finished = False
            found = files.crash(random.Random(seed)).read_file("/d/file")
            if finished:
                assert found == b"new content, a bit longer"
            else:
                assert found in (b"old content", b"new content, a bit longer")
    assert finished, "more steps than the test counts"


@pytest.mark.parametrize("name", ["create", "append", "sync", "rename"])
def test_failed_write_leaves_the_old_content_and_no_temporary_file(name: str) -> None:
    files = SimFiles(["/d"])
    write_atomic(files, "/d/file", b"old")
    files.fail_when(lambda operation: operation.name == name, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        write_atomic(files, "/d/file", b"new")
    assert files.listdir("/d") == ["file"]
    assert files.read_file("/d/file") == b"old"


def test_temporary_file_of_a_crashed_write_is_not_appended_to() -> None:
    files = _file("/d/file.tmp", b"left over")
    write_atomic(files, "/d/file", b"new")
    assert files.read_file("/d/file") == b"new"
    assert files.listdir("/d") == ["file"]


# -- offsets and epochs -----------------------------------------------------------------------


def test_offsets_are_written_as_kafka_does() -> None:
    files = SimFiles(["/d"])
    write_offsets(files, "/d/offsets", OFFSETS)
    assert files.read_file("/d/offsets") == b"0\n2\npage-views 3 42\na.b_c 0 4611686018427387904\n"
    assert read_offsets(files, "/d/offsets") == OFFSETS
    write_offsets(files, "/d/offsets", {})
    assert read_offsets(files, "/d/offsets") == {}


def test_missing_files_read_as_empty() -> None:
    files = SimFiles(["/d"])
    assert read_offsets(files, "/d/offsets") == {}
    assert read_leader_epochs(files, "/d") == []
    assert read_topic_id(files, "/d") is None
    assert read_meta_properties(files, "/d") is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0\n",
        b"0\n2\na 0 1\n",
        b"0\n0\na 0 1\n",
        b"1\n1\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 1 2\n",
        b"0\n1\na 0 x\n",
        b"0\nx\n",
        b"\xff\xfe\n",
        bytes(100),
        b"0\n1\na 0 1\n\n",
    ],
)
def test_damaged_offset_checkpoint_raises(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match="/d/offsets"):
        read_offsets(_file("/d/offsets", content), "/d/offsets")


def test_leader_epochs_survive_a_round_trip() -> None:
    files = SimFiles(["/d"])
    write_leader_epochs(files, "/d", [])
    assert read_leader_epochs(files, "/d") == []


@pytest.mark.parametrize("content", [b"", b"0\n1\n1\n", b"0\n1\n-1 0\n", b"0\n1\n1 -7\n"])
def test_damaged_leader_epoch_checkpoint_raises(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match="leader-epoch-checkpoint"):
        read_leader_epochs(_file("/d/leader-epoch-checkpoint", content), "/d")


# -- partition.metadata -----------------------------------------------------------------------


def test_topic_id_is_written_as_kafka_does() -> None:
    files = SimFiles(["/d"])
    write_topic_id(files, "/d", TOPIC_ID)
    expected = f"version: 0\ntopic_id: {TOPIC_ID_TEXT}"
    assert files.read_file("/d/partition.metadata") == expected.encode()
    assert read_topic_id(files, "/d") == TOPIC_ID


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 0",
        b"version: x\ntopic_id: XbVUMjBzQEyOtNTvjQ2NAg",
        b"version: -1\ntopic_id: XbVUMjBzQEyOtNTvjQ2NAg",
        b"version: 0\ntopic_id: XbVUMjBz",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        bytes(64),
    ],
)
def test_damaged_partition_metadata_raises(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match=r"partition\.metadata"):
        read_topic_id(_file("/d/partition.metadata", content), "/d")


# -- meta.properties --------------------------------------------------------------------------


def test_identity_survives_a_round_trip() -> None:
    files = SimFiles(["/d"])
    for directory_id, version in itertools.product(("", TOPIC_ID_TEXT), (0, 1)):
        identity = MetaProperties(
            cluster_id="MkU3OEVBNTc", node_id=7, directory_id=directory_id, version=version
        )
        write_meta_properties(files, "/d", identity)
        assert read_meta_properties(files, "/d") == identity


def test_identity_written_by_kafka_is_read() -> None:
    kraft = b"#\n#Mon Nov 20 12:00:00 UTC 2023\ncluster.id=MkU3OEVBNTc\nversion=1\nnode.id=3\n"
    found = read_meta_properties(_file("/d/meta.properties", kraft), "/d")
    assert found == MetaProperties(cluster_id="MkU3OEVBNTc", node_id=3)
    zookeeper = b"#\n#Mon Nov 20\nbroker.id=0\nversion=0\ncluster.id=a\\=b\n"
    found = read_meta_properties(_file("/d/meta.properties", zookeeper), "/d")
    assert found == MetaProperties(cluster_id="a=b", node_id=0, version=0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version=1\nnode.id=3\n",
        b"version=1\ncluster.id=a\n",
        b"version=1\ncluster.id=a\nnode.id=x\n",
        b"version=2\ncluster.id=a\nnode.id=1\n",
        b"version=one\ncluster.id=a\nnode.id=1\n",
        bytes(50),
    ],
)
def test_damaged_meta_properties_raises(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match=r"meta\.properties"):
        read_meta_properties(_file("/d/meta.properties", content), "/d")
