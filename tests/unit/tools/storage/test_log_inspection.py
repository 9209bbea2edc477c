"""plogd/tools/storage/log_inspection.py: facts about a log that is not open."""

from __future__ import annotations

from typing import Any

import pytest

from plog.records.control import ControlType
from plog.types import TopicPartition
from plogd.log.producer_snapshot import SnapshotEntry, encode_snapshot
from plogd.tools.storage.log_inspection import LogFacts, inspect_log
from tests.corpus import legacy
from tests.helpers.programs.kafka_data import KafkaData, batch, control_batch, topic_id
from tests.helpers.sim.sim_files import SimFiles

CLICKS = TopicPartition("clicks", 0)
TRANSACTIONAL: dict[str, Any] = {
    "producer_id": 4711, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True,
}  # fmt: skip
END = {"producer_id": 4711, "producer_epoch": 0, "is_transactional": True}


@pytest.fixture
def data() -> KafkaData:
    """Return a writer for an empty log directory."""
    return KafkaData(SimFiles(["/kafka"]), "/kafka")


def _snapshot(producer_id: int, open_since: int = -1) -> bytes:
    return encode_snapshot([SnapshotEntry(producer_id, 0, 0, 0, 0, 0, 0, open_since)])


def _inspect(data: KafkaData, *, clean: bool = True, everything: bool = False) -> LogFacts:
    return inspect_log(data.files, "/kafka", CLICKS, clean=clean, may_hold_old_formats=everything)


def test_files_to_adopt_are_listed_with_sizes(data: KafkaData) -> None:
    records = batch([b"a"])
    data.log("clicks", 0, records, (1, b""), uuid=topic_id(1))
    for name in ("00000000000000000000.log.deleted", "00000000000000000009.log.cleaned", "x.tmp"):
        data.write(f"clicks-0/{name}", b"x")
    facts = _inspect(data)
    assert facts.topic_id == topic_id(1)
    assert facts.base_offsets == [0, 1]
    assert facts.sizes["00000000000000000000.log"] == len(records)
    assert sorted(facts.sizes) == [
        f"{base:020d}{suffix}" for base in (0, 1) for suffix in (".index", ".log", ".timeindex")
    ] + ["partition.metadata"]
    assert facts.size_bytes == len(records) + facts.sizes["partition.metadata"]


def test_log_without_topic_id_has_none(data: KafkaData) -> None:
    data.log("clicks", 0, batch([b"a"]))
    assert _inspect(data).topic_id is None


def test_old_formats_after_new_ones_are_found_only_by_full_inspection(
    data: KafkaData,
) -> None:
    old = legacy.load("magic-0-gzip")
    data.log("clicks", 0, old, (2000, batch([b"a"], 2000) + old), (3000, batch([b"b"], 3000)))
    data.write("clicks-0/00000000000000003001.snapshot", encode_snapshot([]))
    assert _inspect(data).legacy_segments == [0]
    assert _inspect(data, everything=True).legacy_segments == [0, 2000]


def test_leader_epoch_is_latest_of_checkpoint_and_batches(data: KafkaData) -> None:
    data.log("clicks", 0, batch([b"a"], epoch=3))
    assert _inspect(data).leader_epoch == 3
    data.write("clicks-0/leader-epoch-checkpoint", b"0\n2\n1 0\n9 1\n")
    assert _inspect(data).leader_epoch == 9
    data.write("clicks-0/leader-epoch-checkpoint", b"garbage")
    assert _inspect(data).leader_epoch == 3


def test_open_transactions_come_from_snapshot_after_clean_stop(data: KafkaData) -> None:
    data.log("clicks", 0, batch([b"a"], **TRANSACTIONAL))
    data.write("clicks-0/00000000000000000001.snapshot", _snapshot(4711, open_since=0))
    facts = _inspect(data)
    assert facts.open_producers == [4711]
    assert facts.max_producer_id == 4711


def test_open_transactions_come_from_batches_after_unclean_stop(data: KafkaData) -> None:
    begun = batch([b"a"], **TRANSACTIONAL)
    data.log("clicks", 0, begun)
    assert _inspect(data, clean=False).open_producers == [4711]
    data.log("clicks", 0, begun + control_batch(ControlType.COMMIT, 1, **END))
    assert _inspect(data, clean=False).open_producers == []
    data.log("clicks", 0, begun, (1, control_batch(ControlType.ABORT, 1, **END)))
    data.write("clicks-0/00000000000000000001.snapshot", _snapshot(4711, open_since=0))
    assert _inspect(data, clean=False).open_producers == []


def test_batches_are_read_when_clean_log_has_no_snapshot(data: KafkaData) -> None:
    data.log("clicks", 0, batch([b"a"], **TRANSACTIONAL))
    assert _inspect(data, clean=True).open_producers == [4711]


def test_corrupt_snapshot_is_skipped(data: KafkaData) -> None:
    data.log("clicks", 0, batch([b"a"], **TRANSACTIONAL))
    data.write("clicks-0/00000000000000000000.snapshot", _snapshot(99))
    data.write("clicks-0/00000000000000000001.snapshot", b"damaged")
    facts = _inspect(data, clean=False)
    assert facts.open_producers == [4711]
    assert facts.max_producer_id == 4711


def test_files_of_an_interrupted_compaction_are_imported(data: KafkaData) -> None:
    data.log("clicks", 0, batch([b"a"]))
    data.write("clicks-0/00000000000000000000.log.swap", b"")
    facts = _inspect(data)
    assert "00000000000000000000.log.swap" in facts.sizes
    assert facts.base_offsets == [0]


def test_full_inspection_finds_largest_producer_id(
    data: KafkaData,
) -> None:
    first = batch([b"a"], producer_id=7000, producer_epoch=0, base_sequence=0)
    data.log("clicks", 0, first, (1, batch([b"b"], 1)))
    data.write("clicks-0/00000000000000000002.snapshot", encode_snapshot([]))
    assert _inspect(data, everything=True).max_producer_id == 7000
