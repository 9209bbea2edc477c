"""Validation lanes: separate for small and large batches, fair between topics, one job each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plog.errors import InvalidRecord, MessageTooLarge
from plog.records.batch import Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from plogd.log.batch_validator import BatchRules, RecordReading, ValidatedBatch
from plogd.ports import Later
from plogd.replica.validation_lanes import SMALL_BYTES, ValidationLanes
from plogd.topic_config import TopicConfig
from tests.helpers.sim.sim_ports import SimJobs, outcome

MIB = 1 << 20
SMALL, LARGE = "validate:small", "validate:large"
RULES = BatchRules.of(TopicConfig(cleanup_policy=("compact",), max_message_bytes=100 * MIB))


def batch(value: bytes = b"v", codec: Compression = Compression.ZSTD) -> memoryview:
    records = [Record(timestamp=0, key=b"k", value=value)]
    return memoryview(bytearray(build_batch(records, compression=codec)))


class Site:
    """Lanes with jobs that run on command; `ended` lists topics in order of completion."""

    def __init__(self) -> None:
        self.jobs = SimJobs()
        self.lanes = ValidationLanes(self.jobs)
        self.ended: list[str] = []

    def submit(
        self, topic: str, data: memoryview | None = None, **reading: Any
    ) -> Later[ValidatedBatch]:
        return self.lanes.validate(
            topic,
            batch() if data is None else data,
            rules=RULES,
            now_ms=0,
            reading=RecordReading(on_step=lambda: self.ended.append(topic), **reading),
        )


def test_topics_alternate_and_each_keeps_its_order() -> None:
    site = Site()
    for topic in ("a", "a", "a", "b", "c", "b"):
        site.submit(topic)
    site.jobs.run_all()
    assert site.ended == ["a", "a", "b", "c", "a", "b"]


def test_lane_submits_one_job_at_a_time() -> None:
    site = Site()
    for topic in ("a", "b"):
        site.submit(topic)
        site.submit(topic, batch(bytes(2 * MIB), Compression.NONE))
    assert [len(site.jobs._lanes[lane]) for lane in (SMALL, LARGE)] == [1, 1]
    site.jobs.run_all()
    assert sorted(site.ended) == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("data", "lane"),
    [
        (lambda: batch(), SMALL),
        (lambda: batch(bytes(SMALL_BYTES // 2), Compression.NONE), SMALL),
        (lambda: batch(bytes(SMALL_BYTES), Compression.NONE), LARGE),
        (lambda: batch(bytes(SMALL_BYTES), Compression.ZSTD), SMALL),
    ],
)
def test_batch_starts_in_the_lane_for_its_size(data: Callable[[], memoryview], lane: str) -> None:
    site = Site()
    site.submit("a", data())
    assert site.jobs.waiting == [lane]


def test_decompression_bomb_moves_to_the_large_lane() -> None:
    site = Site()
    bomb = site.submit("a", batch(bytes(3 * MIB)))
    small = site.submit("b")
    site.jobs.run_one(SMALL)
    assert not bomb.done
    assert site.jobs.waiting == [SMALL, LARGE]
    site.jobs.run_one(SMALL)
    assert small.done, "it does not wait for the bomb"
    site.jobs.run_one(LARGE)
    assert outcome(bomb).header.records_count == 1


def test_decompression_limit_applies_in_the_large_lane() -> None:
    site = Site()
    bomb = site.submit("a", batch(bytes(3 * MIB)), max_decompressed_bytes=2 * MIB)
    site.jobs.run_all()
    with pytest.raises(MessageTooLarge, match=f"would exceed {2 * MIB} bytes when decompressed"):
        outcome(bomb)


def test_invalid_batch_does_not_stop_its_lane() -> None:
    site = Site()

    def refuse(key: bytes | None, value: bytes | None) -> None:
        raise InvalidRecord("not this one")

    bad, good = site.submit("a", check_record=refuse), site.submit("a")
    site.jobs.run_all()
    with pytest.raises(InvalidRecord, match="not this one"):
        outcome(bad)
    assert outcome(good).header.records_count == 1


def test_refused_job_does_not_stop_its_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()

    def full(lane: str, job: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(site.jobs, "submit", full)
        bad = site.submit("a")
    with pytest.raises(RuntimeError):
        outcome(bad)
    good = site.submit("a")
    site.jobs.run_all()
    assert outcome(good).header.records_count == 1
