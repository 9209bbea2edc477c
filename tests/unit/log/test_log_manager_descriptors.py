"""Logs within their limit of descriptors."""

from __future__ import annotations

import random

import pytest

from plog.errors import PolicyViolation
from plog.types import TopicPartition
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_site import CONFIG, LogSite, batch_offsets, values

LIMIT = 128


def _site(limit: int = LIMIT) -> LogSite:
    site = LogSite().start()
    site.files.descriptors.set_limit(limit, 1 << 31)
    return site


def _open(site: LogSite) -> int:
    descriptors = site.files.descriptors
    return descriptors.writing + descriptors.open_on_demand()


def test_tiny_segments_do_not_use_up_descriptors() -> None:
    site = _site()
    log = site.create("t-0", TopicConfig(segment_index_bytes=12, index_interval_bytes=0))
    for _ in range(300):
        site.append(log)
        site.settle()
        assert _open(site) <= LIMIT // 8 + 2
    assert len(log.segments) > 100
    assert batch_offsets(log) == list(range(300))
    assert site.files.descriptors.writing == 1


def test_segments_are_not_rolled_faster_than_they_are_sealed() -> None:
    site = _site()
    log = site.create("t-0", TopicConfig(segment_index_bytes=12, index_interval_bytes=0))
    for _ in range(10 * LIMIT):
        site.append(log)
    assert log.log_end_offset < LIMIT // 2
    while site.ports.jobs.waiting:
        site.ports.jobs.run_one("dir:/a")
        assert _open(site) < LIMIT
    site.settle()
    assert batch_offsets(log) == list(range(10 * LIMIT))
    assert site.offline == []
    assert not [text for text in site.reports if "rejected" in text]
    assert _open(site) < LIMIT // 4


def test_more_logs_than_can_be_written_are_refused_with_one_line() -> None:
    site = _site()
    for number in range(site.files.descriptors.max_logs):
        site.create(f"t-{number}")
    for number in range(3):
        with pytest.raises(PolicyViolation, match=r"cannot create 1 logs.*raise LimitNOFILE"):
            site.create(f"more-{number}")
    assert len([text for text in site.reports if "cannot create" in text]) == 1
    site.delete("t-0")
    site.create("t-0")


def test_every_log_can_be_written_and_rolled_when_no_more_may_be_created() -> None:
    site = _site()
    logs = [site.create(f"t-{number}") for number in range(site.files.descriptors.max_logs)]
    for _ in range(12):
        for log in logs:
            site.fill(log, 1)
            site.settle()
    assert all(len(log.segments) > 1 for log in logs)
    assert all(batch_offsets(log) == list(range(12)) for log in logs)


def test_metadata_log_is_written_when_logs_have_all_their_descriptors() -> None:
    site = _site()
    metadata = TopicPartition("__cluster_metadata", 0)
    log = site.settle(site.manager.load_metadata_log(metadata, bytes(15) + b"\1", CONFIG))
    while True:
        other = site.files.open_on_demand(f"/a/{site.files.descriptors.writing}")
        try:
            other.retain_for_writing()
        except OSError:
            break
    for _ in range(20):
        site.fill(log, 1)
    assert len(log.segments) > 1


def test_restart_opens_no_more_than_a_few_of_many_segments() -> None:
    site = _site()
    log = site.create("t-0")
    for _ in range(100):
        site.fill(log, 5)
        site.settle()
    site = site.next_life()
    site.files.descriptors.set_limit(LIMIT, 1 << 31)
    highest = 0

    def note(operation: object) -> None:
        nonlocal highest
        highest = max(highest, _open(site))

    site.files.on_operation = note
    site.start()
    assert 0 < highest <= LIMIT // 8 + 1
    assert list(values(site.log())) == list(range(500))


@pytest.mark.parametrize("seed", range(10))
def test_power_loss_between_rolls_and_reopenings_loses_nothing(seed: int) -> None:
    site = _site(64)
    log = site.create("t-0", TopicConfig(segment_bytes=400, index_interval_bytes=100))
    chance = random.Random(seed)
    for _ in range(chance.randrange(20, 80)):
        site.fill(log, 1)
        if chance.random() < 0.3:
            site.settle()
        log.read(chance.randrange(log.log_end_offset), 100, end_offset=log.log_end_offset)
    site.settle()
    count = log.log_end_offset
    site = site.crash(seed)
    assert list(values(site.log())) == list(range(count))
