"""The small files next to the logs: read, or reported as damaged, and written again.

The first byte chooses the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from plog.types import TopicPartition
from plogd.log.disk import checkpoint_files, clean_shutdown
from plogd.log.disk.checkpoint_files import CorruptCheckpoint, EpochEntry
from plogd.log.producer_snapshot import (
    CorruptSnapshot,
    SnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from plogd.ports import Files
from tests.fuzz.target import Target
from tests.helpers.sim.sim_files import SimFiles

_DIRECTORY = "/a"
_OFFSETS = f"{_DIRECTORY}/recovery-point-offset-checkpoint"


def fuzz(data: bytes) -> None:
    """Read the file, write its contents again, and read the result."""
    if not data:
        return
    check = _CHECKS[data[0] % len(_CHECKS)]
    try:
        check(SimFiles([_DIRECTORY]), data[1:])
    except (CorruptCheckpoint, CorruptSnapshot):
        return


def _offsets(files: Files, data: bytes) -> None:
    checkpoint_files.write_atomic(files, _OFFSETS, data)
    offsets = checkpoint_files.read_offsets(files, _OFFSETS)
    checkpoint_files.write_offsets(files, _OFFSETS, offsets)
    _same(checkpoint_files.read_offsets(files, _OFFSETS), offsets)


def _leader_epochs(files: Files, data: bytes) -> None:
    checkpoint_files.write_atomic(files, f"{_DIRECTORY}/leader-epoch-checkpoint", data)
    entries = checkpoint_files.read_leader_epochs(files, _DIRECTORY)
    checkpoint_files.write_leader_epochs(files, _DIRECTORY, entries)
    _same(checkpoint_files.read_leader_epochs(files, _DIRECTORY), entries)


def _topic_id(files: Files, data: bytes) -> None:
    checkpoint_files.write_atomic(files, f"{_DIRECTORY}/partition.metadata", data)
    topic_id = checkpoint_files.read_topic_id(files, _DIRECTORY)
    assert topic_id is not None
    checkpoint_files.write_topic_id(files, _DIRECTORY, topic_id)
    _same(checkpoint_files.read_topic_id(files, _DIRECTORY), topic_id)


def _meta_properties(files: Files, data: bytes) -> None:
    checkpoint_files.write_atomic(files, f"{_DIRECTORY}/meta.properties", data)
    properties = checkpoint_files.read_meta_properties(files, _DIRECTORY)
    assert properties is not None
    checkpoint_files.write_meta_properties(files, _DIRECTORY, properties)


def _snapshot(_files: Files, data: bytes) -> None:
    _same(encode_snapshot(decode_snapshot(data)), data)


def _clean_shutdown_file(files: Files, data: bytes) -> None:
    checkpoint_files.write_atomic(files, f"{_DIRECTORY}/.kafka_cleanshutdown", data)
    clean_shutdown.take_clean_mark(files, _DIRECTORY)
    assert not clean_shutdown.take_clean_mark(files, _DIRECTORY)


def _same(again: object, first: object) -> None:
    assert again == first


_CHECKS: tuple[Callable[[Files, bytes], None], ...] = (
    _offsets,
    _leader_epochs,
    _topic_id,
    _meta_properties,
    _snapshot,
    _clean_shutdown_file,
)


def _written(write: Callable[[Files], None], name: str) -> bytes:
    files = SimFiles([_DIRECTORY])
    write(files)
    return files.read_file(f"{_DIRECTORY}/{name}")


def _seeds() -> Iterator[bytes]:
    offsets = {TopicPartition("t", 0): 5, TopicPartition("other", 3): 1 << 40}
    yield b"\0" + _written(
        lambda x: checkpoint_files.write_offsets(x, _OFFSETS, offsets), _OFFSETS[3:]
    )
    epochs = [EpochEntry(0, 0), EpochEntry(4, 100)]
    yield b"\1" + _written(
        lambda x: checkpoint_files.write_leader_epochs(x, _DIRECTORY, epochs),
        "leader-epoch-checkpoint",
    )
    yield b"\2" + _written(
        lambda x: checkpoint_files.write_topic_id(x, _DIRECTORY, bytes(range(16))),
        "partition.metadata",
    )
    yield b"\3version=1\nnode.id=1\ncluster.id=abc\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    yield b"\4" + encode_snapshot([SnapshotEntry(1, 0, 5, 9, 2, 1_000, -1, -1)])
    yield b"\5" + _written(
        lambda x: clean_shutdown.write_clean_mark(x, _DIRECTORY), ".kafka_cleanshutdown"
    )


TARGET = Target(name="checkpoints", fuzz=fuzz, seeds=_seeds)
